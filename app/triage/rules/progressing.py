"""Rules for a job that moves: as a whole, at the pace of one rank, or one rank at work while all others wait."""

from collections.abc import Sequence

from .. import phrases
from ..rank_activity.collectives_in_stack import GRADIENTS, collective_of
from ..rank_activity.gil import gil_holder
from ..rank_activity.rank_state import RankState
from ..types import Sample, Verdict
from .context import INIT, JobContext, make_verdict, rank_numbers, waiting_sentence
from .divergence import deciding_condition

OTHERS_WAIT = 0.75  # the share of the other ranks' looks that show them in a collective, where one rank paces them
MAY_SLEEP_ON = 0.5
BUSIER = 2.0  # times as much CPU time as any other rank
LOOKS_THAT_SUFFICE = 3  # without a further sign
AT_WORK_IN_C = "at work in one call into C that keeps Python's lock (the GIL) from its other threads, which ask for it"
JOINING_S = 30.0  # who has not joined by then is late


def ranks_progressing(scene: JobContext) -> Verdict | None:
    """Something moves."""
    if not scene.moving:
        return None
    if scene.waiting and not scene.idle:
        return _some_wait(scene)
    if slow := find_straggler(scene):
        others = [stand for stand in scene.living if stand.rank != slow.rank]
        text = (
            f"The job moves at the pace of rank {slow.rank}: whenever looked at, it was at work at "
            f"{phrases.short_place(slow.row.where)}, "
            f"{phrases.mid_sentence(phrases.ranks_phrase(rank_numbers(others), 'wait'))} for it."
        )
        sure = 0.75 if len(_looks(slow)) >= LOOKS_THAT_SUFFICE else 0.6
        return make_verdict("progressing", text, sure, ["job.straggler"], cause="straggler-rank", culprits=[slow])
    text = "The ranks move." if len(scene.living) > 1 else "The process moves."
    if scene.gone:
        text += f" {phrases.ranks_phrase(rank_numbers(scene.gone), 'have')} ended or not started."
    return make_verdict("progressing", text, 0.9, ["job.progressing"])


def _some_wait(scene: JobContext) -> Verdict:
    """Some did not move between the looks and wait for those that are at work."""
    busy = scene.moving
    if len(busy) == 1 and busy[0].doing and busy[0].doing.kind == "gil":
        return _keeps_gil(scene, busy[0])
    text = (
        f"{phrases.ranks_phrase(rank_numbers(busy), 'are')} at work (last seen at "
        f"{phrases.short_place(busy[0].row.where)}), "
        f"{phrases.mid_sentence(waiting_sentence(scene.waiting))}."
    )
    if len(busy) > 1 or busy[0].collective or len(scene.waiting) + 1 < scene.world_size:
        return make_verdict("progressing", text, 0.7, ["job.progressing"])
    if all(stand.collective == INIT for stand in scene.waiting) and scene.age_s < JOINING_S:
        return make_verdict("starting", text, 0.7)
    looks = len(_looks(busy[0]))
    if looks >= LOOKS_THAT_SUFFICE and not all(map(_stood_all_the_time, scene.waiting)):
        return make_verdict("progressing", text, 0.7, ["job.progressing"])
    if gil_holder(_looks(busy[0])):
        at = phrases.short_place(busy[0].row.where)
        text += f" It had Python's lock (the GIL) at {at} in every look: a long call into C, or a loop there."
    sure = 0.75 if looks >= LOOKS_THAT_SUFFICE else 0.6
    return _paced(scene, busy[0], text, sure, surely=0.85)


def _paced(scene: JobContext, slow: RankState, text: str, confidence: float, surely: float) -> Verdict:
    """All wait for one rank: in each step, or once for what it alone does. ``surely``: where a rank test says so."""
    branch = deciding_condition(scene.waiting, [slow], scene.world_size, scene.sources)
    sure = bool(branch and branch.sure)
    once = not any(scene.sources[frame.path].loops(frame.line) for frame in slow.frames)
    if slow.rank == 0 or (sure and once):
        finding, cause = "job.rank0-alone-at-work", "rank0-slow-work"
    else:
        finding, cause = "job.straggler", "straggler-rank"
    return make_verdict(
        "progressing",
        text,
        surely if sure else confidence,
        [finding],
        cause=cause,
        culprits=[slow],
        branch=branch if sure else None,
        waiting=scene.waiting,
    )


def culprits_sleeping(scene: JobContext) -> Verdict | None:
    """Those that others wait for are in a sleep of the script's own, which ends."""
    idle = scene.idle
    if not idle or not scene.waiting or scene.moving:
        return None
    if not all(stand.doing and stand.doing.kind == "sleep" for stand in idle):
        return None
    who = phrases.ranks_phrase(rank_numbers(idle), "are")
    text = (
        f"{who} in a sleep at {phrases.short_place(idle[0].row.where)}, "
        f"{phrases.mid_sentence(waiting_sentence(scene.waiting))}. "
    )
    text += "It goes on when the sleep is over; look again in a minute: who sleeps there still may never wake."
    if len(idle) > 1:
        return make_verdict("progressing", text, MAY_SLEEP_ON, ["job.progressing"])
    return _paced(scene, idle[0], text, MAY_SLEEP_ON, surely=MAY_SLEEP_ON)


def _keeps_gil(scene: JobContext, busy: RankState) -> Verdict:
    """One is at work in a call that may be long, or may never end: its other threads cannot tell either."""
    text = (
        f"Rank {busy.rank} has been at {phrases.short_place(busy.row.where)} in every look, {AT_WORK_IN_C}. "
        f"{waiting_sentence(scene.waiting)}. A long call ends, an endless loop in C does not: look again in a minute."
    )
    findings = ["job.rank-keeps-gil"]
    return make_verdict("unknown", text, 0.6, findings, cause="python-lock", culprits=[busy], waiting=scene.waiting)


def find_straggler(scene: JobContext) -> RankState | None:
    """The one rank that is outside of collectives in every look while the others are mostly in one."""
    stands = [stand for stand in scene.living if stand.seen]
    outside = [stand for stand in stands if not any(_is_in_collective(look) for look in _looks(stand))]
    if len(stands) < 2 or len(outside) != 1:
        return None
    slow = outside[0]
    others = [look for stand in stands if stand is not slow for look in _looks(stand)]
    if not others or sum(map(_is_in_collective, others)) / len(others) < OTHERS_WAIT:
        return None
    enough = len(_looks(slow)) >= LOOKS_THAT_SUFFICE
    sleeps = slow.doing is not None and slow.doing.kind in ("sleep", "dormant", "loader", "files", "service", "lock")
    busier = _cpu_s(slow) > BUSIER * max((_cpu_s(stand) for stand in stands if stand is not slow), default=0.0)
    return slow if enough or sleeps or busier else None


def _stood_all_the_time(stand: RankState) -> bool:
    looks = _looks(stand)
    return (stand.row.since_s or 0.0) + 0.2 >= looks[-1].at - looks[0].at


def _looks(stand: RankState) -> Sequence[Sample]:
    return [look for look in stand.seen.samples if look.stack] if stand.seen else []


def _cpu_s(stand: RankState) -> float:
    looks = _looks(stand)
    return looks[-1].cpu_s - looks[0].cpu_s if len(looks) > 1 else 0.0


def _is_in_collective(look: Sample) -> bool:
    """Whether a look shows a rank in a collective; a backward pass may compute as well as wait."""
    name, via = collective_of(look.stack)
    return name is not None and (via != GRADIENTS or look.process_state == "S")
