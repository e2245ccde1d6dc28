"""Look at one job: its ranks at least twice, what surrounds them once; then the verdict."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ....knowledge.schema import Intrusiveness
from ...errors import InspectionError
from ...jobs.types import Job
from ...probes.context import level_permitted
from ...system import procfs
from ...system.timeouts import run_in_thread
from ...training_script.frame import StackFrame
from ..rank_activity.collectives_in_stack import collective_of
from ..rank_activity.frames import user_frames
from ..types import JobReport, Observation, ProcessSamples, Sample, Verdict
from ..verdict import judge_job
from . import context, stacks
from .context import SampleContext, sample_context

Progress = Callable[[str], None]
SURE_ENOUGH = 0.7  # a verdict of ranks that stand still, but do not contradict each other, is looked at again
MAY_BE_SLOW = {  # so is such a verdict
    "job.rank-in-loader",
    "job.rank-waits-for-service",
    "job.rank0-alone-at-work",
    "job.rank-keeps-gil",
}
LONGER_GAPS = 2  # the further look comes after as many gaps: it must fit into five seconds
SOURCES_LIMIT_S = 3.0
SOURCES_LIMIT_BYTES = 4_000_000  # of all source files together


async def sample_job(
    job: Job,
    *,
    logs: Sequence[Path] = (),
    allow: Intrusiveness = "reads",
    gap_s: float = 1.0,
    progress: Progress | None = None,
) -> JobReport:
    """Look at one job: twice, and once more where it stands still and nothing contradicts, or where what one rank waits
    for may come yet.

    ``logs``: files or directories to read besides those of the job that are found.
    """
    tell = progress or (lambda _line: None)
    may_pause = level_permitted("perturbs", allow)
    count = f"{len(job.processes)} process{'es' if len(job.processes) != 1 else ''} of " if job.processes else ""
    tell(f"reading {count}{job.launcher}")
    began = time.monotonic()
    looks = [await stacks.sample_stacks(job.processes, may_pause=may_pause)]
    tell(f"looking again after {gap_s:.0f} s")
    around, _ = await asyncio.gather(sample_context(job, looks[0], logs=logs, allow=allow), _until(began + gap_s))
    report = judge_job(await _look_again(job, looks, around, may_pause))
    if needs_another_sample(report.verdict) and not access_denied(report):
        tell(f"looking again after {LONGER_GAPS * gap_s:.0f} s more")
        await _until(began + gap_s + LONGER_GAPS * gap_s)
        report = judge_job(await _look_again(job, looks, around, may_pause))
    return report


def needs_another_sample(verdict: Verdict) -> bool:
    """Whether another look may tell more: of what is not sure, and of a rank that may only be slower than the looks."""
    slow = verdict.state == "hung" and not MAY_BE_SLOW.isdisjoint(verdict.findings)
    doubtful = verdict.state in ("hung", "unknown", "starting") or bool(verdict.culprits)
    return slow or (doubtful and verdict.confidence < SURE_ENOUGH)


def access_denied(report: JobReport) -> str:
    """What the kernel refuses, where it lets no stack of the job be read: then there is nothing to judge."""
    here = [row for row in report.ranks if row.pid is not None]
    said = [row.note for row in here if row.state == "unreadable" and "not permitted" in row.note]
    return said[0].removeprefix("stack: ") if here and len(said) == len(here) else ""


def build_observation(
    job: Job, looks: Sequence[Mapping[int, Sample]], around: SampleContext | None = None, *, with_sources: bool = True
) -> Observation:
    """What some looks at a job (pid to sample, oldest first) and one around it come to, with the text of the files its
    ranks stand in."""
    around = around or SampleContext()
    seen = context.process_samples(job, looks, around)
    return Observation(
        job=job,
        seen=seen,
        sources=_sources(seen) if with_sources else {},
        records=around.records,
        log=around.log,
        deaths=around.deaths,
        ras=around.ras,
        launchers=around.launchers,
        problems=around.problems,
    )


async def _look_again(job: Job, looks: list[dict[int, Sample]], around: SampleContext, may_pause: bool) -> Observation:
    """Add a look to ``looks``; what is known then."""
    looks.append(await stacks.sample_stacks(job.processes, may_pause=may_pause))
    try:
        return await run_in_thread(
            lambda: build_observation(job, looks, around),
            limit_s=SOURCES_LIMIT_S,
            subject="the source files of the ranks",
        )
    except InspectionError as error:
        bare = build_observation(job, looks, around, with_sources=False)
        return msgspec.structs.replace(bare, problems=[*bare.problems, error.message])


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


def _sources(seen: Sequence[ProcessSamples]) -> dict[str, str]:
    """The text of the files the ranks stand in, by path."""
    found: dict[str, str] = {}
    asked: set[str] = set()
    left_bytes = SOURCES_LIMIT_BYTES
    for each in seen:
        for frame in _users(each):
            if frame.path in asked or left_bytes <= 0:
                continue
            asked.add(frame.path)
            text = procfs.source_text(each.process.pid, frame.path)
            if text is not None and len(text) <= left_bytes:
                found[frame.path] = text
                left_bytes -= len(text)
    return found


def _users(seen: ProcessSamples) -> Iterator[StackFrame]:
    """The user's frames of a rank's main thread, innermost first; outside of any collective those of its other threads
    and of its children too: there may stand what it waits for."""
    last = seen.samples[-1]
    yield from reversed(user_frames(last.stack))
    if last.stack and not collective_of(last.stack)[0]:
        for stack in [*(thread.frames for thread in last.others), *(child.stack for child in seen.children)]:
            yield from reversed(user_frames(stack))
