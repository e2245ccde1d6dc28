"""The state of each rank, from its samples: the frames of the user's code, the collective, signs of progress."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...jobs.types import Job
from ...launchers.rank_variables import local_world_size
from ...training_script.frame import StackFrame
from ...training_script.line_queries import ScriptFiles
from ..types import Observation, ProcessSamples, RankRow, Sample
from .collectives_in_stack import GRADIENTS, SHARDED_STEPS, collective_of
from .frames import function_name, inner_frames, user_frames
from .gil import GilHolder, gil_holder
from .outside_collectives import (
    awaits_user_iterator,
    is_multiprocess_queue,
    relevant_stack,
    wait_outside_collectives,
    waits_for_busy_child,
)
from .progress import display_state, has_progressed, still_at_one_place, still_for_s
from .starved_queue import starved_queue
from .wait_reasons import (
    CLIENTS,
    HOLDS_GIL,
    WAITS_FOR_CHILD,
    WAITS_FOR_GPU,
    WAITS_FOR_NETWORK,
    WAITS_FOR_QUEUE,
    WaitReason,
    is_idle,
)

GPU_MARK = re.compile(r"\.(item|cpu|tolist|numpy|synchronize)\(")
GPU_QUEUE = "work queued on the GPU"


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one rank as the rules see it. ``frames`` are the user's, outermost first.

    ``via`` names the feature that issued a collective the user did not write; ``wait_reason`` is what the rank waits
    for outside any collective, if known.
    """

    row: RankRow
    observed: ProcessSamples | None  # None: no process of this rank was found
    frames: list[StackFrame]
    collective: str | None
    via: str
    has_progressed: bool
    wait_reason: WaitReason | None = None

    @property
    def rank(self) -> int:
        return self.row.rank

    @property
    def is_waiting(self) -> bool:
        """In a collective, without progress."""
        return self.collective is not None and not self.has_progressed and self.row.state in ("waiting", "blocked_io")

    @property
    def is_exiting(self) -> bool:
        """Leaving Python, or destroying its process group."""
        return self.collective == "destroy_process_group" or bool(self.wait_reason and self.wait_reason.kind == "exit")

    @property
    def is_in_sharded_step(self) -> bool:
        """In a collective of FSDP's own forward or backward pass."""
        return self.via in SHARDED_STEPS

    @property
    def place(self) -> tuple[str | None, str, str | None]:
        """Equal for ranks at the same point of the program."""
        return self.collective, self.via, self.row.where


def rank_states(observed: Observation, sources: ScriptFiles) -> list[RankState]:
    """Return the state of every rank of the job, including missing ones, in order."""
    job = observed.job
    found = [_rank_state(job, seen, sources) for seen in observed.seen]
    leftover = [_is_leftover_child(state) for state in found]
    if not all(leftover):
        found = [
            _dead_rank_state(state) if is_leftover else state
            for state, is_leftover in zip(found, leftover, strict=True)
        ]
    found = _moved_by_output(found)
    present = {state.rank for state in found}
    elsewhere = ranks_on_uninspected_hosts(observed)
    found += [_absent_rank_state(job, rank, rank in elsewhere) for rank in range(job.world_size) if rank not in present]
    return sorted(found, key=lambda state: state.rank)


def _moved_by_output(states: list[RankState]) -> list[RankState]:
    """Return the states, with progress for ranks that wait for the GPU at a place where one of them prints.

    Such a wait is the same call in each sample if it takes most of a step. A rank whose GPU never finishes prints
    nothing meanwhile, and neither do its peers.
    """
    places = {state.place for state in states if _waits_for_gpu(state) and _prints(state)}
    moved = [_waits_for_gpu(state) and state.place in places for state in states]
    return [
        msgspec.structs.replace(
            state, has_progressed=True, row=msgspec.structs.replace(state.row, state="running", since_s=None)
        )
        if has_moved
        else state
        for state, has_moved in zip(states, moved, strict=True)
    ]


def _waits_for_gpu(state: RankState) -> bool:
    return not state.has_progressed and (state.via == GPU_QUEUE or state.wait_reason == WAITS_FOR_GPU)


def _prints(state: RankState) -> bool:
    """Return whether the process wrote something between its last samples, with no other Python thread at work."""
    samples = state.observed.samples[-2:] if state.observed else []
    if len(samples) < 2 or samples[-1].written_bytes == samples[0].written_bytes:
        return False
    return all(is_idle(thread.frames) for sample in samples for thread in sample.others)


def _is_leftover_child(state: RankState) -> bool:
    """Return whether the process with a rank's variables is a child of that rank which has outlived it."""
    if state.observed is None or state.observed.process.rank_from != "environ" or state.collective:
        return False
    stack = state.observed.samples[-1].stack if state.observed.samples else []
    return any(
        frame.path.endswith("/multiprocessing/process.py") and function_name(frame) == "_bootstrap" for frame in stack
    )


def _dead_rank_state(state: RankState) -> RankState:
    """Return the state of a dead rank of which only a child process is left."""
    note = f"it has ended; a process it had started (pid {state.row.pid}) is left"
    row = msgspec.structs.replace(
        state.row, state="dead", where=None, function=None, collective=None, since_s=None, note=note
    )
    return RankState(row=row, observed=state.observed, frames=[], collective=None, via="", has_progressed=False)


