"""DW203: epochs of a sampler that are counted from zero again where a run is resumed."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, walk
from ..rule_context import Script, Violation
from ..violations import violation_at_node


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield ``set_epoch`` by the number of the round in a loop over the epochs that are left."""
    if not run.distributed or run.function is not None or not script.mentions("set_epoch"):
        return
    for loop in nodes_below(script.source.tree):
        match loop:
            case ast.For(target=ast.Name(id=counter), iter=ast.Call(func=ast.Name(id="range"), args=[number])):
                done = number.right if isinstance(number, ast.BinOp) and isinstance(number.op, ast.Sub) else None
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=counter), _]),
                iter=ast.Call(
                    func=ast.Name(id="enumerate"), args=[ast.Call(func=ast.Name(id="range"), args=[done, _, *_])]
                ),
            ):
                pass
            case _:
                continue
        if done is None or isinstance(done, ast.Constant):
            continue
        for node in (each for stmt in loop.body for each in walk(stmt)):
            match node:
                case ast.Call(func=ast.Attribute(attr="set_epoch"), args=[ast.Name(id=given)]) if given == counter:
                    yield violation_at_node(
                        node,
                        f"`{counter}` counts the epochs that are left from 0 on: after "
                        f"`{script.source.one_line(done)}` epochs the sampler repeats the orders of the first ones",
                        0.8,
                    )
                case _:
                    pass
