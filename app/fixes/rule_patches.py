"""Patches of a cause that rules of the review make in the scripts of a case."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from ...knowledge.schema import Cause, FixSpec, Knowledge
from ..errors import UserError
from ..review.types import ReviewFinding
from .facts import CaseFacts
from .types import FilePatch, Fix, Place

LEVELS = {"safe", "unsafe"}


def further_rules(cause: Cause, facts: CaseFacts, knowledge: Knowledge) -> list[FixSpec]:
    """Return a fix for each rule of the cause that the entry does not name, and that has a patch in the scripts."""
    named = {spec.rule for spec in cause.fixes}
    rules = {
        id_: rule
        for id_, rule in knowledge.rules.items()
        if rule.cause == cause.id and rule.safety != "display" and id_ not in named
    }
    fixable = (
        {id_ for path in _scripts(rules, facts) for id_ in _fixable(path, rules, knowledge)} if rules else set[str]()
    )
    return [
        FixSpec(
            id=id_.lower(),
            kind="patch",
            title=rule.fix[:1].upper() + rule.fix[1:],
            rule=id_,
            safety=rule.safety,
            why_unsafe=rule.why_unsafe,
        )
        for id_, rule in rules.items()
        if id_ in fixable
    ]


def patch_by_rule(cause: Cause, spec: FixSpec, facts: CaseFacts, knowledge: Knowledge) -> Fix:
    """Return the fix with every patch of a rule; what has to be changed by hand is its text."""
    patches: list[FilePatch] = []
    repaired: list[ReviewFinding] = []
    by_hand: list[str] = []
    paths = _scripts({spec.rule}, facts)
    for path in paths:
        from ..review.review import apply_patches

        try:
            before, review = _reviewed(path, {spec.rule}, knowledge)
            after, done = apply_patches(before, review, LEVELS)
            left = review(after)
        except UserError as error:
            by_hand.append(str(error))
            continue
        if done:
            patches.append(FilePatch(path=path, before=before, after=after))
            repaired += done
        by_hand += [f"{finding.path}:{finding.line}: {finding.message}" for finding in left]
    if not patches and not by_hand:
        by_hand.append(_nothing_to_patch(paths))
    made = [finding.fix for finding in repaired if finding.fix]
    unsafe = next((fix for fix in made if fix.safety == "unsafe"), None)
    return Fix(
        id=spec.id,
        cause=cause.id,
        title=spec.title,
        safety="display" if not patches else "unsafe" if unsafe else "safe",
        why_unsafe=(unsafe.why_unsafe or spec.why_unsafe) if unsafe else "",
        text="\n".join(by_hand),
        patches=patches,
    )


def condition_of_job(facts: CaseFacts) -> Place | None:
    """Return the condition at which the ranks of the job diverged, if one is known."""
    report = facts.context.report
    return facts.place(report.verdict.branch or "") if report else None


def changes_condition(patches: Sequence[FilePatch], facts: CaseFacts) -> bool:
    """Return whether patches change the condition at which the ranks of the job diverged, if one is known."""
    place = condition_of_job(facts)
    return place is None or any(
        Path(patch.path).absolute() == Path(place.path).absolute()
        and _count_lines(patch.after, place.text) < _count_lines(patch.before, place.text)
        for patch in patches
    )


def _fixable(path: str, rules: Collection[str], knowledge: Knowledge) -> set[str]:
    """Return the rules whose findings in a script have patches."""
    try:
        text, review = _reviewed(path, set(rules), knowledge)
        return {finding.rule for finding in review(text) if finding.fix and finding.fix.edits}
    except UserError:
        return set()


def _reviewed(path: str, rules: set[str], knowledge: Knowledge) -> tuple[str, Callable[[str], list[ReviewFinding]]]:
    """Return the text of a script, and its review by some rules.

    Raises:
        UserError: It cannot be read.
    """
    from ..review.file_review import findings_in  # loads the rules, which only patches need
    from ..training_script.source import read_source

    return read_source(Path(path))[1], partial(findings_in, path=path, knowledge=knowledge, rules=rules)


def _nothing_to_patch(scripts: Sequence[str]) -> str:
    if not scripts:
        return "The script is not known: ddpwizard review SCRIPT shows the place and the patch."
    return f"No place in {', '.join(scripts)} can be patched automatically; fix it by hand."


def _scripts(rules: Collection[str], facts: CaseFacts) -> list[str]:
    """Return the files to patch: those of the review's findings, or else the script and the files of the case."""
    context = facts.context
    found = [finding.path for finding in context.findings if finding.rule in rules]
    candidates = found or [*([context.script] if context.script else []), *(file.path for file in facts.files)]
    once: dict[Path, str] = {}
    for path in candidates:
        once.setdefault(Path(path).absolute(), path)
    return list(once.values())


def _count_lines(text: str, line: str) -> int:
    return sum(each.strip() == line for each in text.splitlines())
