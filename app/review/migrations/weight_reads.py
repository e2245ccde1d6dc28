"""Weights that a script reads or saves itself: of a sharded model, each rank has a part of them only."""

import ast
from collections.abc import Iterator

from ...training_script.syntax import dotted_name, last_name
from .module_attributes import runs_after_wrap
from .rewriting import Rewriting
from .types import Refusal

LISTS = {"parameters", "named_parameters", "buffers", "named_buffers"}
# Of a weight, and the same for a part of it: its whole shape, what it is, element-wise changes by a number.
SAME_FOR_A_PART = {
    *("numel", "nelement", "shape", "size", "dim", "ndim", "dtype", "device", "element_size", "is_leaf", "grad"),
    *("requires_grad", "requires_grad_", "mul_", "add_", "div_", "zero_", "fill_"),
}
READ = "the weights are read by hand here, and each rank has a part of them: read the state_dict of the model"


def refuse_weight_reads(made: Rewriting) -> None:
    """Refuse a script that reads weights of the sharded model other than by ``state_dict``.

    Raises:
        Refusal: With the line.
    """
    facts = made.facts
    classes = {facts.names.class_of(root) for root in facts.model_roots} - {None}
    for call in facts.calls:
        match call.func:
            case ast.Attribute(value=ast.Name(id="self"), attr="state_dict" | "load_state_dict" as attr):
                if facts.names.enclosing_class(facts.names.scope_of[call]) in classes:
                    raise Refusal(
                        call.lineno, f"the model calls its own {attr}, and each rank has a part: do it outside"
                    )
            case ast.Attribute(value=owner, attr=attr) if attr in LISTS and facts.is_model(owner):
                is_known = call in facts.parameter_reads or not runs_after_wrap(made, call)
                if not is_known and (found := next(_reads(made, call), None)):
                    raise Refusal(found.lineno, READ)
            case _:
                pass
    for node in facts.nodes:
        match node:
            case ast.Attribute(value=owner, attr="weight" | "bias", ctx=ast.Load()):
                while isinstance(owner, (ast.Attribute, ast.Subscript)) and not facts.is_model(owner):
                    owner = owner.value
                if facts.is_model(owner) and runs_after_wrap(made, node) and not _is_harmless(made, node):
                    raise Refusal(node.lineno, READ)
            case _:
                pass


def _reads(made: Rewriting, listed: ast.Call) -> Iterator[ast.expr]:
    """Yield what reads the values of listed weights, in a loop or a comprehension over them."""
    parents = made.source.parents
    around, loop = listed, parents[listed]
    while isinstance(loop, ast.Call) and last_name(loop.func) in ("enumerate", "zip", "list"):
        around, loop = loop, parents[loop]
    if isinstance(loop, ast.comprehension):
        target, body = loop.target, [parents[loop]]
    elif isinstance(loop, (ast.For, ast.AsyncFor)) and loop.iter is around:
        target, body = loop.target, [*loop.body]
    else:
        return
    names = {dotted_name(each) for each in ast.walk(target)} - {""}
    if isinstance(target, ast.Tuple) and last_name(listed.func).startswith("named_") and len(target.elts) == 2:
        names -= {dotted_name(target.elts[0])}
    for part in body:
        for node in ast.walk(part):
            is_weight = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
            if isinstance(node, ast.Name) and is_weight and not _is_harmless(made, node):
                yield node


def _is_harmless(made: Rewriting, weight: ast.expr) -> bool:
    """Return whether a use of a weight is right for a part of it as well."""
    above = made.source.parents[weight]
    if isinstance(above, ast.Attribute):
        return above.attr in SAME_FOR_A_PART
    return isinstance(above, (ast.Compare, ast.ListComp))  # ``p is None``, ``[p for p in model.parameters() if …]``
