"""DW249: a layer that only some ranks put into a model which all of them train."""

from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.noted_calls import PART_OF_SOME
from ...training_script.model.reach import ALL, Reach, Run, together
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at

SYNCHRONISES = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
PREPARES = (".prepare", ".prepare_model", "deepspeed.initialize")
SHARDS = ("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the assignments of layers that other ranks do not make, before all ranks wrap the model."""
    yield from _synchronised_by_some(script, run)
    stores = list(run.of(f".{PART_OF_SOME}"))
    for reach, fact in stores:
        if fact.owner is None or reach.unsure or _all_make(stores, fact, fact.owner.key):
            continue
        model = _whole(fact.owner.key)
        if any(_wraps(each, reach, run, model) for each in run.of(*DDP_CLASSES, *SHARDS, *PREPARES)):
            (name,) = fact.named
            yield from violation_at(
                script,
                reach,
                f"only some ranks put this layer into the model (`{name}`): the others train the model without it",
                0.85,
                branch=reach.own_conditions[-1].site.line if reach.own_conditions else None,
            )


def _synchronised_by_some(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the conversions to SyncBatchNorm that other ranks do not make, before all ranks wrap the model."""
    converts = list(run.of(SYNCHRONISES))
    of_ranks = 0
    for reach, _ in converts:
        of_ranks |= ALL if reach.unsure else reach.ranks
    for reach, fact in converts if of_ranks != ALL else ():
        wrapped = any(each.by_all and together(reach, each) for each, _ in run.of(*DDP_CLASSES))
        if wrapped and fact.values:
            yield from violation_at(
                script,
                reach,
                "only some ranks make the BatchNorm layers of this model synchronised: in each forward pass they wait "
                "for the others",
                0.85,
                branch=reach.own_conditions[-1].site.line if reach.own_conditions else None,
            )


def _whole(part: Key) -> Key:
    """Return the object of which an attribute, or one of an attribute, is a part."""
    while part.op == "attribute" and isinstance(part.args[0], Key):
        part = part.args[0]
    return part


def _all_make(stores: list[tuple[Reach, Noted]], fact: Noted, owner: Key) -> bool:
    """Return whether the ranks together, each in a branch of its own, assign this attribute."""
    of_ranks = 0
    for reach, other in stores:
        same = other.owner is not None and other.owner.key is owner and other.named.keys() == fact.named.keys()
        of_ranks |= reach.ranks if same else 0
    return of_ranks in (0, ALL)


def _wraps(found: tuple[Reach, Noted], store: Reach, run: Run, model: Key) -> bool:
    """Return whether all ranks wrap a model later in the run in which a layer of it is replaced."""
    reach, fact = found
    given = (value.key for value in (*fact.values, *fact.named.values()))
    later = run.reached.index(reach) > run.reached.index(store)
    return later and reach.by_all and together(store, reach) and any(model in parts(key) for key in given)
