"""What the rules look at: the ranks, sorted by what can be said of them; and how a rule says its verdict."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from ...training_script.line_queries import ScriptFiles
from .. import phrases
from ..rank_activity.rank_state import RankState
from ..types import JobState, Observation, Verdict
from .divergence import Branch

INIT = "init_process_group"
PATIENCE_S = 8.0  # a start-up that is younger may simply not be done
TIED = 0.45  # the most that is sure of a tie
GONE = ("missing", "dead", "zombie")


class JobContext:
    """The ranks of one job. ``age_s`` is that of the youngest process. ``idle``: alive, not moving, in no collective;
    ``leaving``: on their way out of Python, or taking their process group down."""

    def __init__(self, observed: Observation, stands: list[RankState], sources: ScriptFiles) -> None:
        self.observed, self.job, self.sources, self.stands = observed, observed.job, sources, stands
        ages = [
            seen.samples[-1].at - seen.process.started_at
            for seen in observed.seen
            if seen.process.started_at and seen.samples
        ]
        self.age_s = min(ages, default=PATIENCE_S)
        self.gone = [stand for stand in stands if stand.row.state in GONE]
        self.unread = [stand for stand in stands if stand.row.state == "unreadable"]
        self.living = [stand for stand in stands if stand.row.state not in (*GONE, "unreadable")]
        self.moving = [stand for stand in self.living if stand.moved]
        self.leaving = [stand for stand in self.living if not stand.moved and stand.leaves]
        self.waiting = [stand for stand in self.living if stand.waits and not stand.leaves]
        self.idle = [stand for stand in self.living if not stand.moved and not stand.waits and not stand.leaves]

    @property
    def world_size(self) -> int:
        return self.job.world_size


Rule = Callable[[JobContext], Verdict | None]


def rank_numbers(group: Sequence[RankState]) -> list[int]:
    """The ranks of some stands."""
    return [stand.rank for stand in group]


def at_one_place(group: Sequence[RankState]) -> list[RankState]:
    """Those at the place of the first."""
    return [stand for stand in group if stand.place == group[0].place]


def groups_by(group: Sequence[RankState], key: Callable[[RankState], object]) -> list[list[RankState]]:
    """Ranks with the same key together, the largest group first."""
    found: dict[object, list[RankState]] = defaultdict(list)
    for stand in group:
        found[key(stand)].append(stand)
    return sorted(found.values(), key=lambda each: (-len(each), each[0].rank))


def waiting_sentence(group: Sequence[RankState]) -> str:
    """``Ranks 1–3 wait in barrier at train.py:103``."""
    return f"{phrases.ranks_phrase(rank_numbers(group), 'wait')} in {phrases.places_text(group)}"


def waiting_by_place(group: Sequence[RankState]) -> str:
    """``Rank 0 waits in barrier at train.py:103; ranks 1, 2 wait in …``: by place."""
    text = "; ".join(phrases.mid_sentence(waiting_sentence(one)) for one in groups_by(group, lambda stand: stand.place))
    return text[:1].upper() + text[1:]


def confirmed_branch(branch: Branch | None) -> Branch | None:
    """The branch, where it is known to have parted the ranks."""
    return branch if branch and branch.sure else None


def hang_verdict(
    cause: str | None,
    culprits: Sequence[RankState],
    why: str,
    confidence: float,
    findings: Sequence[str],
    branch: Branch | None = None,
    waiting: Sequence[RankState] = (),
) -> Verdict:
    """``where`` and ``collective`` are the first culprit's, or, where there is none to see, those of who waits."""
    return make_verdict(
        "hung", why, confidence, findings, cause=cause, culprits=culprits, branch=branch, waiting=waiting
    )


def make_verdict(
    state: JobState,
    why: str,
    confidence: float,
    findings: Sequence[str] = (),
    *,
    cause: str | None = None,
    culprits: Sequence[RankState] = (),
    branch: Branch | None = None,
    waiting: Sequence[RankState] = (),
) -> Verdict:
    """A verdict in any state."""
    first = next(iter(culprits or waiting), None)
    collectives = [stand.collective for stand in (*culprits, *waiting) if stand.collective]
    return Verdict(
        state=state,
        cause=cause,
        culprits=sorted(rank_numbers(culprits)),
        collective=collectives[0] if collectives else None,
        where=first.row.where if first else None,
        branch=branch.where if branch else None,
        why=why,
        confidence=confidence,
        findings=list(findings),
    )
