"""Follow a sampler to its DataLoader, the loop that trains on it, and the loop that counts epochs.

Followed through names, attributes, tuples, wrappers (``enumerate``, ``tqdm``) and functions of the file.
"""

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..training_script.nodes import nodes_below
from ..training_script.syntax import FUNCTIONS, LOOPS, call_argument, dotted_name, nodes_of_body
from ..training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from .rule_context import Script

EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|test|eval|evaluation|dev)(?:$|_|\d)|val_|test_", re.IGNORECASE)
TRAINING = re.compile(r"(?:^|_)train", re.IGNORECASE)
COUNTS = re.compile(r"(?:\w+\.)*(?:range|trange|count)$")
WRAPPERS = re.compile(
    r"enumerate|tqdm|trange|iter|zip|islice|list|\w*[Pp]refetcher|\w*[Pp]refetch\w*|track|progress\w*"
)
PREPARES = {"prepare", "prepare_data_loader", "setup_dataloaders", "fit"}  # of Accelerate, Fabric, Trainer
Loop = ast.For | ast.AsyncFor | ast.While


class EpochLoop(NamedTuple):
    """A loop with one iteration per epoch; ``loader`` is the expression for the loader in it, ``use`` where it is read.

    ``use`` is a loop over the loader, ``iter(loader)``, or the call of a function that has one of them.
    """

    epochs: Loop
    loader: ast.expr
    use: ast.For | ast.AsyncFor | ast.Call


def is_call_of(script: Script, call: ast.Call, names: Collection[str]) -> bool:
    return script.names.qualified(call.func) in names


def find_samplers(script: Script, expr: ast.expr) -> Iterator[ast.AST]:
    """Yield the calls that create the sampler (or the loader's sampler) that ``expr`` refers to."""
    for leaf in script.names.origins(expr):
        if isinstance(leaf, ast.Call) and is_call_of(script, leaf, SAMPLER_CLASSES):
            yield leaf
        elif isinstance(leaf, ast.Call) and is_call_of(script, leaf, LOADER_CLASSES):
            yield from (sampler for sampler, _ in samplers_of_loader(script, leaf))
        elif isinstance(leaf, ast.Call) and dotted_name(leaf.func).endswith("BatchSampler") and leaf.args:
            yield from find_samplers(script, leaf.args[0])
        elif isinstance(leaf, ast.Attribute) and leaf.attr in ("sampler", "batch_sampler"):
            yield from find_samplers(script, leaf.value)


