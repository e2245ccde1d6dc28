"""Diagnose a job that ended with an error, as ``diagnose`` does: from the copies of its ranks' output and their exit
statuses."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause
from ..diagnosis.case import Case
from ..diagnosis.dialogue import best_cause_text
from ..diagnosis.intake import add_to_case
from ..diagnosis.reviewed_job import explain_by_review
from ..diagnosis.script_evidence import add_divergences
from ..evidence import Evidence, RankedCause, verdict_id
from ..logs.first_failure import first_error, script_location
from ..logs.path_hints import PathHint
from ..logs.read import LogInput, source_of_text
from ..logs.types import Timeline, Writer
from ..system import run_directory
from ..triage.rank_activity.frames import user_frames
from ..triage.sampling.deaths import parse_oom_kills, read_kernel_log
from ..triage.triage import evidence_of_report
from .ended_ranks import EndedRank
from .last_stacks import report_of_ends, stack_at_signal

BY_ENDS = "verdict on the places at which the ranks ended"
DescribeFix = Callable[[Cause, Timeline | None], list[str]]


def diagnose_crash(
    case: Case, private: Path, ended: Sequence[EndedRank], first: EndedRank, describe_fix: DescribeFix, script: str = ""
) -> list[str]:
    """Add what the ranks left behind to the case, and return the diagnosis as lines: where the first rank ended,
    and the likely cause with its first fix.

    ``first`` is the rank with whose end the failure began, ``describe_fix`` gives the lines of the first fix of a
    cause, ``script`` is the path of the job's script.

    Raises:
        UserError: The copies of the output cannot be read.
    """
    case.add(_killed_for_memory(ended))
    case.add(_left_early(first))
    sources = [*_output_copies(private, ended), *_signal(first)]
    found = add_to_case(case, sources, of_job=True) if sources else None
    if script:
        add_divergences(case, Path(script))
    report = report_of_ends(private, ended)
    if report:
        report = explain_by_review(report, case.knowledge)
        case.add(_of_ends(item) for item in evidence_of_report(report, case.knowledge.findings()))
    diagnosis = case.diagnosis(in_scope=True)
    timeline = found.timeline if found else None
    lines = [f"  {report.verdict.why}"] if report else _place_lines(private, first, timeline)
    named = diagnosis.named(1)
    return lines + (
        _cause_lines(case, named[0], timeline, describe_fix)
        if named
        else ["  No known cause matches the output of the ranks."]
    )


def _of_ends(item: Evidence) -> Evidence:
    """Return the verdict on a job that has ended as what it is; other evidence as it is."""
    return msgspec.structs.replace(item, what=BY_ENDS) if item.id.startswith(verdict_id("")) else item


def _output_copies(private: Path, ended: Iterable[EndedRank]) -> list[LogInput]:
    """Return the copies of the output, older parts first."""
    found: list[LogInput] = []
    for rank in sorted(ended, key=lambda rank: (rank.record.rank is None, rank.record.rank or 0, rank.record.pid)):
        for path in run_directory.output_copies(private, rank.record.pid):
            size_bytes = path.stat().st_size
            if size_bytes:
                place = PathHint(Writer(rank.record.rank))
                found.append(LogInput(str(path), path=str(path), size_bytes=size_bytes, place=place))
    return found


def _signal(first: EndedRank) -> list[LogInput]:
    """Return the end by a signal in the words of torchrun, which are in no rank's output."""
    if not first.killed_by:
        return []
    name = first.reason.rpartition(" ")[2]
    number, pid = first.killed_by, first.record.pid
    text = f"exitcode  : -{number} (pid: {pid})\ntraceback : Signal {number} ({name}) received by PID {pid}\n"
    return [source_of_text(text, f"exit status of {first.name}")]


def _left_early(first: EndedRank) -> list[Evidence]:
    if not first.left:
        return []
    what = f"{first.name} ended without an error while others waited for it"
    return [Evidence("job.rank-left-early", "job", what, rank=first.record.rank, pid=first.record.pid)]


def _killed_for_memory(ended: Iterable[EndedRank]) -> list[Evidence]:
    killed = {kill.pid for kill in parse_oom_kills(read_kernel_log()[0])}
    return [
        Evidence(
            "job.killed-for-memory",
            "job",
            "the kernel's OOM killer ended it: out of memory",
            rank=rank.record.rank,
            pid=rank.record.pid,
        )
        for rank in ended
        if rank.failed and rank.record.pid in killed
    ]


def _place_lines(private: Path, first: EndedRank, timeline: Timeline | None) -> list[str]:
    """Return the line of the script at which a signal ended the first rank, or at which the first error was raised."""
    if first.killed_by:
        frames = user_frames(stack_at_signal(private, first))
        return [f"  in {each.path}:{each.line} in {each.function}" for each in frames[-1:]]
    found = first_error(timeline) if timeline and not first.left else None
    location = script_location(found.event) if found else ""
    return [f"  raised at {location}"] if location else []


def _cause_lines(case: Case, cause: RankedCause, timeline: Timeline | None, describe_fix: DescribeFix) -> list[str]:
    entry = case.knowledge.causes[cause.id]
    return [f"  {best_cause_text(cause)}", f"    {entry.summary}", *describe_fix(entry, timeline)]
