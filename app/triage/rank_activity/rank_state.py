"""Where each rank stands, from its samples: the user's own frames, the collective it is in, and whether it moved."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...jobs.types import Job
from ...launchers.rank_environment import local_world_size
from ...training_script.frame import StackFrame
from ...training_script.line_queries import ScriptFiles
from ..types import Observation, ProcessSamples, RankRow, Sample
from .collectives_in_stack import GRADIENTS, collective_of
from .frames import function_name, inner_frames, user_frames
from .gil import GilHolder, gil_holder
from .outside_collectives import (
    awaits_user_iterator,
    is_multiprocess_queue,
    relevant_stack,
    wait_outside_collectives,
    waits_for_busy_child,
)
from .progress import STOPPED_OR_GONE, display_state, has_progressed, still_at_one_place, still_for_s
from .starved_queue import starved_queue
from .wait_reasons import CLIENTS, HOLDS_GIL, WAITS_FOR_CHILD, WAITS_FOR_NETWORK, WAITS_FOR_QUEUE, WaitReason

__all__ = ["STOPPED_OR_GONE", "RankState", "collective_of", "rank_states", "user_frames"]

GPU_MARK = re.compile(r"\.(item|cpu|tolist|numpy|synchronize)\(")
GPU_QUEUE = "work queued on the GPU"


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as the verdict sees it. ``frames`` are the user's, outermost first; ``via`` says how a collective that
    the user did not write came about; ``doing`` what it waits for outside of any, where that can be told."""

    row: RankRow
    seen: ProcessSamples | None  # None: no such process was found
    frames: list[StackFrame]
    collective: str | None
    via: str
    moved: bool
    doing: WaitReason | None = None

    @property
    def rank(self) -> int:
        return self.row.rank

    @property
    def waits(self) -> bool:
        """In a collective, and nothing moved."""
        return self.collective is not None and not self.moved and self.row.state in ("waiting", "blocked_io")

    @property
    def leaves(self) -> bool:
        """On its way out of Python, or taking its process group down."""
        return self.collective == "destroy_process_group" or bool(self.doing and self.doing.kind == "exit")

    @property
    def place(self) -> tuple[str | None, str, str | None]:
        """Ranks with equal places stand at the same point of the program."""
        return self.collective, self.via, self.row.where


def rank_states(observed: Observation, sources: ScriptFiles) -> list[RankState]:
    """Every rank of the job, the missing ones too, in order."""
    job = observed.job
    found = [_stand(job, seen, sources) for seen in observed.seen]
    left = [_is_left_over(stand) for stand in found]
    if not all(left):
        found = [_ended(stand) if is_left else stand for stand, is_left in zip(found, left, strict=True)]
    present = {stand.rank for stand in found}
    elsewhere = states_on_other_hosts(observed)
    found += [_absent(job, rank, rank in elsewhere) for rank in range(job.world_size) if rank not in present]
    return sorted(found, key=lambda stand: stand.rank)


def _is_left_over(stand: RankState) -> bool:
    """Whether the process that carries a rank's variables is one that the rank had started itself: it outlived it."""
    if stand.seen is None or stand.seen.process.rank_from != "environ" or stand.collective:
        return False
    stack = stand.seen.samples[-1].stack if stand.seen.samples else []
    return any(
        frame.path.endswith("/multiprocessing/process.py") and function_name(frame) == "_bootstrap" for frame in stack
    )


def _ended(stand: RankState) -> RankState:
    """A rank of which only a process that it had started is left."""
    note = f"it has ended; a process it had started (pid {stand.row.pid}) is left"
    row = msgspec.structs.replace(
        stand.row, state="dead", where=None, function=None, collective=None, since_s=None, note=note
    )
    return RankState(row=row, seen=stand.seen, frames=[], collective=None, via="", moved=False)


def states_on_other_hosts(observed: Observation) -> set[int]:
    """The ranks of hosts that were not looked at, as torchrun's variables place them (those of one host are numbered
    in a row)."""
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


