"""The ranks that read the data of a sampler."""

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run


def is_read_by_others(run: Run, sampler: Key, ranks: int) -> bool:
    """Return whether ranks apart from these, as bits, run a loop over a loader of this sampler."""
    holders = {sampler}
    for reach in run.reached:
        if isinstance(reach.fact, Noted) and reach.fact.result.key not in holders:
            given = (value.key for value in (*reach.fact.values, *reach.fact.named.values()))
            if any(not holders.isdisjoint(parts(key)) for key in given):
                holders.add(reach.fact.result.key)
        if reach.ranks & ~ranks and any(not holders.isdisjoint(parts(loop.amount)) for loop in reach.loops):
            return True
    return False
