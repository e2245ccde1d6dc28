"""Call ``set_epoch`` of the samplers that a migration adds, so that each epoch has another order."""

import ast

from ...training_script.syntax import call_argument, dotted_name
from ..patches.apply_edits import apply_edits
from ..rule_context import Script
from ..rules import missing_set_epoch
from .facts import Loop
from .origins import without_iterators
from .rewriting import Rewriting


def call_set_epoch(made: Rewriting) -> None:
    """Insert ``set_epoch`` before a loop over a loader whose sampler is in its options, where the epoch is a name."""
    loop = made.facts.batch_loop
    if "options_of_rank" not in made.helpers.used or not isinstance(loop, ast.For):
        return
    loader = without_iterators(loop.iter)
    epochs = _loop_above(made, loop)
    if epochs is not None and isinstance(epochs, ast.For) and dotted_name(loader):
        epoch = _epoch_in(made, loop, epochs)
        if epoch:
            made.insert_before(loop, f"{made.source.code(loader)}.sampler.set_epoch({epoch})")


def with_set_epoch(made: Rewriting) -> str:
    """Return the new text with ``set_epoch`` in the epoch loops, by the patch of the rule for it."""
    text, path = made.text(), made.source.path
    if "DistributedSampler" not in made.helpers.used:
        return text
    for _ in made.facts.training_loaders:
        found = missing_set_epoch.check(Script(text, path))
        patch = next((patch for each in found if each.patch and (patch := each.patch()).edits), None)
        if patch is None:
            break
        text = apply_edits(text, patch.edits)
    shuffled = any(_may_shuffle(loader) for loader in made.facts.training_loaders)
    if shuffled and "set_epoch" not in text and (epochs := _loop_above(made, made.facts.batch_loop)) is not None:
        made.report(epochs, "if this loop counts epochs, call set_epoch(epoch) of the sampler in each")
    return text


def _may_shuffle(loader: ast.Call) -> bool:
    given = call_argument(loader, "shuffle", 2)
    has_options = any(keyword.arg is None for keyword in loader.keywords)
    return has_options or (given is not None and not (isinstance(given, ast.Constant) and given.value is False))


def _loop_above(made: Rewriting, loop: Loop) -> Loop | None:
    loops = made.facts.training_loops
    at = loops.index(loop) + 1 if loop in loops else len(loops)
    return loops[at] if at < len(loops) else None


def _epoch_in(made: Rewriting, loop: Loop, epochs: ast.For) -> str:
    """Return the name that the variable of the epoch loop has at the batch loop, or ""."""
    target = epochs.target.elts[0] if isinstance(epochs.target, ast.Tuple) else epochs.target
    names = made.facts.names
    function = names.enclosing_function(loop)
    if not isinstance(target, ast.Name):
        return ""
    if function is names.enclosing_function(epochs):
        return target.id
    for _, given in names.arguments.get(function, []) if function else []:
        for parameter, value in given.items():
            if isinstance(value, ast.Name) and value.id == target.id:
                return parameter
    return ""
