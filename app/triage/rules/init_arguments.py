"""The arguments of ``init_process_group`` that the waiting ranks pass: numbers of ranks, their own, addresses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...training_script.launch_values import launch_value
from ...training_script.syntax import call_argument
from .. import phrases
from ..rank_activity.rank_state import RankState
from ..types import Verdict
from .context import INIT, JobContext, hang_verdict

PLACES = {"init_method": 1, "world_size": 3, "rank": 4}
DIFFER = ["job.init-arguments-differ", "job.waiting-at-init"]


class InitArguments(NamedTuple):
    """The arguments of one rank that are known; None for those that it leaves to the environment."""

    rank: int
    world_size: int | None
    own_rank: int | None
    address: str | None


def init_arguments(context: JobContext) -> list[InitArguments]:
    """Return what each rank that waits passes to ``init_process_group``, as far as its script and environment show."""
    environs = {seen.process.rank: seen.process.environ for seen in context.observed.seen}
    return [_arguments_of(context, state, environs.get(state.rank, {})) for state in context.waiting]


def _arguments_of(context: JobContext, state: RankState, environ: Mapping[str, str]) -> InitArguments:
    frame = state.frames[-1] if state.frames else None
    call = context.sources[frame.path].collective_call(frame.line, INIT) if frame else None
    values: dict[str, int | str | None] = {}
    if call is not None:
        scope = context.sources.scopes(state.frames)[-1]
        given = {name: call_argument(call, name, place) for name, place in PLACES.items()}
        values = {name: launch_value(expr, scope, environ) for name, expr in given.items() if expr}
    size, rank, address = values.get("world_size"), values.get("rank"), values.get("init_method")
    return InitArguments(
        state.rank,
        size if isinstance(size, int) and size > 0 else None,
        rank if isinstance(rank, int) and rank >= 0 else None,
        address if isinstance(address, str) and "://" in address and not address.startswith("env://") else None,
    )


def contradicting_arguments(context: JobContext, wait: str, given: Sequence[InitArguments]) -> Verdict | None:
    """Return the verdict on ranks whose own arguments keep them from meeting although all were started, or None."""
    where = phrases.short_place(context.waiting[0].row.where)
    sizes = Counter(each.world_size for each in given if each.world_size)
    if wrong := next((size for size in sizes if size != context.world_size), None):
        text = f"{wait} for {wrong} ranks: world_size is {wrong} at {where}, and the launcher has started "
        text += f"{context.world_size}."
        return hang_verdict("env-contract-broken", [], text, 0.9, DIFFER, waiting=context.waiting)
    ranks = Counter(each.own_rank for each in given if each.own_rank is not None)
    for number in [rank for rank, count in ranks.items() if count > 1][:1]:
        text = f"{wait}: several of them pass rank={number} at {where}, and the others are waited for."
        return hang_verdict("env-contract-broken", [], text, 0.9, DIFFER, waiting=context.waiting)
    addresses = {each.address for each in given if each.address}
    if len(addresses) > 1:
        listed = ", ".join(sorted(addresses))
        text = f"{wait}, each at another address: init_method at {where} is {listed}."
        return hang_verdict("rendezvous-mismatch", [], text, 0.9, DIFFER, waiting=context.waiting)
    return None
