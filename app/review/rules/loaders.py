"""DW202 and DW204: loaders that give every rank the same data, or that cannot be made."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, RANKS, Key, parts
from ...training_script.model.library_effects import REPLACES
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.several_ranks import SET_UP
from ...training_script.model.values import Either, Instance, Value
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import GRAPH_LOADERS, LOADER_CLASSES, SAMPLER_CLASSES, is_optimizer
from ..patches.add_sampler import sampler_edits
from ..patches.apply_edits import apply_edits, edits_between
from ..patches.torch_names import distributed_module
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import at_node, violation_at
from . import missing_set_epoch, samplers
from .averaged_by_hand import by_hand, cuts_by_rank

BACKWARD = ("the backward pass", "the backward pass of DeepSpeed", "accelerator.backward", "fabric.backward")
# With Accelerate: loaders are divided in another way, or each process draws numbers of its own.
DIVIDES = re.compile(
    r"device_specific|process_index|split_b|shard|num_processes|split_dataset|prepare_data_loader|is_main"
)
SETS_UP = re.compile(r"setup_dataloaders|process_dataloader")  # of Fabric, in the script or for it
SHARED_OUT = re.compile(r"rank|world|shard|process", re.IGNORECASE)
# Samplers that know nothing of other ranks.
OF_ONE_RANK = {
    f"torch.utils.data.{inner}{name}"
    for inner in ("", "sampler.")
    for name in ("RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler")
}
FILES = {"torch.save": (1, "f"), **REPLACES}
SHUFFLE, ADD = "shuffle-without-sampler", "add-sampler"


def check_sampler(script: Script, run: Run) -> Iterator[Violation]:
    """DW202: yield the loaders that give every rank the whole data, for training or for files of its own."""
    yield from _of_training(script, run)
    yield from _of_graphs(script, run)
    yield from _of_files(script, run)


def _of_training(script: Script, run: Run) -> Iterator[Violation]:
    if not run.distributed or _takes_parts(run) or (by_hand(run) and cuts_by_rank(script)):
        return
    own_seeds = any(not same_on_ranks(key) for key in _seeds(run))
    trained = trained_loops(run)
    prepares = [reach for reach, fact in run.of(".prepare") if fact.owner and "accelerator" in fact.owner.facts]
    libraries = {each.name for each in run.reached if each.name in BACKWARD[2:]}
    not_set_up = libraries == {"fabric.backward"} and not script.mentions(SETS_UP)
    if libraries and not not_set_up and (not prepares or script.mentions(DIVIDES)):
        return
    of_one = set(_samplers_of_one(run))
    for reach, fact in run.of(*LOADER_CLASSES):
        shuffle, data = argument(fact, 2, "shuffle"), argument(fact, 0, "dataset")
        unpacked = any(each.arg is None for each in fact.node.keywords)  # what is put in later is not known
        alone = (given := argument(fact, 3, "sampler")) is not None and given.key in of_one
        if not reach.several or unpacked or not data or script.mentions("webdataset"):
            continue
        if has_sampler(fact) and not alone:
            continue
        batch = argument(fact, 1, "batch_size")
        if own_seeds and not (batch and any(part.op == "world" for part in parts(batch.key))):
            continue  # each rank may be meant to draw samples of its own; a share of a batch is meant for the ranks
        inner = _batches_of_one_rank(fact)
        shuffled = (shuffle and _is_true(shuffle)) or bool(fact.named.keys() & {"sampler"})
        shuffled = shuffled or (inner is not None and not str(inner.args[0]).endswith("SequentialSampler"))
        if not shuffled and (shuffle or not _steps(run)):
            continue
        if same_on_ranks(data.key) and not shares_out(data) and any(iterates(key, fact.result.key) for key in trained):
            lacks = "is not prepared" if prepares else "has no DistributedSampler"
            lacks = "has a sampler that is one for a single rank" if alone else lacks
            yield from violation_at(
                script,
                prepares[0] if prepares else reach,
                f"this loader {lacks}: every rank trains on all of the data"
                + (", in an order of its own" if shuffled and not _draws_alike(run, fact) else ", in the same order"),
                0.8 if shuffled else 0.6,
                severity=None if shuffled and not _has_alternative(run, reach) else "warning",
                patch=partial(_add_sampler, script, run, reach, fact)
                if script.is_here(reach) and not prepares and not alone and inner is None
                else None,
            )


def _has_alternative(run: Run, loader: Reach) -> bool:
    """Return whether a loader with a sampler is made instead of this one: several ranks may be meant for its data."""
    return any(has_sampler(fact) and not together(at, loader) for at, fact in run.of(*LOADER_CLASSES))


def _samplers_of_one(run: Run) -> Iterator[Key]:
    """Yield the samplers that share the data out among one rank."""
    for _, fact in run.of(*SAMPLER_CLASSES):
        count = argument(fact, 1, "num_replicas")
        if count and count.key.is_constant and count.key.value == 1:
            yield fact.result.key


def _draws_alike(run: Run, loader: Noted) -> bool:
    """Return whether a loader shuffles by a generator of its own, or all ranks have set one seed."""
    return "generator" in loader.named or (any(_seeds(run)) and all(map(same_on_ranks, _seeds(run))))


def _of_graphs(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loaders of a graph around the same nodes on every rank, which train on what all of them draw."""
    loaders = list(run.of(*GRAPH_LOADERS)) if run.distributed else []
    trained = trained_loops(run) if loaders and not any(run.of(".prepare")) else []
    for reach, fact in loaders:
        nodes = argument(fact, *GRAPH_LOADERS[fact.name])
        own = {"sampler", "batch_sampler", "**"} & fact.named.keys() or (nodes and not same_on_ranks(nodes.key))
        if reach.several and not own and any(iterates(key, fact.result.key) for key in trained):
            _, name = GRAPH_LOADERS[fact.name]
            message = f"`{name}` of this loader is the same on every rank: every rank trains on all of the graph"
            yield from violation_at(script, reach, message, 0.8)


