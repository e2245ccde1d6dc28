"""DW266 and DW267: what Accelerate wraps and the script saves with the wrapper, and what it leaves as it is."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.model.seeding_calls import seeding_calls
from ...training_script.model.values import Instance
from ...training_script.nodes import walk
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import LOADER_CLASSES
from ..origins import origins_at
from ..patches.prepared_values import iterate_after_prepare, state_of_inner_model
from ..rule_context import Script, Violation
from ..violations import violation_at

# Functions that draw from the generator of the process.
DRAWS = re.compile(r"torch\.rand\w*$|random\.\w+$|(?:np|numpy)\.random\.\w+$")
PARAMETERS = (".parameters", ".named_parameters")
# What shares the data out by other means than prepare, or reads it whole on purpose.
SHARES = re.compile(r"DistributedSampler\(|split_dataset_by_node|process_index|num_processes|get_rank|get_world_size")


def check_state(script: Script, run: Run) -> Iterator[Violation]:
    """DW266: yield the states of prepared models that are saved with the wrapper around the model."""
    states = [
        (reach, fact, fact.owner.key)
        for reach, fact in run.of(".state_dict")
        if fact.owner and "prepared" in fact.owner.facts and "unwrapped" not in fact.owner.facts
    ]
    if not states or script.mentions("state_dict_type") or not any(each.distributed for each in script.runs):
        return  # FSDP, whose states have the names of the model inside
    models = {fact.owner.key for _, fact in script.noted(*PARAMETERS) if fact.owner}
    saves = [state.key for _, fact in run.of("torch.save") if (state := argument(fact, 0, "obj"))]
    written = {part for state in saves for part in parts(state)}
    for reach, fact, model in states:
        if fact.result.key not in written or not {model, *_inside(model)} & models:
            continue
        yield from violation_at(
            script,
            reach,
            f"`{dotted_name(fact.node.func).rpartition('.')[0] or 'the model'}` is what prepare returns: with several "
            "processes each name in the file begins with module., with one process none does",
            0.7,
            patch=partial(state_of_inner_model, script, fact.node, by_all=reach.by_all)
            if script.is_here(reach)
            else None,
        )


def _inside(model: Key) -> Iterator[Key]:
    """Yield the model that prepare has got."""
    if model.op == "prepared":
        yield from (part for part in model.args if isinstance(part, Key))


def check_iterator(script: Script, run: Run) -> Iterator[Violation]:
    """DW267: yield the iterators over a DataLoader that prepare gets in place of the loader."""
    if not run.distributed or script.mentions(SHARES):
        return
    drawn = set() if seeding_calls(script.source.text) else set(_loaders_of_drawn_samples(run))
    for reach, fact in run.of(".prepare"):
        if fact.owner is None or "accelerator" not in fact.owner.facts or not reach.several:
            continue
        for given_node, value in zip(fact.node.args, fact.values, strict=False):
            if not _goes_over_loader(value.key) or not drawn.isdisjoint(_contents(value.key)):
                continue
            if "loader" in value.facts and not _is_made_by_iter(script, given_node):
                continue
            yield from violation_at(
                script,
                reach,
                "prepare shares out the batches of a DataLoader, and leaves an iterator over one as it is: every rank "
                "sees the same data",
                0.8,
                patch=partial(iterate_after_prepare, script, fact.node, given_node),
            )
            break


def _loaders_of_drawn_samples(run: Run) -> Iterator[Key]:
    """Yield the loaders over a data set that draws its samples: without a seed, each rank draws others."""
    for _, fact in run.of(*LOADER_CLASSES):
        data = argument(fact, 0, "dataset")
        found = data.obj.cls.find("__getitem__") if data and isinstance(data.obj, Instance) else None
        calls = (node for node in walk(found[1]) if isinstance(node, ast.Call)) if found else ()
        if any(DRAWS.match(dotted_name(call.func)) for call in calls):
            yield fact.result.key


def _is_made_by_iter(script: Script, node: ast.expr) -> bool:
    """Return whether a value is surely what ``iter`` returns, which the model takes for what it goes over."""
    made = origins_at(script, node) if node in script.source.parents else []  # or a call that the model has completed
    return bool(made) and all(isinstance(each, ast.Call) and dotted_name(each.func) == "iter" for each in made)


def _goes_over_loader(key: Key) -> bool:
    """Return whether a value is, or reads, a loader of this rank: a generator, or an iterator of a library."""
    if key.op not in ("built", "call", "loader"):
        return False
    inner = list(_contents(key))
    return any(part.op == "loader" for part in inner) and not any(part.op == "prepared" for part in inner)


def _contents(key: Key) -> Iterator[Key]:
    """Yield a value and what is in it, without what only its length is computed of."""
    pending, seen = [key], set[Key]()
    while pending:
        each = pending.pop()
        if each not in seen and each.op != "length":
            seen.add(each)
            yield each
            pending += [arg for arg in each.args if isinstance(arg, Key)]
