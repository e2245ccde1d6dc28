"""Values that only some ranks compute, while the others keep what was there before."""

from ...training_script.model.amounts import NEW_TENSORS, is_certain
from ...training_script.model.keys import BY_RANK, RANKS, Key, is_read, parts
from ...training_script.model.reach import Run, argument

EXCHANGES = {f"torch.distributed.{name}": 0 for name in ("recv", "irecv", "scatter", "recv_object_list")}


def is_made_by_some(run: Run, key: Key) -> bool:
    """Return whether a rank computes a value where another has what the program writes out, and receives nothing."""
    if not key.differs_by & BY_RANK or not is_read(key):
        return False
    seen = {run.keys.specialise(key, rank) for rank in RANKS}
    kept = {each for each in seen if _is_written_out(each)}
    made = seen - kept
    if not kept or not made or not all(is_certain(each) and not each.differs_by & BY_RANK for each in made):
        return False
    received = {given.key for _, fact in run.of(*EXCHANGES) if (given := argument(fact, 0, "tensor"))}
    return received.isdisjoint(part for each in kept for part in parts(each) if not part.is_constant)


def _is_written_out(key: Key) -> bool:
    """Return whether a value is a constant, or a tensor or a list of such."""
    if key.op == "sequence":
        return all(map(_is_written_out, key.args))
    if key.op == "call":
        return key.args[0] in NEW_TENSORS and all(map(_is_written_out, key.args[1:]))
    return key.is_constant or key.op in ("library", "world")
