"""Static review of training scripts: run the rules, and offer only patches that were tried.

A patch is tried on the text: the result has to parse, the finding has to be gone, no new finding may appear, and no
unbound name may be read.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..evidence import Evidence, rule_finding_id
from ..system.paths import relative_to_cwd
from ..text.diff import unified_diff
from ..training_script.edits import Edit
from ..training_script.model.rank_mentions import concerns_ranks
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
    locked_collectives,
    missing_set_epoch,
    passed_ranks,
    process_values,
    rank_options,
    ranks_at_import,
    reduced_at_some_calls,
    shared_places,
    totals_of_objects,
    unset_attributes,
    unused_samplers,
    whole_streams,
    wrap_before_device,
    wrap_policies,
    writers_of_one_rank,
)
from .types import ReviewFinding, RuleFix

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
    "DW508": local_logs.check,
}
OF_PROGRAM = divergences.RULES | FACT_RULES.keys()
MOST_ROUNDS = 10
MOST_TRIALS = 25


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
        script = Script(text, path)
        if not concerns_ranks(text) and not _starts_ranks(script):
            return [], True
        found = _detect(script, through_calls=through_calls)
        trials = _Trials(script, found)
        findings = [
            _public(rule, finding, script, trials, knowledge)
            for rule, finding in found
            if rules is None or rule in rules
        ]
        complete = not through_calls or script.divergences.complete
        script.forget()
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply to be reviewed", "split its longest expression") from error
    findings.sort(key=lambda finding: (finding.line, finding.column, finding.rule))
    return findings, complete


def _starts_ranks(script: Script) -> bool:
    """Return whether a script that mentions nothing of ranks calls modules of its project that do."""
    return runs_as_script(script.source.text) and script.has_ranks and script.is_of_several


def apply_patches(
    text: str, review: Callable[[str], list[ReviewFinding]], safeties: Collection[str]
) -> tuple[str, list[ReviewFinding]]:
    """Return ``text`` with every patch of these levels of safety applied, and the findings they fixed.

    ``review`` finds them in a text. Patches that overlap are made one after the other.
    """
    done: list[ReviewFinding] = []
    for _ in range(MOST_ROUNDS):
        fixable = [each for each in review(text) if each.fix and each.fix.edits and each.fix.safety in safeties]
        text, taken = _apply_fitting(text, fixable)
        if not taken:
            break
        done += taken
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


def _public(rule: str, found: Violation, script: Script, trials: "_Trials", knowledge: Knowledge) -> ReviewFinding:
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
        fix=_fix(rule, found, found.patch(), trials) if found.patch else None,
    )


def _fix(rule: str, found: Violation, patch: Patch, trials: "_Trials") -> RuleFix:
    diff = ""
    if patch.edits:
        problem, after = trials.run(rule, found, patch)
        if problem:
            patch = Patch(id=patch.id, safety="display", why_unsafe=f"the patch {problem}")
        else:
            source = trials.script.source
            diff = unified_diff(source.text, after, relative_to_cwd(source.path))
    return RuleFix(
        id=patch.id, safety=patch.safety, why_unsafe=patch.why_unsafe or None, edits=list(patch.edits), diff=diff
    )


class _Trials:
    """Trials of the patches of one file. Each runs the rules on the patched text, so that their number is limited.

    What other ranks do is followed through calls and imports again only where the patch moves a collective.
    """

    def __init__(self, script: Script, found: list[tuple[str, Violation]]) -> None:
        self.script, self.found = script, found
        self.left = MOST_TRIALS

    @cached_property
    def before(self) -> Counter[tuple[str, str]]:
        """The findings before a patch."""
        return _keys(self.script, self.found)

    @cached_property
    def unbound(self) -> set[str]:
        """The names that are not bound before a patch."""
        return self.script.names.unresolved()

    def run(self, rule: str, found: Violation, patch: Patch) -> tuple[str, str]:
        """Return why a patch fails ("" if it does not) and the patched text."""
        if not self.left:
            return f"was not tried: {MOST_TRIALS} of this file were; make those, then review it again", ""
        self.left -= 1
        try:
            after = apply_edits(self.script.source.text, patch.edits)
            result = Script(after, self.script.source.path)
        except OverlappingEdits as error:
            return f"was tried and is not offered: {error}", ""
        except UserError as error:
            return f"was tried and is not offered: {error.message}", ""
        if unbound := result.names.unresolved() - self.unbound:
            return f"was tried and is not offered: it would read {', '.join(sorted(unbound))}, which is not bound", ""
        if len(locked := locked_collectives.in_text(result)) > len(locked_collectives.in_text(self.script)):
            return f"was tried and is not offered: it would communicate under the lock of line {locked[-1]}", ""
        left = _keys(result, _detect(result, through_calls=rule in OF_PROGRAM))
        result.forget()
        key = _key(self.script, rule, found)
        if left[key] >= self.before[key]:
            return "was tried and is not offered: the finding would stay", ""
        if new := sorted(key[0] for key in left if left[key] > self.before[key]):
            return f"was tried and is not offered: it would cause {new[0]}", ""
        return "", after


def _keys(script: Script, found: Iterable[tuple[str, Violation]]) -> Counter[tuple[str, str]]:
    return Counter(_key(script, rule, finding) for rule, finding in found)


def _key(script: Script, rule: str, found: Violation) -> tuple[str, str]:
    """Return a key of a finding that does not change when its line moves."""
    return rule, script.source.line(found.line).strip()