def samplers_of_loader(script: Script, loader: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    """Yield the possible samplers of a DataLoader, with the attribute path to each."""
    given = call_argument(loader, "sampler", 3)
    if given is not None:
        yield from ((leaf, ".sampler") for leaf in script.names.origins(given))
    given = call_argument(loader, "batch_sampler", 4)
    for leaf in script.names.origins(given) if given is not None else []:
        if isinstance(leaf, ast.Call) and dotted_name(leaf.func).endswith("BatchSampler"):
            inner = call_argument(leaf, "sampler", 0)
            if inner is not None:
                yield from ((item, ".batch_sampler.sampler") for item in script.names.origins(inner))


def find_epoch_loops(script: Script, sampler: ast.Call) -> Iterator[EpochLoop]:
    """Yield the epoch loops that train on a loader of this sampler."""
    for node in nodes_below(script.source.tree):
        if isinstance(node, (ast.For, ast.AsyncFor)) and (_is_for_training(_bare(node.iter)) or _trains(script, node)):
            given = _bare(node.iter)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "iter" and node.args:
            given = _bare(node.args[0])
        else:
            continue
        if EVALUATION.search(dotted_name(given).rpartition(".")[2]) or not _gives(script, given, sampler):
            continue
        use = _epochs_around(script, node, given)
        if use and (_is_for_training(given) or _trains(script, use.epochs)):
            yield use


def counts_steps(script: Script, found: EpochLoop) -> bool:
    """Return whether the loop counts steps: it starts the loader again, by ``iter(loader)``, only when it has ended."""
    if isinstance(found.use, (ast.For, ast.AsyncFor)) or dotted_name(found.use.func) != "iter":
        return False
    parent = script.source.parents[script.source.statement_of(found.use)]
    return parent is not found.epochs and isinstance(parent, (ast.If, ast.ExceptHandler))


def _gives(script: Script, loader: ast.expr, sampler: ast.Call, depth: int = 4) -> bool:
    """Return whether ``loader`` may be a DataLoader with this sampler, possibly in a wrapper."""
    made = [leaf for leaf in script.names.origins(loader) if isinstance(leaf, ast.Call)] if depth else []
    if any(_is_prepared(leaf) for leaf in made):
        return False  # the name held the loader before
    for leaf in made:
        if is_call_of(script, leaf, LOADER_CLASSES):
            if sampler in [each for each, _ in samplers_of_loader(script, leaf)]:
                return True
        elif any(_gives(script, each, sampler, depth - 1) for each in _wrapped(script, leaf)):
            return True
    return False


def _wrapped(script: Script, call: ast.Call) -> list[ast.expr]:
    """Return what a call may return again, wrapped: each argument, unless a library sees to the sampler itself."""
    if _bare(call) is not call:
        return [_bare(call)]
    if _is_prepared(call) or script.names.class_of(call):
        return []
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_prepared(call: ast.Call) -> bool:
    """Return whether a library divides the data among the ranks, in each epoch in another order."""
    return dotted_name(call.func).rpartition(".")[2] in PREPARES


def _bare(expr: ast.expr) -> ast.expr:
    """Return ``loader`` of ``enumerate(tqdm(loader))`` and similar wrappers."""
    while isinstance(expr, ast.Call) and expr.args and WRAPPERS.fullmatch(dotted_name(expr.func).rpartition(".")[2]):
        expr = expr.args[0]
    return expr


def _is_for_training(loader: ast.expr) -> bool:
    """Return whether a loader is named for training: what is done with its batches may be in a library."""
    return bool(TRAINING.search(dotted_name(loader).rpartition(".")[2]))


def _trains(script: Script, loop: ast.AST, depth: int = 3) -> bool:
    """Return whether a loop, or a function of the file that it calls, runs a backward pass.

    An endless loop that yields batches counts too.
    """
    for node in nodes_of_body(loop):
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            return True
        if isinstance(node, ast.Yield) and isinstance(loop, LOOPS):
            outer = loop_around(script, loop) if isinstance(loop, (ast.For, ast.AsyncFor)) else loop
            if isinstance(outer, ast.While) and isinstance(outer.test, ast.Constant):
                return True
        if (
            isinstance(node, ast.Call)
            and depth
            and (function := script.names.function(node))
            and _trains(script, function, depth - 1)
        ):
            return True
    return False


def loop_around(script: Script, node: ast.AST) -> Loop | None:
    """Return the innermost loop around a node, in its function."""
    parent = script.source.parents.get(node)
    while parent is not None and not isinstance(parent, (*LOOPS, *FUNCTIONS)):
        parent = script.source.parents.get(parent)
    return parent if isinstance(parent, LOOPS) else None


def _epochs_around(
    script: Script, node: ast.For | ast.AsyncFor | ast.Call, loader: ast.expr, depth: int = 3
) -> EpochLoop | None:
    """Return the loop that runs ``node`` once per epoch, around it or around the only call of its function, or None."""
    loop = loop_around(script, node)
    if loop:
        if not _again(loop) or _made_inside(script, loop, loader):
            return None
        return EpochLoop(loop, loader, node)
    function = script.names.enclosing_function(node)
    calls = script.names.arguments.get(function, []) if function else []
    if not function or len(calls) != 1 or not depth:
        return None
    call, values = calls[0]
    path = dotted_name(loader)
    if path.startswith("self."):
        target = call.func if isinstance(call, ast.Call) else None
        if not (isinstance(target, ast.Attribute) and dotted_name(target.value) == "self"):
            return None
        return _epochs_around(script, call, loader, depth - 1)
    if path in values:
        return _epochs_around(script, call, _bare(values[path]), depth - 1)
    if isinstance(loader, ast.Name) and path not in script.names.scope_of[loader].bindings:
        return _epochs_around(script, call, loader, depth - 1)  # of the module
    return None


def _again(loop: Loop) -> bool:
    """Return whether a loop counts epochs: over a range of more than one, or a ``while``."""
    if isinstance(loop, ast.While):
        return True
    items = loop.iter
    named = "epoch" in ast.unparse(loop.target).lower()
    while isinstance(items, ast.Call) and not COUNTS.match(dotted_name(items.func)) and items.args:
        items = items.args[0]
    if not isinstance(items, ast.Call):
        return named
    once = len(items.args) == 1 and isinstance(items.args[0], ast.Constant) and items.args[0].value == 1
    return bool(COUNTS.match(dotted_name(items.func))) and not once


def _made_inside(script: Script, loop: Loop, loader: ast.expr) -> bool:
    """Return whether the loader is created again in each iteration."""
    inside = set(ast.walk(loop))
    return any(binding.at in inside for binding in script.names.bindings(loader)) if dotted_name(loader) else True
