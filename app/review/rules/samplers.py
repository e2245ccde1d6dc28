"""DW203, DW205 and DW232: DistributedSamplers without an epoch, with one of each rank, or for other ranks."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile

from ...training_script.model.function_steps import Noted, Rounds
from ...training_script.model.keys import BY_RANK, UNTIL_KNOWN, Key, parts
from ...training_script.model.library_calls import BACKWARD
from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import Reach, Run, alternatives, argument
from ...training_script.model.values import Instance, Value
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import call_argument
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..epoch_loops import EpochLoop
from ..patches.call_arguments import sample_own_part
from ..patches.insert_set_epoch import FIX as SET_EPOCH
from ..patches.insert_set_epoch import NO_SAMPLER, insert_set_epoch
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node
from . import missing_set_epoch, replicas

CYCLES = re.compile(r"\bcycle\(")
SHARDS = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
PREPARES = (".prepare", ".prepare_data_loader", ".setup_dataloaders")
OTHER_RANKS = {
    "local": "the local rank is passed as the rank: each node takes the same parts",
    "node": "the rank of the node is passed as the rank: all ranks of a node take the same part",
}


def check_seed(script: Script, run: Run) -> Iterator[Violation]:
    """DW205: yield the samplers that shuffle by a seed or an epoch of each rank."""
    yield from replicas.check_sampler_seed(script, run)
    for reach, fact in run.of(".set_epoch"):
        epoch = argument(fact, 0, "epoch")
        if epoch and epoch.key.differs_by & BY_RANK and reach.several and _is_sampler(fact, run):
            yield from violation_at(
                script,
                reach,
                "each rank shuffles by an epoch of its own: the parts of the ranks overlap, some samples are in none",
                0.9,
            )


def check_ranks(script: Script, run: Run) -> Iterator[Violation]:
    """DW232: yield the samplers that give each rank the part of another, or all the same."""
    if any(reach.started for reach in run.reached):
        return
    for reach, fact in run.of(*SAMPLER_CLASSES):
        rank, count = argument(fact, 2, "rank"), argument(fact, 1, "num_replicas")
        if not (reach.several and run.distributed):
            continue
        problem = ""
        if rank and count and _is_zero(rank.key) and count.key is run.keys.constant(1):
            continue  # all of the data on each rank, on purpose
        if rank and rank.key.is_constant and type(rank.key.value) is int:
            problem = f"every rank takes part {rank.key.value} of the data"
        elif count and count.key.is_constant and count.key.value == 1:
            problem = "every rank takes all of the data"
        elif rank and rank.key.op == "rank" and rank.key.args[1] and rank.key.args[0] in OTHER_RANKS:
            problem = OTHER_RANKS[rank.key.args[0]]
        elif count and (count.key.op == "devices" or (count.key.op == "world" and count.key.args[0] == "local")):
            problem = "the number of GPUs of a node is passed as the number of ranks: each node takes the same parts"
        elif count and (number := _written_number(run, count.key)):
            problem = f"the data are shared out among {number} ranks, whatever number of them is started"
        elif _is_of_dimension(script, run, fact):
            problem = "the ranks of one dimension of the mesh take the same part, and FSDP trains over all dimensions"
        if problem:
            yield from violation_at(script, reach, problem, 0.85)


def _written_number(run: Run, count: Key) -> int:
    """Return the number of ranks that a program has in its text, 0 if it makes a group of as many, or has none."""
    if not count.is_constant or type(count.value) is not int or count.value < 2:
        return 0
    made = [argument(fact, 3, "world_size") for _, fact in run.of(INIT)]
    return count.value if made and all(each is None or each.key.op == "world" for each in made) else 0


def _is_of_dimension(script: Script, run: Run, sampler: Noted) -> bool:
    """Return whether a sampler counts the ranks of one dimension of a mesh of several that FSDP is given as a whole."""
    meshes = {given.key for _, fact in run.of(*SHARDS) if (given := fact.named.get("mesh")) and given.key.op == "mesh"}
    given = [call_argument(sampler.node, name, place) for place, name in ((1, "num_replicas"), (2, "rank"))]
    for each in (made for expr in given if expr is not None for made in (expr, *script.names.origins(expr))):
        match each:
            case ast.Call(func=ast.Attribute(value=ast.Subscript(value=mesh), attr="size" | "get_local_rank")):
                key = script.evaluated.value(mesh)
                if key in meshes and key is not None and key.args[0] > 1:
                    return True
            case _:
                pass
    return False


def check_parts(script: Script, run: Run) -> Iterator[Violation]:
    """DW241: yield the samplers that give each rank a part of what is the rank's part of the data already."""
    yield from _prepared_parts(script, run)
    for reach, fact in run.of(*SAMPLER_CLASSES):
        data, rank = argument(fact, 0, "dataset"), argument(fact, 2, "rank")
        of_all = rank is None or (rank.key.op == "rank" and rank.key.args[0] == "global")
        if data and of_all and reach.several and _is_part(data):
            yield from violation_at(
                script,
                reach,
                "the dataset has only this rank's part of the data, and the sampler takes a part of that: the rest is "
                "never read",
                0.85,
                patch=partial(sample_own_part, script, fact.node) if script.is_here(reach) else None,
            )


