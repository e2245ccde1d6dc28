"""Rules for ranks that are no more, stopped, unreadable, or on their way out."""

from collections.abc import Sequence

from .. import phrases
from ..rank_activity.rank_state import RankState
from ..types import ProcessDeath, Verdict
from .context import INIT, JobContext, at_one_place, hang_verdict, make_verdict, rank_numbers, waiting_sentence
from .divergence import Branch, deciding_condition, early_exits

SEEN_TO_DIE = 0.95
GONE_ONLY = 0.75  # it may have ended of its own accord
DONE_BEFORE = 0.7


def all_dead(scene: JobContext) -> Verdict | None:
    """No rank lives."""
    if scene.living or scene.unread or not scene.observed.seen:
        return None
    deaths = sorted(scene.observed.deaths, key=lambda death: (death.at is None, death.at or 0.0))
    text = "No rank of this job lives any more."
    if deaths:
        text += f" The first that is known to have ended: {_told(deaths[0])}."
    return make_verdict("dead", text, 0.95, ["job.rank-dead", *_findings(deaths)])


def ranks_stopped(scene: JobContext) -> Verdict | None:
    """A signal or a debugger holds ranks."""
    held = [stand for stand in scene.living if stand.row.state == "stopped"]
    if not held:
        return None
    who, where = phrases.ranks_phrase(rank_numbers(held), "are stopped"), phrases.short_place(held[0].row.where)
    text = f"{who} by a signal or a debugger at {where}."
    if scene.waiting:
        text += f" {waiting_sentence(scene.waiting)}."
    return hang_verdict("rank-paused", held, text, 0.95, ["job.rank-stopped"], waiting=scene.waiting)


def stacks_unreadable(scene: JobContext) -> Verdict | None:
    """No stack could be had."""
    if scene.living or not scene.unread:
        return None
    why = scene.unread[0].row.note.removeprefix("stack: ")
    return make_verdict("unknown", f"No rank's stack could be read: {why}.", 0.1)


def stuck_in_shutdown(scene: JobContext) -> Verdict | None:
    """Ranks that do not get out of Python, or of their process group, while the others are done."""
    if not scene.leaving or scene.moving:
        return None
    others = [stand for stand in scene.stands if stand not in scene.leaving]
    if scene.waiting:
        return _left_the_others(scene)
    text = f"{phrases.ranks_phrase(rank_numbers(scene.leaving), 'do')} not end: {_way_out(scene.leaving[0])}."
    if others:
        text += (
            f" {phrases.ranks_phrase(rank_numbers(others), 'have')} ended."
            if all(s in scene.gone for s in others)
            else ""
        )
    confidence = 0.85 if scene.gone and not scene.idle else 0.6
    return hang_verdict("exit-hang", scene.leaving, text, confidence, ["job.rank-leaving"])


def _left_the_others(scene: JobContext) -> Verdict:
    """Some are on their way out while others still wait for them in a collective."""
    branch = deciding_condition(scene.waiting, scene.leaving, scene.world_size, scene.sources)
    who = phrases.ranks_phrase(rank_numbers(scene.leaving), "are")
    text = f"{who} on the way out: {_way_out(scene.leaving[0])}. {waiting_sentence(scene.waiting)}."
    findings = ["job.rank-leaving"]
    if branch and branch.sure and branch.how != "raise":
        waits_alone = branch.taken_by == rank_numbers(scene.waiting) and len(scene.waiting) < len(scene.leaving)
        culprits = scene.waiting if waits_alone else scene.leaving
        findings = ["job.culprit-line-under-rank-test"]
        return hang_verdict("rank-conditional-collective", culprits, text, 0.9, findings, branch, scene.waiting)
    if (branch and branch.how == "raise") or _failed(scene.leaving):
        text = f"{who} on the way out after an error. {waiting_sentence(scene.waiting)}."
        return hang_verdict(
            "rank-died-survivors-wait", scene.leaving, text, 0.85, ["job.rank-dead"], branch, scene.waiting
        )
    in_loop = any(scene.sources[frame.path].loops(frame.line) for frame in scene.waiting[0].frames)
    if in_loop and len(scene.leaving) != len(scene.waiting):
        fewer = min(scene.leaving, scene.waiting, key=len)
        return hang_verdict("uneven-inputs", fewer, text, 0.6, ["job.loop-ended-early"], waiting=scene.waiting)
    return hang_verdict("exit-hang", scene.leaving, text, 0.55, findings, waiting=scene.waiting)


