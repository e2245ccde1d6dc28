"""The loop over batches and the loop over epochs around it, with the calls between the two."""

import ast
from typing import NamedTuple

from ...training_script.syntax import FUNCTIONS, LOOPS, Function, dotted_name, last_name
from .facts import Loop, TrainingFacts
from .types import Refusal

WITHOUT_LENGTH = {"zip", "iter", "cycle", "islice", "chain", "count", "repeat"}


class Hop(NamedTuple):
    """A function with the batch loop, or the next function on the way to it, and the only call of it."""

    function: Function
    call: ast.Call


class TrainingLoop(NamedTuple):
    """``epochs`` is None where there is one loop only. ``hops`` lead from the batch loop out to the epoch loop."""

    batches: ast.For
    epochs: ast.For | ast.While | None
    hops: list[Hop]


def training_loop(facts: TrainingFacts) -> TrainingLoop:
    """Return the loops of the training, found from the step of the optimizer outwards.

    Raises:
        Refusal: They are of a form whose position cannot be saved.
    """
    steps = [*facts.optimizer_steps.values()]
    if not steps:
        raise Refusal(facts.backward.lineno, "no step of an optimizer that is made in this file")
    found = [_loops_around(facts, step) for step in steps]
    batches = {_batch_loop(facts, loops, step) for loops, step in zip(found, steps, strict=True)}
    if len(batches) > 1:
        lines = sorted(loop.lineno for loop in batches)
        raise Refusal(lines[1], f"a second training loop (the first at line {lines[0]}): split the script")
    inner, hops = found[0]
    batch_loop = batches.pop()
    outer = inner[[loop for loop, _ in inner].index(batch_loop) + 1 :]
    if len(outer) > 1:
        raise Refusal(
            outer[1][0].lineno, "a loop around the epoch loop: its position is not saved; start one run per pass"
        )
    if not isinstance(batch_loop, ast.For):
        raise Refusal(batch_loop.lineno, "the batches are counted by while: its position cannot be saved; use for")
    _check_batches(facts, batch_loop)
    epochs, depth = outer[0] if outer else (None, 0)
    if isinstance(epochs, ast.AsyncFor):
        raise Refusal(epochs.lineno, "an async loop")
    own = inner[[loop for loop, _ in inner].index(batch_loop)][1]
    return TrainingLoop(batch_loop, epochs, hops[own:depth] if epochs else [])


def _loops_around(facts: TrainingFacts, node: ast.AST) -> tuple[list[tuple[Loop, int]], list[Hop]]:
    """Return the loops around a node from the inside, each with the number of calls in between, and those calls."""
    loops: list[tuple[Loop, int]] = []
    hops: list[Hop] = []
    while (above := facts.source.parents.get(node)) is not None:
        if isinstance(above, LOOPS):
            loops.append((above, len(hops)))
        elif isinstance(above, FUNCTIONS):
            calls = [call for call, _ in facts.names.arguments.get(above, []) or facts.callers_of_method(above)]
            if not calls:
                break
            if len(calls) > 1:
                raise Refusal(
                    calls[1].lineno, f"{above.name} is called here and at line {calls[0].lineno}: call it once"
                )
            hops.append(Hop(above, calls[0]))
            above = calls[0]
        node = above
    return loops, hops


def _batch_loop(facts: TrainingFacts, found: tuple[list[tuple[Loop, int]], list[Hop]], step: ast.Call) -> Loop:
    loops = [loop for loop, _ in found[0]]
    if not loops:
        raise Refusal(step.lineno, "no loop around the step of the optimizer")
    return next((loop for loop in loops if isinstance(loop, ast.For) and facts.loaders_of(loop.iter)), loops[0])


def _check_batches(facts: TrainingFacts, loop: ast.For) -> None:
    for node in ast.walk(loop.iter):
        if isinstance(node, ast.Call) and last_name(node.func) in WITHOUT_LENGTH:
            raise Refusal(
                loop.lineno, f"the number of batches of {last_name(node.func)}() is not known: loop over the loader"
            )
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and dotted_name(node.func) == "next":
            raise Refusal(
                node.lineno, "batches are taken by next(): loop over the loader, so that its position is known"
            )