def _prepared_parts(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loaders of the rank's part of the data that a library divides among the ranks once more."""
    loaders = {fact.result.key: fact for _, fact in run.of(*LOADER_CLASSES)}
    samplers = {fact.result.key for at, fact in run.of(*SAMPLER_CLASSES) if at.several and not _is_of_one(fact, run)}
    for reach, fact in run.of(*PREPARES):
        whole = fact.named.get("use_distributed_sampler")
        for value in fact.values if not (whole and whole.key is run.keys.false) else ():
            loader = loaders.get(value.key)
            data = argument(loader, 0, "dataset") if loader else None
            # Fabric leaves a DistributedSampler as it is, Accelerate does not.
            sampler = argument(loader, 3, "sampler") if loader and fact.name in PREPARES[:2] else None
            what = "dataset" if data and _is_part(data) else "sampler" if sampler and sampler.key in samplers else ""
            if loader and what and reach.several:
                name = fact.name.removeprefix(".")
                yield from violation_at(
                    script,
                    reach,
                    f"the {what} has only this rank's part of the data, and {name} divides the batches of its loader "
                    f"(line {loader.site.line}) among the ranks once more: the rest is never read",
                    0.85,
                    related=[RelatedPlace(path=loader.site.path, line=loader.site.line, message="the loader")],
                )


def _is_of_one(sampler: Noted, run: Run) -> bool:
    """Return whether a sampler gives each rank all of the data."""
    count = argument(sampler, 1, "num_replicas")
    return count is not None and count.key is run.keys.constant(1)


def _is_part(data: Value) -> bool:
    """Return whether the elements of a dataset are those of one rank."""
    if not isinstance(data.obj, Instance):
        return _has_slice_of_rank(data.key)
    cls = data.obj.cls
    length = cls.find("__len__")
    names = {node.attr for node in ast.walk(length[1]) if isinstance(node, ast.Attribute)} if length else set[str]()
    return any((held := cls.attribute(name)) is not None and _has_slice_of_rank(held.key) for name in names)


def _is_number_of_ranks(number: Key) -> bool:
    of_library = number.op == "attribute" and number.args[1] == "num_processes"  # of an Accelerator
    return of_library or (number.op == "world" and number.args[0] == "global")


def _has_slice_of_rank(key: Key) -> bool:
    """Return whether a value has every n-th element from the rank on, where n is the number of ranks."""
    for part in parts(key):
        if part.op == "slice" or (part.op == "range" and len(part.args) == 3):
            first, _, step = part.args
            if first.op == "rank" and first.args[0] == "global" and _is_number_of_ranks(step):
                return True
    return False


def check_epoch(script: Script, run: Run) -> Iterator[Violation]:
    """DW203: yield the samplers of a training loop of several epochs that always have the same epoch."""
    made = [(reach, fact) for reach, fact in run.of(*SAMPLER_CLASSES) if reach.several and _shuffles(fact, run)]
    yield from _repeated(script, run, {fact.result.key for _, fact in made})
    in_order = _samplers_in_order(run)
    calls = [(each, fact) for each, fact in run.of(".set_epoch") if each.loops and _changes(fact)]
    changed = [each for each, fact in calls if not in_order(fact)]
    if not made or not run.distributed or changed:
        return
    own = script.source.text.count("set_epoch") - sum(1 for _ in run.of(".set_epoch"))
    if own > 0:
        return  # where it is called for something that is not known
    known: set[int] | None = None
    prepared = {value.key for _, fact in run.of(*PREPARES) for value in fact.values}  # a library sets their epochs
    for reach, fact in made:
        loaders = {
            loader.result.key
            for _, loader in run.of(*LOADER_CLASSES)
            if (given := argument(loader, 3, "sampler")) and fact.result.key in alternatives(given.key)
        } - prepared
        loops = [(each, found) for each in run.reached if (found := _loops_of_training(each, loaders))]
        trained = [each for each, _ in loops]
        if trained and _is_nearest(reach, [other for other, each in made if each.site == fact.site], trained):
            known = known if known is not None else {found.line for found in missing_set_epoch.check(script)}
            site = script.place(reach)
            if calls:
                line = reach.fact.site.line
                yield from violation_at(
                    script,
                    calls[0][0],
                    "this is the epoch of a sampler that does not shuffle; that of the one which does "
                    f"(line {line}) is never set: every epoch has the same order",
                    0.85,
                    related=[RelatedPlace(path=reach.fact.site.path, line=line, message="this one shuffles")],
                )
            elif site and site.line not in known:
                yield from violation_at(
                    script,
                    reach,
                    "the epoch of this sampler is not set in the loop over epochs: every epoch has the same order",
                    0.8,
                    branch=loops[0][1][0].site.line if loops[0][1][0].site.path == script.source.path else None,
                    patch=partial(_set_epoch, script, fact, loops[0][1]) if script.is_here(reach) else None,
                )


def _samplers_in_order(run: Run) -> Callable[[Noted], bool]:
    """Return what says whether the sampler of a call is one that does not shuffle, whatever epoch it has.

    A call that makes several samplers or loaders makes all of them so.
    """
    orders = [(fact.result.key, argument(fact, 3, "shuffle")) for _, fact in run.of(*SAMPLER_CLASSES)]
    others = {key for key, shuffle in orders if shuffle is None or shuffle.key is not run.keys.false}
    fixed = {key for key, _ in orders} - others
    given = [(fact.result.key, argument(fact, 3, "sampler")) for _, fact in run.of(*LOADER_CLASSES)]
    loaders = {key for key, _ in given} - {key for key, sampler in given if not sampler or sampler.key not in fixed}

    def is_in_order(call: Noted) -> bool:
        owner = call.owner.key if call.owner else None
        of_loader = owner is not None and owner.op == "attribute" and owner.args[1] == "sampler"
        return owner in fixed or (of_loader and owner is not None and owner.args[0] in loaders)

    return is_in_order


def _repeated(script: Script, run: Run, shuffling: set[Key]) -> Iterator[Violation]:
    """Yield the loaders that ``itertools.cycle`` goes through: it keeps the batches of the first epoch."""
    if not shuffling or not run.distributed or not script.mentions(CYCLES, "cycle("):
        return
    loaders = {
        loader.result.key
        for _, loader in run.of(*LOADER_CLASSES)
        if (given := argument(loader, 3, "sampler")) and given.key in shuffling
    }
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Call) and script.names.qualified(node.func) == "itertools.cycle" and node.args:
            key = script.evaluated.value(node.args[0])
            if key is not None and key in loaders:
                yield violation_at_node(
                    node,
                    "cycle keeps the batches of the first epoch and gives them again: whatever epoch the "
                    "sampler has, every epoch has the same order",
                    0.8,
                )