def _failed(stands: Sequence[RankState]) -> bool:
    """Whether the last words of these ranks are a traceback."""
    return any("Traceback (most recent call last)" in line for s in stands if s.seen for line in s.seen.output)


def _way_out(stand: RankState) -> str:
    what = f"it waits {stand.doing.what}" if stand.doing else f"it waits in {phrases.operation_text(stand)}"
    return f"{what}, at {phrases.short_place(stand.row.where)}" if stand.row.where else what


def some_dead(scene: JobContext) -> Verdict | None:
    """Some ranks have ended while others wait for them."""
    waiting = scene.waiting or scene.idle
    if not scene.gone or not waiting or scene.moving or all(stand.collective == INIT for stand in waiting):
        return None
    deaths = _deaths(scene)
    if not scene.waiting and not deaths:
        return None
    text = f"{phrases.ranks_phrase(rank_numbers(scene.gone), 'have')} ended"
    text += f" ({_told(deaths[0])}). " if deaths else ". "
    if scene.waiting:
        text += f"{waiting_sentence(scene.waiting)} and will wait for ever."
    else:
        first = scene.idle[0]
        text += (
            f"{phrases.ranks_phrase(rank_numbers(at_one_place(scene.idle)), 'stand')} still at "
            f"{phrases.short_place(first.row.where)}"
        )
        text += (
            f" and wait{'s' if len(at_one_place(scene.idle)) == 1 else ''} {first.doing.what}." if first.doing else "."
        )
    branch = None
    if scene.waiting and not deaths:
        branch = deciding_condition(scene.waiting, scene.gone, scene.world_size, scene.sources)
    if branch and branch.sure:
        if branch.how != "raise":
            findings = ["job.culprit-line-under-rank-test"]
            return hang_verdict("rank-conditional-collective", scene.gone, text, 0.8, findings, branch, scene.waiting)
    else:
        branch = None
    if not deaths and not branch and (verdict := _done_before(scene)):
        return verdict
    findings = ["job.rank-dead", *_findings(deaths)]
    sure = SEEN_TO_DIE if deaths else GONE_ONLY
    return hang_verdict("rank-died-survivors-wait", scene.gone, text, sure, findings, branch, scene.waiting)


def _done_before(scene: JobContext) -> Verdict | None:
    """Ranks that ended without an error, their data done before that of the others.

    torchrun ends every rank of its node once one fails (torch 2.13, distributed/elastic/multiprocessing/api.py,
    ``SubprocessContext._poll``): where others live, those it has collected ended with 0.
    """
    job = scene.job
    collected = all(stand.row.pid is None and stand.row.state == "missing" for stand in scene.gone)
    if job.launcher != "torchrun" or job.launcher_pid is None or not collected or not scene.waiting:
        return None
    inside = scene.waiting[0]
    ways = early_exits(inside, scene.sources)
    in_loop = any(scene.sources[frame.path].loops(frame.line) for frame in inside.frames)
    if not ways and not in_loop:
        return None
    text = (
        f"{phrases.ranks_phrase(rank_numbers(scene.gone), 'have')} ended, without an error: torchrun "
        "would have ended all. "
        f"{waiting_sentence(scene.waiting)} and will wait for ever."
    )
    branch = Branch(ways[0], rank_numbers(scene.gone), False) if len(ways) == 1 and not in_loop else None
    findings = ["job.loop-ended-early"]
    return hang_verdict("uneven-inputs", scene.gone, text, DONE_BEFORE, findings, branch, scene.waiting)


def _deaths(scene: JobContext) -> list[ProcessDeath]:
    """What is known of the ends of the ranks that are gone, the first first."""
    gone, pids = set(rank_numbers(scene.gone)), {stand.row.pid for stand in scene.gone} - {None}
    known = [death for death in scene.observed.deaths if death.rank in gone or death.pid in pids]
    if not known:
        known = [death for death in scene.observed.deaths if death.rank is None and death.how == "oom_killer"]
    return sorted(known, key=lambda death: (death.at is None, death.at or 0.0))


def _told(death: ProcessDeath) -> str:
    how = {
        "oom_killer": "the kernel killed it for want of memory",
        "signal": "killed by a signal",
        "exit": "by an error",
    }
    who = f"rank {death.rank}" if death.rank is not None else f"pid {death.pid}"
    return f"{who}: {how[death.how]}, says {death.where}: {death.what[:160]}"


def _findings(deaths: Sequence[ProcessDeath]) -> list[str]:
    return ["job.killed-for-memory"] if any(death.how == "oom_killer" for death in deaths) else []
