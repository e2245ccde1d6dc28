"""The cause of a hang by the review of the running files, where the stacks of the ranks leave it open."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from ...knowledge.schema import NATS, Knowledge
from ..errors import UserError
from ..evidence import rule_finding_id
from ..jobs.script_path import script_of_job
from ..review.types import ReviewFinding
from ..training_script.line_queries import ScriptFiles
from ..triage.phrases import short_place
from ..triage.types import JobReport
from .evidence_weights import RULE_WEIGHTS

# The verdicts of the stacks that do not show how the ranks diverged.
OPEN_CAUSES = (None, "collective-desync")
DIVERGED = {
    *("job.same-collective", "job.ranks-in-different-collectives", "job.loop-counts-differ"),
    *("job.recorder-op-mismatch", "job.recorder-size-mismatch", "job.recorder-rank-behind"),
    *("job.log-names-mismatch", "job.log-rank-behind", "job.ras-counts-differ"),
}
ELSEWHERE_CONFIDENCE = 0.8  # of a finding in a function in which no rank is any more
MOST_CONFIDENCE = 0.8  # in a cause by review alone; how sure the culprits are stays as it is
MOST_FILES = 6
UNEVEN, LOOP_ENDED_EARLY = "uneven-inputs", "job.loop-ended-early"
SHOWN_BY_REVIEW = {"per-rank-decision": ["job.diverged-by-own-data"]}  # by cause
# Findings on the rounds of a loop: where the review shows where the ranks diverged, an effect of it.
OF_ROUNDS = (LOOP_ENDED_EARLY, "job.loop-counts-differ")


def is_open(report: JobReport) -> bool:
    """Return whether the ranks of a job wait for each other in vain, and the stacks do not tell why."""
    verdict = report.verdict
    diverged = verdict.state == "hung" and not DIVERGED.isdisjoint(verdict.findings)
    return not verdict.branch and ((diverged and verdict.cause in OPEN_CAUSES) or _blames_loop_length(report))


def _blames_loop_length(report: JobReport) -> bool:
    """Return whether some ranks have left a loop, of which the stacks do not show that it is longer on the others."""
    verdict = report.verdict
    return verdict.state == "hung" and verdict.cause == UNEVEN and LOOP_ENDED_EARLY in verdict.findings


def review_running_files(report: JobReport, knowledge: Knowledge) -> list[ReviewFinding]:
    """Return the findings in the files of a job, as its ranks run them: its script and what is on their stacks."""
    from ..review.file_review import findings_in

    sources = report.observed.sources
    paths = dict.fromkeys([script_of_job(report.job), *sources])
    found: list[ReviewFinding] = []
    for path in [path for path in paths if path in sources][:MOST_FILES]:
        with suppress(UserError):
            found += findings_in(sources[path], path, knowledge)
    return found


def divergence_finding(
    report: JobReport, findings: Iterable[ReviewFinding], knowledge: Knowledge
) -> ReviewFinding | None:
    """Return the finding that explains how the ranks of a job diverged, or None; first one in a function they are in.

    Every rule counts after which ranks wait for each other (``parts_ranks``).
    """
    if not is_open(report):
        return None
    files = ScriptFiles(report.observed.sources)
    rules = knowledge.rules
    known = [
        each for each in findings if each.severity != "info" and each.rule in rules and rules[each.rule].parts_ranks
    ]
    here = [each for each in known if _is_on_stack(each, report, files)]
    if _blames_loop_length(report):
        lengths_differ = any(rules[each.rule].cause == UNEVEN or each.cause == UNEVEN for each in known)
        inside = [] if lengths_differ else [each for each in here if _is_in_loop_of_rank(each, report, files)]
        return max(inside, key=lambda each: (each.severity == "error", each.confidence), default=None)
    elsewhere = [each for each in known if each.severity == "error" and each.confidence >= ELSEWHERE_CONFIDENCE]
    return max(here or elsewhere, key=lambda each: (each.severity == "error", each.confidence), default=None)


def explain_by_review(
    report: JobReport, knowledge: Knowledge, findings: Sequence[ReviewFinding] | None = None
) -> JobReport:
    """Return the report with the cause that the review knows, where the stacks leave it open.

    The files that its ranks run are reviewed, unless their ``findings`` are known.
    """
    if findings is None:
        findings = review_running_files(report, knowledge) if is_open(report) else ()
    finding = divergence_finding(report, findings, knowledge)
    if finding is None:
        return report
    verdict, place, cause = report.verdict, place_of_divergence(finding), _cause_of(finding, knowledge)
    effects = OF_ROUNDS if cause not in OPEN_CAUSES and len(verdict.findings) > 1 else ()
    explained = msgspec.structs.replace(
        verdict,
        cause=cause,
        branch=place,
        findings=[each for each in verdict.findings if each not in effects] + SHOWN_BY_REVIEW.get(cause, []),
        why=f"{verdict.why} The review finds where ranks may part, {short_place(place)}: {finding.message}.",
        confidence=verdict.confidence
        if verdict.culprits
        else max(verdict.confidence, min(finding.confidence, MOST_CONFIDENCE)),
    )
    return msgspec.structs.replace(report, verdict=explained)


def place_of_divergence(finding: ReviewFinding) -> str:
    """Return ``path:line`` of the condition of a finding, or of the finding itself if it has none."""
    return f"{finding.path}:{finding.branch or finding.line}"


def _cause_of(finding: ReviewFinding, knowledge: Knowledge) -> str:
    """Return the cause for which a finding counts most: entries may weigh the findings of other causes' rules."""
    id_ = rule_finding_id(finding.rule)
    weights = {finding.cause: NATS[RULE_WEIGHTS[finding.severity]]}
    weights |= {id_of: NATS[cause.findings[id_]] for id_of, cause in knowledge.causes.items() if id_ in cause.findings}
    return max(weights, key=lambda each: weights[each])


def _is_in_loop_of_rank(finding: ReviewFinding, report: JobReport, files: ScriptFiles) -> bool:
    """Return whether the place where ranks may part is in a loop that a rank is in."""
    line = finding.branch or finding.line
    return any(
        loop.lineno < line <= (loop.end_lineno or loop.lineno)
        for seen in report.observed.seen
        for sample in seen.samples[-1:]
        for frame in sample.stack
        if frame.path == finding.path
        for loop in files[frame.path].loops(frame.line)
    )


def _is_on_stack(finding: ReviewFinding, report: JobReport, files: ScriptFiles) -> bool:
    """Return whether a rank is in the function, or in the file outside of any, in which the finding is."""
    functions = {
        files[frame.path].function_at(frame.line)
        for seen in report.observed.seen
        for sample in seen.samples[-1:]
        for frame in sample.stack
        if frame.path == finding.path
    }
    return bool(functions) and files[finding.path].function_at(finding.branch or finding.line) in functions
