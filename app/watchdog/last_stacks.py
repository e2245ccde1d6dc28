"""The places at which the ranks of a job ended, judged like those of a job that hangs.

If ranks are in different collectives, gloo ends one of them at once, and the others lose the connection to it.
"""

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import UserError
from ..jobs.script_path import path_from
from ..jobs.types import Job, Process
from ..logs.tracebacks import FRAME, HEADER
from ..system import run_directory
from ..system.files import read_regular_file
from ..training_script.frame import StackFrame
from ..triage.rank_activity.frames import user_frames
from ..triage.sampling.worker_server import parse_faulthandler
from ..triage.types import JobReport, Observation, ProcessSamples, Sample
from ..triage.verdict import judge_job
from .ended_ranks import EndedRank

FATAL = "Fatal Python error"  # how faulthandler begins its dump of a signal that ends the process
READ_LIMIT_BYTES = 4_000_000
DIFFERENT = "job.ranks-in-different-collectives"


def report_of_ends(private: Path, ended: Sequence[EndedRank]) -> JobReport | None:
    """Return the report of a job whose ranks were in different collectives when they ended, or None."""
    stacks = {rank.record.rank: (rank, last_stack(private, rank)) for rank in ended if rank.record.rank is not None}
    world_size = max((rank.record.world_size or 0 for rank, _ in stacks.values()), default=0)
    if world_size < 2 or len(stacks) < world_size or not all(stack for _, stack in stacks.values()):
        return None
    seen = [
        ProcessSamples(process=_process(rank), host=socket.gethostname(), samples=_samples(stack))
        for rank, stack in stacks.values()
    ]
    job = Job(
        launcher="torchrun",
        launcher_pid=None,
        launcher_command=[],
        world_size=world_size,
        master="",
        host=socket.gethostname(),
        processes=[each.process for each in seen],
    )
    report = judge_job(Observation(job=job, seen=seen, sources=_sources(stack for _, stack in stacks.values())))
    return report if DIFFERENT in report.verdict.findings else None


def stack_at_signal(private: Path, rank: EndedRank) -> list[StackFrame]:
    """Return the frames in which a signal ended a rank, innermost first; none if its handler could not write them."""
    dumped = _text(private / f"{rank.record.pid}.stacks").rpartition(FATAL)
    frames = parse_faulthandler(dumped[2], rank.record.main_thread)[0] if dumped[1] else []
    return _absolute(frames, rank)


def last_stack(private: Path, rank: EndedRank) -> list[StackFrame]:
    """Return the frames in which a rank ended, innermost first: those of the signal that ended it, or its traceback."""
    record = rank.record
    frames = stack_at_signal(private, rank)
    if not frames:
        copies = "".join(map(_text, run_directory.output_copies(private, record.pid)))
        found = FRAME.finditer(copies.rpartition(HEADER)[2])
        frames = [StackFrame(each["function"] or "", each["file"], int(each["line"])) for each in found][::-1]
    return _absolute(frames, rank)


def _absolute(frames: Iterable[StackFrame], rank: EndedRank) -> list[StackFrame]:
    return [StackFrame(each.function, path_from(rank.record.cwd, each.path), each.line) for each in frames]


def _sources(stacks: Iterable[Sequence[StackFrame]]) -> dict[str, str]:
    paths = {frame.path for stack in stacks for frame in user_frames(stack)}
    return {path: text for path in sorted(paths) if (text := _text(Path(path)))}


def _text(path: Path) -> str:
    try:
        return read_regular_file(path, READ_LIMIT_BYTES, "").decode(errors="replace")
    except UserError:
        return ""


def _process(rank: EndedRank) -> Process:
    record = rank.record
    return Process(
        pid=record.pid,
        rank=record.rank,
        local_rank=None,
        command=record.command,
        cwd=record.cwd,
        python=record.python,
        environ=record.environ,
    )


def _samples(stack: Sequence[StackFrame]) -> list[Sample]:
    """Return two samples between which nothing moved: the rank was there until it ended."""
    return [Sample(at=at, process_state="S", cpu_s=0.0, switches=0, stack=list(stack)) for at in (0.0, 1.0)]
