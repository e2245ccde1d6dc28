"""DW421 to DW424: collectives whose result is lost or None, and tensors whose type or parts differ between ranks."""

import ast
import sys
from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from ..patches.torch_names import torch_module
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import at_node, violation_at
from . import unread_results

PREFIX = "torch.distributed."
FLOATS = "same-type-on-all"
IN_PLACE = {
    "all_reduce": "tensor",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_gather_into_tensor": "output_tensor",
}
RECEIVED = {"broadcast_object_list": "object_list", "scatter_object_list": "scatter_object_output_list"}
# Methods that return a tensor with a storage of its own.
COPIES = {"float", "double", "half", "bfloat16", "long", "int", "to", "cuda", "cpu", "clone", "mean", "sum", "type"}
ALWAYS_NEW = {"clone", "mean", "sum"}  # the others return the tensor itself where it is so already
MOVES = {"to", "cuda"}
MADE_ON_CPU = {
    f"torch.{name}" for name in ("tensor", "as_tensor", "zeros", "ones", "empty", "full", "from_numpy", "FloatTensor")
}
LOADS = {"checkpoint.load"}
COUNTS = {"tolist", "bincount", "histc", "sum", "unique", "count_nonzero", "size", "len"}
OF_SIZES = {f"torch.{name}" for name in ("rand", "randn", "empty")}
TENSORS = {"tensor", "as_tensor", "FloatTensor"}
NEW_OF_NUMBERS = ("torch.tensor", "torch.as_tensor")
SPLITS = (("output_split_sizes", 2), ("input_split_sizes", 3))


def check_temporary(script: Script, run: Run) -> Iterator[Violation]:
    """DW421: yield the collectives that write their result into a tensor nothing refers to, or nothing reads."""
    yield from unread_results.check(script, run)
    yield from unread_results.check_sent(script, run)
    yield from _lost_quotients(script, run)
    yield from _lost_objects(script, run)
    for reach, fact, name in _here(script, run, IN_PLACE):
        given = _argument(fact, 0, IN_PLACE[name])
        if not reach.several:
            continue  # the rank that sends needs no result
        copies = isinstance(given, ast.BinOp) or (
            isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr in COPIES
        )
        copies = copies or (given is not None and _is_made_of_data(script, given))
        if given is not None and copies and _is_statement(script, fact.node) and not _is_made_here(script, given):
            yield from violation_at(
                script,
                reach,
                f"`{script.source.one_line(given)}` is a new tensor: the result of {name} is in it, and lost with it",
                0.85,
                severity=_severity(script, given),
            )


def _severity(script: Script, given: ast.expr) -> Severity | None:
    """Return the severity for a tensor that may be a copy: a move to a device is none of a tensor that is there."""
    if not isinstance(given, ast.Call) or last_name(given.func) in ALWAYS_NEW:
        return None
    moved = given.func.value if isinstance(given.func, ast.Attribute) and given.func.attr in MOVES else None
    key = script.evaluated.value(moved) if moved else None
    computed = key is not None and not any(part.op == "call" and part.args[0] in MADE_ON_CPU for part in parts(key))
    return "info" if computed else "warning"


def _is_made_of_data(script: Script, given: ast.expr) -> bool:
    """Return whether a call makes a tensor of numbers that the program has computed, as their only holder."""
    if not isinstance(given, ast.Call) or script.names.qualified(given.func) not in NEW_OF_NUMBERS or not given.args:
        return False
    numbers = given.args[0].elts if isinstance(given.args[0], ast.List | ast.Tuple) else [given.args[0]]
    keys = [script.evaluated.value(each) for each in numbers if isinstance(each, ast.Attribute)]
    return any(key is not None and not key.is_constant and key.op not in ("rank", "world") for key in keys)