def _of_files(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loaders without a sampler of which every rank writes what it makes into files of its own."""
    writes = list(_files_of_ranks(run)) if run.distributed and not script.mentions("webdataset") else []
    for reach, fact in run.of(*LOADER_CLASSES) if writes else ():
        data = argument(fact, 0, "dataset")
        if not data or not reach.several or reach.ranks != ALL or has_sampler(fact):
            continue
        if any(each.arg is None for each in fact.node.keywords) or not same_on_ranks(data.key) or shares_out(data):
            continue
        write = next(
            (each for each in writes if any(iterates(loop.amount, fact.result.key) for loop in each.loops)), None
        )
        if write:
            message = (
                "this loader has no DistributedSampler: every rank goes through all of the data, and writes what it "
            )
            message += f"makes into files of its own (line {write.fact.site.line})"
            yield from violation_at(script, reach, message, 0.7, severity="warning")


def _files_of_ranks(run: Run) -> Iterator[Reach]:
    """Yield what every rank writes to a path with its rank in it, whichever data it has."""
    for reach, fact in run.of(*FILES):
        place, name = FILES[fact.name]
        path = fact.owner if place < 0 else argument(fact, place, name)
        apart = any(each.test.differs_by & BY_RANK for each in reach.conditions)
        mode = argument(fact, 1, "mode") if fact.name == "open" else None
        reads = fact.name == "open" and not (mode and mode.key.is_constant and str(mode.key.value)[:1] in "wax")
        if path and not reads and path.key.differs_by & BY_RANK and reach.several and reach.ranks == ALL and not apart:
            yield reach


def trained_loops(run: Run) -> list[Key]:
    """Return what the loops go over in which all ranks train."""
    trained = [
        loop.amount
        for each in run.reached
        if isinstance(each.fact, Event) and each.fact.kind in BACKWARD and each.ranks == ALL
        for loop in each.loops
        if not loop.amount.differs_by & BY_RANK
    ]
    learned = [each for each in run.reached if each.name in BACKWARD]
    if not trained and by_hand(run):
        learned = [reach for reach, _ in run.of(".backward") if reach.ranks == ALL]
        trained = [loop.amount for each in learned for loop in each.loops if not loop.amount.differs_by & BY_RANK]
    around = [{loop.site for loop in each.loops} for each in learned]
    return trained + [
        fact.values[0].key
        for each, fact in run.of("next")
        if fact.values and (sites := {loop.site for loop in each.loops}) and any(sites <= loops for loops in around)
    ]


def check_shuffle(script: Script, run: Run) -> Iterator[Violation]:
    """DW204: yield the loaders with a sampler and shuffle=True."""
    for reach, fact in run.of(*LOADER_CLASSES):
        sampler, shuffle = argument(fact, 3, "sampler"), argument(fact, 2, "shuffle")
        if not sampler or not shuffle or "sampler" not in sampler.facts or not _is_true(shuffle):
            continue
        if all(run.keys.specialise(sampler.key, rank).op not in ("if", "one of", "constant") for rank in RANKS):
            given = next((each.value for each in fact.node.keywords if each.arg == "shuffle"), None)
            yield from violation_at(
                script,
                at_node(script, reach, given) if script.is_here(reach) else reach,
                "a DataLoader with a sampler does not accept shuffle=True: this raises a ValueError",
                0.9,
                patch=(lambda fact=fact: _sampler_decides(script, fact)) if script.is_here(reach) else None,
            )


def _seeds(run: Run) -> Iterator[Key]:
    for _, fact in run.of("torch.manual_seed"):
        yield from (value.key for value in fact.values)


def _takes_parts(run: Run) -> bool:
    """Return whether a rank computes with a part of a batch that its rank chooses."""
    return any(value.key.differs_by & BY_RANK for _, fact in run.of(WRAPPED_FORWARD) for value in fact.values)


def _steps(run: Run) -> bool:
    """Return whether an optimizer is made: otherwise the loop may measure something."""
    return any(is_optimizer(each.name) for each in run.reached)


def has_sampler(fact: Noted) -> bool:
    sampler, generator = fact.named.get("sampler"), fact.named.get("generator")
    if generator and not same_on_ranks(generator.key):
        return True
    if sampler and sampler.key.op == "call" and str(sampler.key.args[0]) in OF_ONE_RANK:
        own = not all(same_on_ranks(each) for each in sampler.key.args if isinstance(each, Key))
        return own or bool({"batch_sampler", "**"} & fact.named.keys())
    if _batches_of_one_rank(fact):
        return False
    return bool({"sampler", "batch_sampler", "**"} & fact.named.keys()) or len(fact.values) > 3


def _batches_of_one_rank(fact: Noted) -> Key | None:
    """Return the sampler that a loader gets its batches from, if it is one that knows nothing of other ranks."""
    batches = fact.named.get("batch_sampler")
    if batches is None or batches.key.op != "call" or not str(batches.key.args[0]).startswith("torch.utils.data."):
        return None
    inner = batches.key.args[1] if len(batches.key.args) > 1 else None
    known = isinstance(inner, Key) and inner.op == "call" and str(inner.args[0]) in OF_ONE_RANK
    return inner if known else None


def _is_true(value: Value) -> bool:
    return value.key.is_constant and value.key.value is True


def shares_out(data: Value) -> bool:
    """Return whether a dataset may give each rank its own part."""
    if isinstance(data.obj, Either):
        return shares_out(data.obj.then) or shares_out(data.obj.other)
    if not isinstance(data.obj, Instance):
        return False
    bases = [*data.obj.cls.library_bases()]
    return any(base.endswith("IterableDataset") for base in bases) or any(
        SHARED_OUT.search(each.id if isinstance(each, ast.Name) else each.attr)
        for cls in data.obj.cls.ancestry()
        for each in ast.walk(cls.node)
        if isinstance(each, ast.Name | ast.Attribute)
    )


def iterates(amount: Key, loader: Key) -> bool:
    found = list(parts(amount))
    return loader in found and not any(each.op == "prepared" for each in found)


def _sampler_decides(script: Script, fact: Noted) -> Patch:
    given = {each.arg: each.value for each in fact.node.keywords}
    shuffle, sampler = given.get("shuffle"), given.get("sampler")
    if shuffle is None or sampler is None:
        return no_patch(SHUFFLE, "pass shuffle=False, and shuffle in the sampler")
    name = dotted_name(sampler)
    return Patch(
        id=SHUFFLE,
        safety="safe",
        edits=[script.source.replace(shuffle, f"{name} is None" if name else "False")],
    )


def _add_sampler(script: Script, run: Run, reach: Reach, fact: Noted) -> Patch:
    """Return the patch of one loader, with ``set_epoch`` where the loop over epochs is known."""
    source, loader = script.source, fact.node
    before = run.reached[: run.reached.index(reach)]
    if not any(isinstance(each.fact, Noted) and each.name in SET_UP for each in before):
        return no_patch(ADD, "make the process group in front of the loader, then a sampler")
    taken = {node.id for node in nodes_of_kinds(source.tree, ast.Name)}
    edits = sampler_edits(source, loader, distributed_module(script, loader), taken)
    if not edits:
        return no_patch(ADD, "make the sampler where the dataset is made, and pass it to the DataLoader")
    after = with_set_epoch(apply_edits(source.text, edits), source.path)
    return Patch(
        id=ADD,
        safety="unsafe",
        why_unsafe="an epoch has fewer steps on more ranks, which schedules of the learning rate may count",
        edits=edits_between(source.text, after),
    )


def with_set_epoch(text: str, path: str) -> str:
    """Return the text with the patch of the rule for samplers whose epoch is not set, where it has one."""
    script = Script(text, path)
    by_facts = (each for run in script.runs for each in samplers.check_epoch(script, run))
    for found in (*missing_set_epoch.check(script), *by_facts):
        patch = found.patch() if found.patch else None
        if patch and patch.edits:
            return with_set_epoch(apply_edits(text, patch.edits), path)
    return text
