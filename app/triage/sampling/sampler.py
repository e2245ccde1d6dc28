"""Sample one job: its ranks at least twice, their context once; then judge it."""

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
from ...system.waiting import run_in_thread
from ...training_script.frame import StackFrame
from ..rank_activity.collectives_in_stack import collective_of
from ..rank_activity.frames import user_frames
from ..rules.straggler import SAMPLES_FOR_SHARES
from ..types import JobReport, Observation, ProcessSamples, Sample, Verdict
from ..verdict import judge_job
from . import context, stacks
from .context import SampleContext, sample_context

Progress = Callable[[str], None]
CONFIDENT = 0.7  # verdicts below are checked with another sample
MAY_BE_SLOW = {  # and so are verdicts with these findings
    "job.rank-in-loader",
    "job.rank-waits-for-service",
    "job.rank0-alone-at-work",
    "job.rank-keeps-gil",
}
LONGER_GAPS = 2  # the last sample is taken after this many gaps: all must fit into five seconds
SOURCES_LIMIT_S = 3.0
START_SLACK_S = 1.0  # start times are computed from the age of a process and vary slightly
SOURCES_LIMIT_BYTES = 4_000_000  # of all source files in total


async def sample_job(
    job: Job,
    *,
    logs: Sequence[Path] = (),
    allow: Intrusiveness = "reads",
    gap_s: float = 1.0,
    progress: Progress | None = None,
) -> JobReport:
    """Sample one job twice, and again if the verdict may change with more time.

    ``logs``: files or directories to read in addition to the logs of the job that are found.
    """
    report_progress = progress or (lambda _line: None)
    may_pause = level_permitted("perturbs", allow)
    count = f"{len(job.processes)} process{'es' if len(job.processes) != 1 else ''} of " if job.processes else ""
    report_progress(f"reading {count}{job.launcher}")
    began = time.monotonic()
    samples = [await stacks.sample_stacks(job.processes, may_pause=may_pause)]
    report_progress(f"sampling again after {gap_s:.0f} s")
    around, _ = await asyncio.gather(
        sample_context(job, samples[0], logs=logs, allow=allow), _sleep_until(began + gap_s)
    )
    report = judge_job(await _sample_again(job, samples, around, may_pause))
    if needs_another_sample(report.verdict) and not access_denied(report):
        report_progress(f"sampling again for another {LONGER_GAPS * gap_s:.0f} s")
        more = SAMPLES_FOR_SHARES - len(samples) if report.verdict.state == "progressing" else 1
        for number in range(1, more):
            await _sleep_until(began + gap_s + LONGER_GAPS * gap_s * number / more)
            samples.append(await stacks.sample_stacks(job.processes, may_pause=may_pause))
        await _sleep_until(began + gap_s + LONGER_GAPS * gap_s)
        report = judge_job(await _sample_again(job, samples, around, may_pause))
    return report


def needs_another_sample(verdict: Verdict) -> bool:
    """Return whether another sample may change the verdict: it is uncertain, or a rank may only be slow."""
    slow = verdict.state == "hung" and not MAY_BE_SLOW.isdisjoint(verdict.findings)
    doubtful = verdict.state != "dead" or bool(verdict.culprits)
    return slow or (doubtful and verdict.confidence < CONFIDENT)


def access_denied(report: JobReport) -> str:
    """Return why the kernel denies reading every stack of the job, or "" if any is readable."""
    here = [row for row in report.ranks if row.pid is not None]
    refusals = [row.note for row in here if row.state == "unreadable" and "not permitted" in row.note]
    return refusals[0].removeprefix("stack: ") if here and len(refusals) == len(here) else ""


def build_observation(
    job: Job, samples: Sequence[Mapping[int, Sample]], around: SampleContext | None = None, *, with_sources: bool = True
) -> Observation:
    """Build the observation from samples of a job (pid to sample, oldest first) and their context, with the source
    files in the stacks of the ranks.
    """
    around = around or SampleContext()
    seen = context.process_samples(job, samples, around)
    files = _source_files(seen) if with_sources else {}
    return Observation(
        job=job,
        seen=seen,
        sources={path: file.text for path, file in files.items()},
        changed_sources=_changed(seen, files),
        records=around.records,
        log=around.log,
        deaths=around.deaths,
        ras=around.ras,
        launchers=around.launchers,
        problems=around.problems,
    )


async def _sample_again(
    job: Job, samples: list[dict[int, Sample]], around: SampleContext, may_pause: bool
) -> Observation:
    """Add a sample to ``samples`` and return the observation of all."""
    samples.append(await stacks.sample_stacks(job.processes, may_pause=may_pause))
    try:
        return await run_in_thread(
            lambda: build_observation(job, samples, around),
            limit_s=SOURCES_LIMIT_S,
            subject="the source files of the ranks",
        )
    except InspectionError as error:
        bare = build_observation(job, samples, around, with_sources=False)
        return msgspec.structs.replace(bare, problems=[*bare.problems, error.message])


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


def _source_files(seen: Sequence[ProcessSamples]) -> dict[str, procfs.SourceFile]:
    """Return the source files in the stacks of the ranks, by path."""
    found: dict[str, procfs.SourceFile] = {}
    read: set[str] = set()
    left_bytes = SOURCES_LIMIT_BYTES
    for each in seen:
        for frame in _user_frames(each):
            if frame.path in read or left_bytes <= 0:
                continue
            read.add(frame.path)
            file = procfs.source_file(each.process.pid, frame.path)
            if file is not None and len(file.text) <= left_bytes:
                found[frame.path] = file
                left_bytes -= len(file.text)
    return found


def _changed(seen: Sequence[ProcessSamples], files: Mapping[str, procfs.SourceFile]) -> dict[str, float]:
    """Return the files that were changed after the last of the processes had started, with the time of the change."""
    started_at = max((each.process.started_at for each in seen), default=0.0)
    return {path: file.modified_at for path, file in files.items() if file.modified_at > started_at + START_SLACK_S}


def _user_frames(seen: ProcessSamples) -> Iterator[StackFrame]:
    """Yield the user's frames of a rank's main thread, innermost first.

    Outside collectives also those of its other threads and its children, for which the rank may wait.
    """
    last = seen.samples[-1]
    yield from reversed(user_frames(last.stack))
    if last.stack and not collective_of(last.stack)[0]:
        for stack in [*(thread.frames for thread in last.others), *(child.stack for child in seen.children)]:
            yield from reversed(user_frames(stack))