def _stand(job: Job, seen: ProcessSamples, sources: ScriptFiles) -> RankState:
    process, looks = seen.process, seen.samples
    last = looks[-1] if looks else None
    has_moved = has_progressed(looks[-2:])
    shown = display_state(looks, has_moved, process.started_at)
    kept = _kept(looks)
    stack = [*kept.frames, *last.stack] if kept and kept.name and last else relevant_stack(last) if last else []
    frames = _from_breakpoint(stack, user_frames(stack), sources)
    collective, via = _collective(stack, frames, bool(last and last.gpu), sources)
    if via == GRADIENTS and (has_moved or job.world_size == 1):
        collective, via = None, ""  # a backward pass at work computes
    found: WaitReason | None = None
    if last and collective is None:
        found, asks_again = wait_outside_collectives(last, stack, frames, has_moved, sources)
        if has_moved and asks_again and still_at_one_place(looks):
            has_moved, shown = False, "waiting"
    if kept and not (found and found.kind == "exit"):
        found = HOLDS_GIL
        if kept.asleep:
            has_moved, shown = False, "waiting"
    if found == WAITS_FOR_CHILD and any(
        Path(word).name in CLIENTS for child in seen.children for word in child.command[:1]
    ):
        found = WAITS_FOR_NETWORK
    if waits_for_busy_child(seen, found, sources):
        has_moved, shown = True, "running" if shown == "waiting" else shown
    if last and found == WAITS_FOR_QUEUE and frames and not is_multiprocess_queue(stack):
        found = starved_queue(last, frames, sources, seen.output) or found
    if found and found.kind == "lock" and (loop := awaits_user_iterator(frames, sources)):
        found = WaitReason("loader", f"{found.what}, which should give the next item to {loop}")
    inner = frames[-1] if frames else None
    row = RankRow(
        rank=process.rank if process.rank is not None else 0,
        local_rank=process.local_rank,
        pid=process.pid,
        host=seen.host,
        state=shown,
        where=f"{inner.path}:{inner.line}" if inner else None,
        function=inner.function if inner else None,
        collective=collective,
        since_s=None if has_moved else still_for_s(looks),
        since_from="samples",
        note=(last.problem if last else "") or via or (f"waits {found.what}" if found and not has_moved else ""),
    )
    return RankState(row=row, seen=seen, frames=frames, collective=collective, via=via, moved=has_moved, doing=found)


def _kept(looks: Sequence[Sample]) -> GilHolder | None:
    """The thread that keeps Python's lock from others, or from going on at all. A sleep with the lock in hand is no
    work where no GPU is in use (CUDA's own calls sleep too)."""
    kept = gil_holder(looks)
    if kept is None or collective_of(kept.frames)[0] or not user_frames(kept.frames):
        return None
    idles = kept.asleep and not looks[-1].gpu
    counts = "" in kept.asking if kept.name else bool(kept.asking) or idles
    return kept if counts else None


def _collective(
    stack: Sequence[StackFrame], frames: Sequence[StackFrame], gpu: bool, sources: ScriptFiles
) -> tuple[str | None, str]:
    """The collective a stack stands in: by its frames, or by the handle that its line waits for."""
    collective, via = collective_of(stack)
    if collective or not frames or stack[0] != frames[-1]:
        return collective, via
    source, line = sources[frames[-1].path], frames[-1].line
    if awaited := source.awaited(line):
        return awaited, ""
    if gpu and GPU_MARK.search(source.statement(line)):
        return "all_reduce", GPU_QUEUE
    return None, ""


def _from_breakpoint(stack: Sequence[StackFrame], frames: list[StackFrame], sources: ScriptFiles) -> list[StackFrame]:
    """The user's frames, the innermost at the ``breakpoint()`` that has it in Python's debugger."""
    if not frames or not any(frame.path.endswith(("/bdb.py", "/pdb.py")) for frame in inner_frames(stack)):
        return frames
    inner = frames[-1]
    line = sources[inner.path].breakpoint_of(inner.line)
    return [*frames[:-1], msgspec.structs.replace(inner, line=line)] if line else frames


def _absent(job: Job, rank: int, elsewhere: bool) -> RankState:
    row = RankRow(
        rank=rank,
        host="" if elsewhere or job.asked else job.host,
        state="unreadable" if elsewhere and not job.asked else "missing",
        since_from="samples",
        note="not started" if job.asked else "on another host" if elsewhere else "no process of this rank lives here",
    )
    return RankState(row=row, seen=None, frames=[], collective=None, via="", moved=False)
