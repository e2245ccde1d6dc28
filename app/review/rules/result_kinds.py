"""DW465: results of calls that are something else than what they are used as."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.edits import Edit
from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import STORE
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name, last_name
from ..origins import origins_at
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import at_node, violation_at

PREFIX = "torch.distributed."
BYTES = "compare-bytes"
ADDS = {"sum", "mean", "norm"}
GETS = (f"{STORE}get",)
# Calls that return a number, with the place of the tensor that they fill.
NUMBERS = {PREFIX + "recv": "the number of the rank that has sent it"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW465: yield the comparisons of bytes with texts, and numbers of ranks that are used as tensors."""
    for reach, fact in run.of(*GETS):
        compared = _compared_with_text(script, fact.node) if script.is_here(reach) else None
        if compared is not None:
            yield from violation_at(
                script,
                at_node(script, reach, compared),
                'a store returns bytes, which are never equal to a text: compare with b"…", or decode() them',
                0.9,
                patch=partial(_as_bytes, script, compared),
            )
    for reach, fact in run.of(".to_local"):
        if script.is_here(reach) and fact.owner and "dtensor" in fact.owner.facts and _is_partial(script, fact):
            yield from violation_at(
                script,
                reach,
                "the local part of what shards add up to is the sum of this rank: full_tensor() is that of all",
                0.85,
            )
    for reach, fact in run.of(*NUMBERS):
        if script.is_here(reach) and _is_taken_for_tensor(script, fact):
            what = NUMBERS[fact.name]
            yield from violation_at(
                script,
                reach,
                f"{fact.name.removeprefix(PREFIX)} returns {what}: what it receives is in the tensor that it is given",
                0.9,
            )


def _as_bytes(script: Script, compared: ast.Compare) -> Patch:
    """Return the patch that compares with the bytes of a text."""
    texts = [each for each in (compared.left, compared.comparators[0]) if isinstance(each, ast.Constant)]
    if len(texts) != 1 or not str(texts[0].value).isascii():
        return no_patch(BYTES, "compare with bytes, or decode() what the store returns")
    at = script.source.start(texts[0])
    return Patch(id=BYTES, safety="safe", edits=[Edit(at, at, "b")])


def _is_partial(script: Script, fact: Noted) -> bool:
    """Return whether a tensor is a sum over the shards of another one."""
    held = fact.node.func.value if isinstance(fact.node.func, ast.Attribute) else None
    for made in origins_at(script, held) if held is not None else ():
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or made.func.attr not in ADDS:
            return False
        whole = [each for each in origins_at(script, made.func.value) if isinstance(each, ast.Call)]
        if not whole or not all(last_name(each) == "distribute_tensor" and _is_sharded(each) for each in whole):
            return False
    return held is not None


def _is_sharded(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each) == "Shard" for each in ast.walk(call))


def _compared_with_text(script: Script, call: ast.Call) -> ast.Compare | None:
    """Return the comparison of the result of a call with a text."""
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        sides = [node.left, node.comparators[0]]
        if isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(sides[1], ast.Tuple | ast.List | ast.Set):
            sides = [node.left, *sides[1].elts[:1]]
        elif not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        for one, other in (sides, sides[::-1]):
            texts = origins_at(script, other)
            if origins_at(script, one) == [call] and texts and all(map(_is_text, texts)):
                return node
    return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_taken_for_tensor(script: Script, fact: Noted) -> bool:
    """Return whether the result is bound to the name of the tensor, or its attributes are read."""
    call = fact.node
    given = next((each.value for each in call.keywords if each.arg == "tensor"), call.args[0] if call.args else None)
    match script.source.parents.get(call):
        case ast.Attribute():
            return True
        case ast.Assign(targets=[target]) as stmt:
            name = dotted_name(target)
            if name and given is not None and name == dotted_name(given):
                return True
            around = script.names.enclosing_function(stmt) or script.source.tree
            return bool(name) and any(
                isinstance(node, ast.Attribute)
                and dotted_name(node.value) == name
                and origins_at(script, node.value) == [call]
                for node in ast.walk(around)
            )
        case _:
            return False
