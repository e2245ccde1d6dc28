"""DW415: what a call in the background fills, read by another method before it waits for the handle in its object."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, Function, call_argument, dotted_name, nodes_of_body
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

OWN = "self."
OF_SHAPE = {"shape", "dtype", "device", "numel", "size", "dim", "ndim", "nelement", "element_size"}
WAITS = {"wait", "synchronize"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first reads of such tensors, in a method that waits for their handle only behind them."""
    if not script.mentions("async_op") or not run.distributed:
        return
    for owner in nodes_below(script.source.tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = [each for each in owner.body if isinstance(each, FUNCTIONS)]
        for begins in methods:
            for call, handle in _begun(script, begins):
                tensor = dotted_name(call.args[0])
                for ends in methods:
                    read = _read_early(script, ends, tensor, handle) if ends is not begins else None
                    if read is not None:
                        yield violation_at_node(
                            read,
                            f"`{tensor}` is read before `{handle}` is waited for: "
                            f"{collective_name(call, script.names)} (line {call.lineno}) may still work on it",
                            0.85,
                            related=[RelatedPlace(path=script.source.path, line=call.lineno, message="begun here")],
                        )


def _begun(script: Script, method: Function) -> Iterator[tuple[ast.Call, str]]:
    """Yield the collectives of a tensor of the object that only begin, with the attribute that holds the handle."""
    for node in nodes_of_body(method):
        match node:
            case ast.Assign(targets=[ast.Attribute() as held], value=ast.Call(args=[tensor, *_]) as call):
                begins = call_argument(call, "async_op")
                starts = isinstance(begins, ast.Constant) and begins.value is True
                both_own = dotted_name(held).startswith(OWN) and dotted_name(tensor).startswith(OWN)
                if starts and both_own and collective_name(call, script.names):
                    yield call, dotted_name(held)
            case _:
                pass


def _read_early(script: Script, method: Function, tensor: str, handle: str) -> ast.Attribute | None:
    """Return the first read of a tensor in a method in front of all that may wait, where it waits for the handle."""
    reads: list[ast.Attribute] = []
    waits: list[int] = []
    waits_for_it = False
    for node in nodes_of_body(method):
        if not isinstance(node, ast.Attribute):
            continue
        name = dotted_name(node)
        if node.attr in WAITS:
            waits.append(node.lineno)
            waits_for_it = waits_for_it or name.rpartition(".")[0] == handle
        elif name == tensor and not _is_of_shape(script, node):
            reads.append(node)
        elif isinstance(node.ctx, ast.Load) and name == handle:
            around = script.source.parents.get(node)
            if not (isinstance(around, ast.Attribute) and around.attr in WAITS):
                waits.append(node.lineno)  # it is passed on, or asked whether there is one
    first = min(reads, key=lambda node: (node.lineno, node.col_offset), default=None)
    is_early = first is not None and waits_for_it and first.lineno < min(waits)
    calls_before = first is not None and any(
        isinstance(node, ast.Call) and dotted_name(node.func).startswith(OWN) and node.lineno < first.lineno
        for node in nodes_of_body(method)
        if not dotted_name(getattr(node, "func", node)).startswith(f"{tensor}.")
    )
    return first if is_early and not calls_before else None


def _is_of_shape(script: Script, node: ast.Attribute) -> bool:
    around = script.source.parents.get(node)
    stored = not isinstance(node.ctx, ast.Load)
    return stored or (isinstance(around, ast.Attribute) and around.attr in OF_SHAPE)
