"""Static review of training scripts: run the rules, and offer only patches that were tried."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..evidence import Evidence, rule_finding_id
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff
from ..training_script.edits import Edit
from ..training_script.model.rank_mentions import concerns_ranks
from ..training_script.model.reached_parts import is_parsed_module
from ..training_script.model.users import runs_as_script
from ..training_script.source import NEWLINE
from .fact_rules import FACT_RULES, check_facts
from .one_owner import without_consequences
from .patches.apply_edits import OverlappingEdits, apply_edits, shifts_lines_of
from .rule_context import Check, Patch, Script, Violation
from .rules import (
    counts_of_objects,
    device_by_global_rank,
    divergences,
    lightning_data,
    local_logs,
    missing_set_epoch,
    passed_ranks,
    process_values,
    rank_options,
    ranks_at_import,
    reduced_at_some_calls,
    shared_places,
    skipped_steps,
    totals_of_objects,
    unbound_names,
    unset_attributes,
    unused_samplers,
    whole_streams,
    wrap_before_device,
    wrap_policies,
    writers_of_one_rank,
)
from .trials import Candidate, try_patches
from .types import ReviewFinding, RuleFix
from .uncalled_functions import is_called_nowhere

# The rules that read one file. Those of ``divergences`` and ``fact_rules`` follow its imports, which takes longer.
RULES: dict[str, Check] = {
    "DW114": process_values.check_text,
    "DW110": rank_options.check_local_rank,
    "DW234": rank_options.check_option,
    "DW101": device_by_global_rank.check,
    "DW118": ranks_at_import.check,
    "DW121": passed_ranks.check,
    "DW494": unset_attributes.check,
    "DW476": counts_of_objects.check,
    "DW268": reduced_at_some_calls.check,
    "DW269": writers_of_one_rank.check,
    "DW201": wrap_before_device.check,
    "DW436": totals_of_objects.check,
    "DW245": unused_samplers.check,
    "DW203": missing_set_epoch.check,
    "DW244": whole_streams.check_unused,
    "DW248": shared_places.check,
    "DW487": wrap_policies.check,
    "DW317": lightning_data.check_sampler,
    "DW318": lightning_data.check_prepared,
    "DW479": unbound_names.check,
    "DW491": skipped_steps.check,
    "DW508": local_logs.check,
}
OF_PROGRAM = divergences.RULES | FACT_RULES.keys()
MOST_ROUNDS = 10


def review_text(
    text: str, path: str, knowledge: Knowledge, rules: Collection[str] | None = None
) -> list[ReviewFinding]:
    """Return the findings of the rules (all, or those named) in ``text``, by line.

    Raises:
        UserError: ``text`` is not valid Python; names the line.
    """
    return review_script(text, path, knowledge, rules)[0]


def review_script(
    text: str, path: str, knowledge: Knowledge, rules: Collection[str] | None = None
) -> tuple[list[ReviewFinding], bool]:
    """Return the findings in ``text``, by line, and whether all calls could be followed.

    Imports are followed from ``path``; the file itself is not read.

    Raises:
        UserError: ``text`` is not valid Python; names the line.
    """
    through_calls = rules is None or not OF_PROGRAM.isdisjoint(rules)
    try:
        may_concern_ranks = concerns_ranks(text)
        if not (may_concern_ranks or runs_as_script(text)) and is_parsed_module(Path(path), text):
            return [], True
        script = Script(text, path)
        if not may_concern_ranks and not _starts_ranks(script):
            return [], True
        found = _detect(script, through_calls=through_calls)
        wanted = [(rule, each) for rule, each in found if rules is None or rule in rules]
        fixes = _fixes(wanted, script, found)
        findings = [
            _public(rule, each, script, fix, knowledge) for (rule, each), fix in zip(wanted, fixes, strict=True)
        ]
        findings = [_where_called(script, each) for each in findings]
        complete = not through_calls or script.divergences.complete
        script.forget()
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply to be reviewed", "split its longest expression") from error
    findings.sort(key=lambda finding: (finding.line, finding.column, finding.rule))
    return findings, complete


def _where_called(script: Script, finding: ReviewFinding) -> ReviewFinding:
    """Return a finding, with the lowest severity in a function that nothing in the project calls."""
    if finding.severity == "info" or not is_called_nowhere(script, finding.line):
        return finding
    message = f"{finding.message}; nothing in the project calls this function"
    return msgspec.structs.replace(finding, severity="info", message=message)


def _starts_ranks(script: Script) -> bool:
    """Return whether a script that mentions nothing of ranks calls modules of its project that do."""
    return runs_as_script(script.source.text) and script.has_ranks and script.is_of_several


def apply_patches(
    text: str,
    review: Callable[[str], list[ReviewFinding]],
    safeties: Collection[str],
    found: list[ReviewFinding] | None = None,
) -> tuple[str, list[ReviewFinding]]:
    """Return ``text`` with every patch of these levels of safety applied, and the findings they fixed.

    ``found``: those of ``text``, if they are known; ``review`` finds them in a text. Patches that overlap are made one
    after the other.
    """
    done: list[ReviewFinding] = []
    found = review(text) if found is None else found
    for _ in range(MOST_ROUNDS):
        fixable = [each for each in found if each.fix and each.fix.edits and each.fix.safety in safeties]
        text, taken = _apply_fitting(text, fixable)
        if not taken:
            break
        done += taken
        found = review(text)
    return text, done


def apply_chosen(
    text: str, chosen: Collection[ReviewFinding], review: Callable[[str], list[ReviewFinding]]
) -> tuple[str, list[ReviewFinding]]:
    """Return ``text`` with the patches of these findings in it, and those that could be made.

    ``review`` finds the ones that overlap another again, in the text that the other has changed.
    """
    done: list[ReviewFinding] = []
    waiting = [*chosen]
    found: Sequence[ReviewFinding] = waiting
    for _ in range(MOST_ROUNDS):
        after, taken = _apply_fitting(text, found)
        if not taken:
            break
        done += [each for each, now in zip(waiting, found, strict=True) if now in taken]
        waiting = [each for each, now in zip(waiting, found, strict=True) if now not in taken]
        again = review(after) if waiting else []
        pairs = [(each, _same_finding(each, text, again, after)) for each in waiting]
        waiting = [each for each, now in pairs if now]
        found = [now for _, now in pairs if now]
        text = after
    return text, done


def _apply_fitting(text: str, findings: Iterable[ReviewFinding]) -> tuple[str, list[ReviewFinding]]:
    """Return ``text`` with the patches that neither overlap an earlier one nor shift its lines, and their findings."""
    edits: list[Edit] = []
    taken: list[ReviewFinding] = []
    for finding in findings:
        own = finding.fix.edits if finding.fix else []
        others = [each.fix.edits for each in taken if each.fix]
        if any(shifts_lines_of(own, each, text) or shifts_lines_of(each, own, text) for each in others):
            continue
        try:
            apply_edits(text, [*edits, *own])
        except OverlappingEdits:
            continue
        edits += own
        taken.append(finding)
    return apply_edits(text, edits), taken


def _same_finding(
    finding: ReviewFinding, before: str, again: Iterable[ReviewFinding], after: str
) -> ReviewFinding | None:
    """Return the finding of the same rule on the same line of code, with a patch, in a text that has changed."""
    line = NEWLINE.split(before)[finding.line - 1].strip()
    lines = NEWLINE.split(after)
    same = (each for each in again if each.rule == finding.rule and lines[each.line - 1].strip() == line)
    return next((each for each in same if each.fix and each.fix.edits), None)


def evidence_of_findings(findings: Iterable[ReviewFinding]) -> list[Evidence]:
    """Return the findings as evidence (``review.<rule>``)."""
    return [
        Evidence(rule_finding_id(f.rule), "review", f.message, where=f"{f.path}:{f.line}", strength=f.confidence)
        for f in findings
    ]


def _detect(script: Script, *, through_calls: bool) -> list[tuple[str, Violation]]:
    found = [(rule, violation) for rule, check in RULES.items() for violation in check(script)]
    if through_calls:
        found += divergences.check(script)
        found += check_facts(script)
    return without_consequences(found)


def _detect_after(script: Script, rules: Iterable[str]) -> list[tuple[str, Violation]]:
    """Return the findings after patches for those of some rules.

    What other ranks do is followed through calls and imports again only where one of the patches moves a collective.
    """
    return _detect(script, through_calls=not OF_PROGRAM.isdisjoint(rules))


def _public(rule: str, found: Violation, script: Script, fix: RuleFix | None, knowledge: Knowledge) -> ReviewFinding:
    spec = knowledge.rules[rule]
    return ReviewFinding(
        rule=rule,
        cause=found.cause or spec.cause,
        path=script.source.path,
        line=found.line,
        column=script.source.column_characters(found.line, found.column_bytes),
        end_line=found.end_line,
        message=found.message,
        why=spec.why,
        severity="info" if script.is_test else found.severity or spec.severity,
        confidence=round(found.confidence, 2),
        branch=found.branch,
        related=found.related,
        fix=fix,
    )


def _fixes(
    wanted: Sequence[tuple[str, Violation]], script: Script, found: list[tuple[str, Violation]]
) -> list[RuleFix | None]:
    """Return the fix of each finding that is wanted of those of a script; a patch that fails has no edits."""
    made = [Candidate(rule, each, each.patch()) if each.patch else None for rule, each in wanted]
    candidates = [each for each in made if each and each.patch.edits]
    problems = iter(try_patches(candidates, script, found, _detect_after))
    return [each and _fix(each.patch, next(problems) if each.patch.edits else "", script) for each in made]


def _fix(patch: Patch, problem: str, script: Script) -> RuleFix:
    if problem:
        return RuleFix(id=patch.id, safety="display", why_unsafe=f"the patch {problem}", edits=[], diff="")
    before = script.source.text
    diff = (
        unified_diff(before, apply_edits(before, patch.edits), relative_to_cwd(script.source.path))
        if patch.edits
        else ""
    )
    return RuleFix(
        id=patch.id, safety=patch.safety, why_unsafe=patch.why_unsafe or None, edits=list(patch.edits), diff=diff
    )
