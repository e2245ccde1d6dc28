"""Context passed to every rule: ranks grouped by state, plus helpers that build verdicts."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from ...launchers.rank_variables import rank_from_environment
from ...training_script.line_queries import ScriptFiles
from .. import phrases
from ..rank_activity.rank_state import RankState
from ..types import JobState, Observation, Verdict
from .divergence import Branch

INIT = "init_process_group"
STARTUP_S = 8.0  # a younger job may simply not have finished its start-up
TIED = 0.45  # the highest confidence if two sides are equally likely to be the culprits
ABSENT = ("missing", "dead", "zombie")


class JobContext:
    """The ranks of one job, grouped by state.

    ``absent``: missing or dead; ``alive``: all others with a readable stack, which are either ``progressing``,
    ``exiting`` (leaving Python or destroying their process group), ``waiting`` (in a collective) or ``idle`` (without
    progress, in no collective). ``age_s`` is the age of the youngest process.
    """

    def __init__(self, observed: Observation, rank_states: list[RankState], sources: ScriptFiles) -> None:
        self.observed, self.job, self.sources, self.rank_states = observed, observed.job, sources, rank_states
        ages = [
            seen.samples[-1].at - seen.process.started_at
            for seen in observed.seen
            if seen.process.started_at and seen.samples
        ]
        self.age_s = min(ages, default=STARTUP_S)
        self.absent = [state for state in rank_states if state.row.state in ABSENT]
        self.unreadable = [state for state in rank_states if state.row.state == "unreadable"]
        self.alive = [state for state in rank_states if state.row.state not in (*ABSENT, "unreadable")]
        self.progressing = [state for state in self.alive if state.has_progressed]
        blocked = [state for state in self.alive if not state.has_progressed]
        self.exiting = [state for state in blocked if state.is_exiting]
        self.waiting = [state for state in blocked if state.is_waiting and not state.is_exiting]
        self.idle = [state for state in blocked if not state.is_waiting and not state.is_exiting]

    @property
    def world_size(self) -> int:
        return self.job.world_size

    @property
    def is_single_rank(self) -> bool:
        """True if the launcher made the only process of the job its only rank: no other one can be missing."""
        ranks = [rank_from_environment(each.environ) for each in self.job.processes]
        return self.world_size == 1 and any(rank and rank.world_size == 1 and rank.certain for rank in ranks)


Rule = Callable[[JobContext], Verdict | None]


def rank_numbers(states: Sequence[RankState]) -> list[int]:
    """Return the rank numbers of some rank states."""
    return [state.rank for state in states]


def at_one_place(states: Sequence[RankState]) -> list[RankState]:
    """Return those that are at the same place as the first."""
    return [state for state in states if state.place == states[0].place]


def groups_by(states: Sequence[RankState], key: Callable[[RankState], object]) -> list[list[RankState]]:
    """Group ranks by a key, the largest group first."""
    found: dict[object, list[RankState]] = defaultdict(list)
    for state in states:
        found[key(state)].append(state)
    return sorted(found.values(), key=lambda each: (-len(each), each[0].rank))


def waiting_sentence(states: Sequence[RankState]) -> str:
    """Return ``Ranks 1–3 wait in barrier at train.py:103``."""
    return f"{phrases.ranks_phrase(rank_numbers(states), 'wait')} in {phrases.places_text(states)}"


def waiting_by_place(states: Sequence[RankState]) -> str:
    """Return ``Rank 0 waits in barrier at train.py:103; ranks 1, 2 wait in …``, one clause a place."""
    groups = groups_by(states, lambda state: state.place)
    text = "; ".join(phrases.mid_sentence(waiting_sentence(group)) for group in groups)
    return text[:1].upper() + text[1:]


def confirmed_branch(branch: Branch | None) -> Branch | None:
    """Return the branch if it is certain that it separated the ranks."""
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
    """Build a verdict for a hung job.

    ``where`` and ``collective`` are those of the first culprit or, if there is none, of the first waiting rank.
    """
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
    """Build a verdict for a job in any state."""
    first = next(iter(culprits or waiting), None)
    collectives = [each.collective for each in (*culprits, *waiting) if each.collective]
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