def ranks_on_uninspected_hosts(observed: Observation) -> set[int]:
    """Return the ranks of hosts that were not inspected, according to torchrun's variables.

    The ranks of one host are numbered consecutively.
    """
    job = observed.job
    everybody, here = set(range(job.world_size)), set[int]()
    for process in (seen.process for seen in observed.seen):
        on_node, rank, local = local_world_size(process.environ), process.rank, process.local_rank
        if on_node is not None and rank is not None and local is not None:
            here |= set(range(rank - local, rank - local + on_node))
    if here:
        return everybody - here
    if job.master and not re.match(r"(localhost|127\.|::1)", job.master):
        return everybody - {seen.process.rank for seen in observed.seen if seen.process.rank is not None}
    return set()


def _rank_state(job: Job, observed: ProcessSamples, sources: ScriptFiles) -> RankState:
    process, samples = observed.process, observed.samples
    last = samples[-1] if samples else None
    progressed = has_progressed(samples[-2:])
    shown = display_state(samples, progressed, process.started_at)
    holder = _blocking_gil_holder(samples)
    stack = relevant_stack(last) if last else []
    if holder and holder.name and last:
        stack = [*holder.frames, *last.stack]
    frames = _frames_at_breakpoint(stack, user_frames(stack), sources)
    collective, via = _collective(stack, frames, bool(last and last.gpu), sources)
    if via == GRADIENTS and (progressed or job.world_size == 1):
        collective, via = None, ""  # a backward pass that makes progress computes
    found: WaitReason | None = None
    if via == GPU_QUEUE and job.world_size == 1:  # there is no peer that its work could wait for
        collective, via, found = None, "", WAITS_FOR_GPU
    elif last and collective is None:
        found, polls = wait_outside_collectives(last, stack, frames, progressed, sources)
        if progressed and polls and still_at_one_place(samples):
            progressed, shown = False, "waiting"
    if holder and not (found and found.kind == "exit"):
        found = HOLDS_GIL
        if holder.asleep:
            progressed, shown = False, "waiting"
    if found == WAITS_FOR_CHILD and any(
        Path(word).name in CLIENTS for child in observed.children for word in child.command[:1]
    ):
        found = WAITS_FOR_NETWORK
    if waits_for_busy_child(observed, found, sources):
        progressed, shown = True, "running" if shown == "waiting" else shown
    if last and found == WAITS_FOR_QUEUE and frames and not is_multiprocess_queue(stack):
        found = starved_queue(last, frames, sources, observed.output) or found
    if found and found.kind == "lock" and (loop := awaits_user_iterator(frames, sources)):
        found = WaitReason("loader", f"{found.what}, which should give the next item to {loop}")
    inner = frames[-1] if frames else None
    row = RankRow(
        rank=process.rank if process.rank is not None else 0,
        local_rank=process.local_rank,
        pid=process.pid,
        host=observed.host,
        state=shown,
        where=f"{inner.path}:{inner.line}" if inner else None,
        function=inner.function if inner else None,
        collective=collective,
        since_s=None if progressed else still_for_s(samples),
        since_from="samples",
        note=(last.problem if last else "") or via or (f"waits {found.what}" if found and not progressed else ""),
    )
    return RankState(
        row=row,
        observed=observed,
        frames=frames,
        collective=collective,
        via=via,
        has_progressed=progressed,
        wait_reason=found,
    )


def _blocking_gil_holder(samples: Sequence[Sample]) -> GilHolder | None:
    """Return the thread that keeps the GIL from other threads, or sleeps with it.

    To sleep with the GIL is a fault only if no GPU is in use: CUDA's own calls sleep too.
    """
    holder = gil_holder(samples)
    if holder is None or collective_of(holder.frames)[0] or not user_frames(holder.frames):
        return None
    if holder.name:  # not the main thread: it must keep the main thread waiting
        blocks = "" in holder.waiting_threads
    else:
        blocks = bool(holder.waiting_threads) or (holder.asleep and not samples[-1].gpu)
    return holder if blocks else None


def _collective(
    stack: Sequence[StackFrame], frames: Sequence[StackFrame], gpu: bool, sources: ScriptFiles
) -> tuple[str | None, str]:
    """Return the collective a stack is in, from its frames or from the handle that its source line waits for."""
    collective, via = collective_of(stack)
    called = [frame for frame in stack if not _is_synchronize(frame)]
    if collective or not frames or called[:1] != frames[-1:]:
        return collective, via
    source, line = sources[frames[-1].path], frames[-1].line
    if awaited := source.awaited(line):
        return awaited, ""
    if gpu and GPU_MARK.search(source.statement(line)):
        return "all_reduce", GPU_QUEUE
    return None, ""


def _is_synchronize(frame: StackFrame) -> bool:
    """Return whether a frame is torch's own of ``torch.cuda.synchronize()``, or of an event's or a stream's."""
    return "/torch/cuda/" in frame.path and function_name(frame) == "synchronize"


def _frames_at_breakpoint(
    stack: Sequence[StackFrame], frames: list[StackFrame], sources: ScriptFiles
) -> list[StackFrame]:
    """Return the user's frames, with the innermost moved to the ``breakpoint()`` line if it is in Python's debugger."""
    if not frames or not any(frame.path.endswith(("/bdb.py", "/pdb.py")) for frame in inner_frames(stack)):
        return frames
    inner = frames[-1]
    line = sources[inner.path].breakpoint_of(inner.line)
    return [*frames[:-1], msgspec.structs.replace(inner, line=line)] if line else frames


def _absent_rank_state(job: Job, rank: int, elsewhere: bool) -> RankState:
    row = RankRow(
        rank=rank,
        host="" if elsewhere or job.asked else job.host,
        state="unreadable" if elsewhere and not job.asked else "missing",
        since_from="samples",
        note="not started" if job.asked else "on another host" if elsewhere else "no process of this rank was found",
    )
    return RankState(row=row, observed=None, frames=[], collective=None, via="", has_progressed=False)