def _lost_objects(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the lists, made for the call alone, in which several ranks receive objects."""
    for reach, fact, name in _here(script, run, RECEIVED):
        given = _argument(fact, 0, RECEIVED[name])
        held = given.elts if isinstance(given, ast.List) else []
        named = next((each for each in held if isinstance(each, ast.Name | ast.Attribute)), None)
        if named is not None and reach.several and _is_statement(script, fact.node):
            yield from violation_at(
                script,
                reach,
                f"{name} puts what it receives into this list, which nothing refers to: "
                f"`{script.source.one_line(named)}` stays as it is",
                0.85,
            )


def _lost_quotients(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the divisions of a sum over the ranks by their number that are kept nowhere."""
    for reach, fact, name in _here(script, run, {"all_reduce": "tensor"}):
        given = _argument(fact, 0, "tensor")
        if given is None or not reach.several:
            continue
        around = script.names.enclosing_function(fact.node) or script.source.tree
        for stmt in nodes_below(around):
            match stmt:
                case (
                    ast.Expr(value=ast.BinOp(left=divided, op=ast.Div(), right=number) as lost)
                    | ast.Expr(value=ast.Call(func=ast.Attribute(value=divided, attr="div"), args=[number]) as lost)
                ) if ast.dump(divided) == ast.dump(given) and script.is_world_size(number):
                    yield from violation_at(
                        script,
                        at_node(script, reach, lost),
                        f"nothing keeps this mean: `{script.source.one_line(given)}` stays the sum made by {name}",
                        0.9,
                    )
                case _:
                    pass


def check_none(script: Script, run: Run) -> Iterator[Violation]:
    """DW422: yield the uses of what a collective returns that writes its result into its argument."""
    for reach, fact, name in _here(script, run, dict.fromkeys((*GROUP_PLACE, "checkpoint.load"), "")):
        if name == "new_group" or {"async_op", "**"} & fact.named.keys():
            continue
        if _is_waited_for(script, fact.node) or (not _is_statement(script, fact.node) and _is_used(script, fact.node)):
            yield from violation_at(
                script,
                reach,
                f"{name} returns None: its result is in the {'dict' if name in LOADS else 'tensor'} that it is given",
                0.9,
            )


def check_type(script: Script, run: Run) -> Iterator[Violation]:
    """DW423: yield the tensors of another type on ranks that have other data."""
    for reach, fact, name in _here(script, run, IN_PLACE):
        sent = argument(fact, 0, IN_PLACE[name])
        if sent and reach.several and (total := _total_of_some(sent.key)):
            yield from violation_at(
                script,
                reach,
                f"`{total.args[0]}` is still the whole number of its start on a rank whose part of the data is empty, "
                f"a float on the others: {name} of both fails, or gives nonsense",
                0.8,
                patch=partial(_as_floats, script, fact, name),
            )
        given = _argument(fact, 0, IN_PLACE[name])
        for made in script.names.origins(given) if given is not None else ():
            if not isinstance(made, ast.Call) or last_name(made.func) not in TENSORS or not made.args:
                continue
            typed = len(made.args) > 1 or any(each.arg == "dtype" for each in made.keywords)
            if not typed and last_name(made.func) != "FloatTensor" and _is_of_two_types(script, made.args[0]):
                yield from violation_at(
                    script,
                    reach,
                    "this tensor has whole numbers on ranks that take one side of "
                    f"`{script.source.one_line(made.args[0])}`, floats on the others: {name} of both fails, or gives "
                    "nonsense",
                    0.8,
                    patch=partial(_as_floats, script, fact, name),
                )


def _as_floats(script: Script, fact: Noted, name: str) -> Patch:
    """Return the patch that makes the tensor of a collective one of floats on every rank."""
    given, torch = _argument(fact, 0, IN_PLACE[name]), torch_module(script, fact.node)
    made = script.names.origins(given) if given is not None else []
    call = made[0] if len(made) == 1 else None
    is_tensor = isinstance(call, ast.Call) and last_name(call.func) == "tensor"
    if not torch or not isinstance(call, ast.Call) or not is_tensor or call_argument(call, "dtype"):
        return no_patch(FLOATS, "give the tensor a dtype")
    added = script.source.add_argument(call, f"dtype={torch}.float32")
    if added is None:
        return no_patch(FLOATS, "give the tensor a dtype")
    reason = "whole numbers above 16 million are rounded"
    return Patch(id=FLOATS, safety="unsafe", why_unsafe=reason, edits=[added])


def _total_of_some(tensor: Key) -> Key | None:
    """Return a sum of floats that begins with a whole number, if a rank may add nothing where another one does."""
    if tensor.op != "call" or tensor.args[0] != "torch.tensor" or len(tensor.args) != 2:
        return None
    for part in parts(tensor):
        accumulated = part.accumulated
        if accumulated is None or not accumulated.first.is_constant or type(accumulated.first.value) is not int:
            continue
        match accumulated.after.op, accumulated.after.args:
            case "binary", ("Add", over, more) if over is accumulated.over and _is_float(more):
                counts = [
                    [number(accumulated.rounds, rank._replace(side=side)) for rank in PAIR] for side in (True, False)
                ]
                if any(0 in pair and any(pair) for pair in counts):
                    return part
            case _:
                pass
    return None


def _is_float(key: Key) -> bool:
    """Return whether a number is surely a float: a loss, a quotient, or computed with one."""
    if key.is_constant:
        return isinstance(key.value, float)
    if key.op == "call":
        return str(key.args[0]).startswith("torch.nn.functional.")
    if key.op == "binary":
        return key.args[0] == "Div" or any(_is_float(each) for each in key.args[1:])
    return False


def _is_same(script: Script, received: ast.expr, sent: ast.expr) -> bool:
    """Return whether two numbers of elements are written the same, or are copies of one that data of a rank decide."""
    if ast.dump(received) == ast.dump(sent):
        return True
    first, second = script.evaluated.value(received), script.evaluated.value(sent)
    return (
        first is not None
        and first is second
        and (bool(first.differs_by & LOCAL) or any(map(_counts_values, parts(first))))
    )


def _counts_values(key: Key) -> bool:
    return key.op == "call" and str(key.args[0]).removeprefix("torch.") in ("bincount", "histc", "count_nonzero")


def check_splits(script: Script, run: Run) -> Iterator[Violation]:
    """DW424: yield the exchanges in which each rank takes what it sends for what it receives."""
    for reach, fact, name in _here(script, run, {"all_to_all_single": ""}):
        received, sent = (_argument(fact, place, word) for word, place in SPLITS)
        if received is None or sent is None or not _is_same(script, received, sent):
            continue
        made = [each for each in script.names.origins(received) if isinstance(each, ast.Call)]
        if any(last_name(each.func) in COUNTS for each in made):
            yield from violation_at(
                script,
                reach,
                f"the sizes of what this rank sends are passed as those of what it receives: {name} needs the counts "
                "of the other ranks, exchanged before",
                0.85,
            )


def _is_made_here(script: Script, value: ast.expr) -> bool:
    """Return whether a tensor is made in place: such a call only waits for the others."""
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    return all(_is_of_torch(script, name) or _holds_no_data(script, name) for name in names)


def _is_of_torch(script: Script, name: ast.Name) -> bool:
    return script.names.qualified(name).partition(".")[0] == "torch"


def _holds_no_data(script: Script, name: ast.Name) -> bool:
    """Return whether a tensor is only one of a size, as for a measurement of time."""
    made = script.names.origins(name)
    return (
        bool(made)
        and all(isinstance(each, ast.Call) and script.names.qualified(each.func) in OF_SIZES for each in made)
        and not any(_is_change(node, name.id) for node in nodes_below(script.source.tree))
    )


def _is_change(node: ast.AST, name: str) -> bool:
    """Return whether something is written into a tensor in place."""
    match node:
        case ast.Subscript(value=ast.Name(id=written), ctx=ast.Store()) | ast.AugAssign(target=ast.Name(id=written)):
            return written == name
        case ast.Attribute(value=ast.Name(id=written), attr=method):
            return written == name and method.endswith("_")
        case _:
            return False


def _here(script: Script, run: Run, names: "dict[str, str]") -> Iterator[tuple[Reach, Noted, str]]:
    for reach, fact in run.of(*(PREFIX + name for name in names)):
        if script.is_here(reach):
            yield reach, fact, fact.name.removeprefix(PREFIX)


def _argument(fact: Noted, place: int, name: str) -> ast.expr | None:
    """Return an argument as it is written."""
    if place < len(fact.node.args):
        return fact.node.args[place]
    return next((each.value for each in fact.node.keywords if each.arg == name), None)


def _is_statement(script: Script, call: ast.Call) -> bool:
    """Return whether nothing takes the result of a call."""
    parent = script.source.parents.get(call)
    while isinstance(parent, ast.IfExp | ast.BoolOp | ast.Await):
        parent = script.source.parents.get(parent)
    return parent is None or isinstance(parent, ast.Expr | ast.Lambda | ast.Return | ast.comprehension | ast.ListComp)


def _is_waited_for(script: Script, call: ast.Call) -> bool:
    """Return whether the result of a call is kept in a list of handles, for each of which something waits."""
    match script.source.parents.get(call):
        case ast.Call(func=ast.Attribute(value=kept, attr="append")):
            held = dotted_name(kept)
        case ast.ListComp(elt=element) as made if element is call:
            stmt = script.source.parents.get(made)
            held = dotted_name(stmt.targets[0]) if isinstance(stmt, ast.Assign) else ""
        case _:
            return False
    around = script.names.enclosing_function(call)
    if held.startswith("self."):
        around = script.names.enclosing_class(script.names.scope_of[call])
    for loop in ast.walk(around or script.source.tree) if held else ():
        match loop:
            case ast.For(target=ast.Name(id=name), iter=over, body=body) if dotted_name(over) == held:
                return any(_waits(node, name) for stmt in body for node in ast.walk(stmt))
            case _:
                pass
    return False


def _waits(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=waited), attr="wait")):
            return waited == name
        case _:
            return False