def _is_nearest(reach: Reach, made: list[Reach], trained: list[Reach]) -> bool:
    """Return whether no other call by which a sampler is made shares more calls with the training."""

    def near(each: Reach) -> int:
        ways = (zip(each.calls, at.calls, strict=False) for at in trained)
        return max(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], way)) for way in ways)

    return near(reach) == max(map(near, made))


def _set_epoch(script: Script, sampler: Noted, trains: tuple[Rounds, Rounds]) -> Patch:
    """Return the patch for the loop over epochs around the one that trains, if both are in this script."""
    sites = [each.site for each in trains if each.site.path == script.source.path]
    match [node_at(script.source.tree, site.line, site.column, ast.For, ast.While) for site in sites]:
        case [ast.For() | ast.While() as epochs, ast.For() as loop] if loop in ast.walk(epochs):
            return insert_set_epoch(script, sampler.node, EpochLoop(epochs, loop.iter, loop))
        case _:
            return no_patch(SET_EPOCH, NO_SAMPLER)


def _is_sampler(call: Noted, run: Run) -> bool:
    made = {fact.result.key for _, fact in run.of(*SAMPLER_CLASSES)}
    return call.owner is not None and ("sampler" in call.owner.facts or call.owner.key in made)


def _shuffles(sampler: Noted, run: Run) -> bool:
    shuffle = argument(sampler, 3, "shuffle")
    return "**" not in sampler.named and (
        shuffle is None or shuffle.key is run.keys.true or _asks_for_training(shuffle)
    )


def _asks_for_training(shuffle: Value) -> bool:
    """Return whether a choice is made by the name of a part of the data: ``shuffle=part == "train"``."""
    match shuffle.key.op, shuffle.key.args:
        case "compare", (("Eq" | "NotEq") as name, *sides):
            texts = [each.value for each in sides if each.is_constant and isinstance(each.value, str)]
            return any(("train" in text) == (name == "Eq") for text in texts)
        case _:
            return False


def _is_zero(rank: Key) -> bool:
    """Return whether 0 is passed as a rank."""
    return (rank.is_constant and rank.value == 0) or (rank.op == "rank" and rank.args[1] == UNTIL_KNOWN)


def _changes(call: Noted) -> bool:
    epoch = argument(call, 0, "epoch")
    return epoch is None or not epoch.key.is_constant


def _loops_of_training(reach: Reach, loaders: set[Key]) -> tuple[Rounds, Rounds] | None:
    """Return the loop over one of the loaders around a backward pass, behind that of more than one round around it."""
    if BACKWARD not in reach.name and reach.name != ".backward":
        return None
    inner = [number for number, loop in enumerate(reach.loops) if not loaders.isdisjoint(parts(loop.amount))]
    around = [loop for loop in reach.loops[: inner[0]] if not _runs_once(loop.amount)] if inner else []
    return (around[-1], reach.loops[inner[0]]) if around else None


def _runs_once(amount: Key) -> bool:
    """Return whether a loop has one round, as ``range(1)``."""
    inner = amount.args[0] if amount.op == "length" else None
    count = inner.args[0] if isinstance(inner, Key) and inner.op == "range" and len(inner.args) == 1 else None
    return isinstance(count, Key) and count.is_constant and count.value == 1
