"""One run of a lab: the job is started for real, and watched until it ends, hangs or is over its limit."""

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from ...knowledge.labs import Lab
from ..errors import UserError
from ..launchers.arguments import launch_request
from ..system.subprocesses import ProcessOutcome
from ..triage.merge_samples import extend_with_earlier_samples
from ..triage.sampling.sampler import sample_job
from ..triage.types import JobReport
from ..triage.watched_job import WatchedJob, follow_job
from ..watchdog.local_job import SAMPLE_GAP_S, LocalJob, started_words
from .lab_checks import failed_check, read_checked_files
from .plot import measured_points
from .workspace import recorded_outputs

START_LIMIT_S = 180.0  # importing torch in every process of a busy machine; the lab's own limit counts from then
PAUSE_S = 1.0  # between samples of ranks that start or hang
SAMPLES_OF_A_HANG = 8
BY_RANK = {"PET_TEE": "3"}  # torchrun: each line of output says which rank printed it
# Labs compute on CPUs: with a GPU, FSDP and NCCL would use it, and two ranks need two of them.
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}
Ending = Literal["ended", "hung", "slow", "over its limit"]


class LabRun(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one run, started by ``launch``.

    ``code``: of an ended job; ``report``: the last sample of one that was not ended; ``files``: the text of those that
    the checks of the lab name.
    """

    ending: Ending
    output: str
    elapsed_s: float
    code: int | None = None
    report: JobReport | None = None
    launch: str = ""
    files: dict[str, str] = {}


def shows_failure(lab: Lab, run: LabRun) -> bool:
    """Return whether a run failed in the way that the lab is about."""
    printed = not lab.shows or re.search(lab.shows, run.output) is not None
    match lab.failure:
        case "hang":
            return run.ending == "hung" and printed
        case "slow":
            return run.ending == "slow" and printed
        case "crash":
            return run.ending == "ended" and run.code != 0 and printed
        case "wrong":
            return run.ending == "ended" and run.code == 0 and printed
        case _:
            return printed


def is_repaired(lab: Lab, run: LabRun) -> bool:
    """Return whether a run ended well, with the numbers of the repaired lab and without the failure."""
    shows = bool(lab.shows) and lab.failure != "hang" and re.search(lab.shows, run.output) is not None
    ended_well = run.ending == "ended" and run.code == 0 and re.search(lab.repaired, run.output) is not None
    return ended_well and not shows and not failed_check(lab, run.output, run.files) and not missing_ranks(lab, run)


def missing_ranks(lab: Lab, run: LabRun) -> int:
    """Return how many ranks fewer a run was started with than the lab is: many failures need several ranks."""
    own, started = (
        launch_request(shlex.split(line), lab.environ).ranks_per_node for line in (lab.launch, run.launch or lab.launch)
    )
    return max(own - started, 0) if own and started else 0


async def run_lab(
    lab: Lab,
    directory: Path,
    python: str,
    *,
    launch: str = "",
    environ: Mapping[str, str] | None = None,
    on_output: Callable[[str], None] | None = None,
    on_report: Callable[[JobReport], None] | None = None,
    should_end: bool = False,
) -> LabRun:
    """Run a lab in the learner's directory, with the command line ``launch`` instead of its own if one is given.

    ``on_report`` gets each sample of the ranks of a job that does not end by itself. A job that ``should_end``
    counts as hung only when its ranks made no progress for the limit of the lab.

    Raises:
        UserError: The interpreter has no torch.
    """
    started = time.monotonic()
    line = launch or lab.launch
    job = LocalJob(
        started_words(line, python),
        directory,
        name="the lab",
        environ=BY_RANK | WITHOUT_GPU | lab.environ | dict(environ or {}),
        lives_at_most_s=START_LIMIT_S + lab.within_s,
        on_output=on_output,
    )
    report: JobReport | None = None
    outcome: ProcessOutcome | None = None
    with recorded_outputs(directory):
        async with job:
            ended = asyncio.ensure_future(job.wait_until_ended())
            # Ranks of a job that ends by itself make no progress either, but only while they end: it is not sampled.
            failing = None
            if lab.failure == "hang" or (lab.failure == "slow" and not should_end):
                failing = asyncio.ensure_future(
                    _failing_report(lab, job, on_report, lab.within_s if should_end else 0.0)
                )
            await asyncio.wait([ended, *filter(None, [failing])], return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                outcome = ended.result()
            elif failing:
                report = failing.result()
            if failing:
                failing.cancel()
    if outcome and "No module named 'torch" in outcome.log:
        raise job.start_error(outcome)
    ending: Ending = "ended"
    if outcome is None:
        ending = "slow" if lab.failure == "slow" else "hung"
    elif outcome.status == "timed_out":
        ending = "over its limit"
    return LabRun(
        ending=ending,
        output="\n".join(job.output),
        elapsed_s=time.monotonic() - started,
        code=outcome.code if outcome and ending == "ended" else None,
        report=report,
        launch=line,
        files=read_checked_files(lab, directory),
    )


async def _failing_report(
    lab: Lab, job: LocalJob, on_report: Callable[[JobReport], None] | None, hung_for_s: float
) -> JobReport:
    """Wait until the job hangs, or shows that it is slow, and return what was sampled of it.

    A job hangs when two samples in a row show it, at least ``hung_for_s`` apart. Samples take CPU time from the job, so
    they are rare while it starts, and where it should end by itself.
    """
    hung_since: float | None = None
    earlier: JobReport | None = None
    watched: WatchedJob | None = None
    between_s = pause_s = SAMPLE_GAP_S if lab.failure == "slow" else max(PAUSE_S, hung_for_s / SAMPLES_OF_A_HANG)
    while True:
        await asyncio.sleep(pause_s)
        pause_s = between_s
        found = await asyncio.to_thread(job.find)
        if found is None:
            continue
        try:
            earlier = extend_with_earlier_samples(earlier, await sample_job(found, gap_s=SAMPLE_GAP_S))
        except UserError:  # it has just ended
            continue
        watched = follow_job(watched, earlier)
        report = watched.report
        if on_report:
            on_report(report)
        if any(row.state == "starting" for row in report.ranks) or len(report.ranks) < found.world_size:
            pause_s = max(between_s, PAUSE_S)
            continue
        if lab.failure == "slow":
            printed = "\n".join(job.output)
            if report.verdict.culprits and re.search(lab.shows, printed) and _has_points(lab, printed):
                return report
        elif report.verdict.state not in ("hung", "dead"):
            hung_since = None
        elif hung_since is None:
            hung_since = time.monotonic()
        elif time.monotonic() - hung_since >= hung_for_s:
            return report


def _has_points(lab: Lab, output: str) -> bool:
    """Return whether a run has printed numbers for the plot of the lab, or the lab has none."""
    return lab.plot is None or bool(measured_points(lab.plot, output))