def _is_used(script: Script, call: ast.Call) -> bool:
    """Return whether the result of a call is computed with, directly or by the name it gets."""
    parent = script.source.parents.get(call)
    if isinstance(parent, ast.Attribute | ast.BinOp | ast.Subscript | ast.Compare | ast.UnaryOp):
        return True
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    around: ast.AST | None = parent
    while around is not None and not isinstance(around, FUNCTIONS):
        around = script.source.parents.get(around)
    inside = nodes_below(around or script.source.tree)
    later = script.source.block_of(parent)
    later = later[later.index(parent) + 1 :]
    last = next((stmt.end_lineno for stmt in later if _assigns(stmt, name)), None)
    reads = (node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    lines = range(parent.lineno + 1, (last or sys.maxsize) + 1)  # until it has another value
    used = {type(script.source.parents.get(node)) for node in reads if node.id == name and node.lineno in lines}
    return bool(used & {ast.Attribute, ast.BinOp, ast.Subscript, ast.Call, ast.Compare, ast.Return})


def _assigns(stmt: ast.stmt, name: str) -> bool:
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    return any(isinstance(each, ast.Name) and each.id == name for each in targets)


def _is_of_two_types(script: Script, value: ast.expr) -> bool:
    """Return whether a value is a whole number on one side of a condition and a float on the other."""
    choices = [each for each in (value, *script.names.origins(value)) if isinstance(each, ast.IfExp)]
    sides = {kind for choice in choices for kind in (_type(choice.body), _type(choice.orelse))}
    return sides == {"int", "float"}


def _type(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=bool()):
            return ""
        case ast.Constant(value=int()):
            return "int"
        case ast.Constant(value=float()) | ast.BinOp(op=ast.Div()):
            return "float"
        case ast.Call(func=ast.Name(id="float")) | ast.Call(func=ast.Attribute(attr="item")):
            return "float"
        case ast.Call(func=ast.Name(id="int" | "len")):
            return "int"
        case _:
            return ""
