"""DW421: results of collectives in tensors that nothing reads afterwards."""

import ast
from collections.abc import Iterator

from ...training_script.model.calls import MEASURES
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, parts
from ...training_script.model.library_calls import RANDOM
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import at_node, violation_at
from .fsdp_order import FSDP1, FSDP2

WRAPPERS = (*DDP_CLASSES, *FSDP1, *FSDP2)
PREFIX = "torch.distributed."
REDUCTIONS = ("all_reduce", "reduce")
# Functions and methods that return a tensor with a storage of its own.
JOINS = {"cat", "concat", "stack", "hstack", "vstack", "_flatten_dense_tensors", "parameters_to_vector"}
COPIES = {"clone", "deepcopy", *JOINS}
NEW = {"tensor", "clone", "mean", "sum", "FloatTensor", "deepcopy", *JOINS}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions of data of the ranks whose result nothing reads."""
    reductions = list(run.of(*(PREFIX + name for name in REDUCTIONS)))
    of_gradients = [fact for _, fact in reductions if (sent := argument(fact, 0, "tensor")) and _is_gradient(sent)]
    by_hand = len({fact.site for fact in of_gradients}) == 1 and not any(run.of(*WRAPPERS)) and any(run.of(".step"))
    for reach, fact in reductions:
        sent, given = argument(fact, 0, "tensor"), call_argument(fact.node, "tensor", 0)
        if sent is None or given is None or not script.is_here(reach) or not reach.several:
            continue
        if not (_is_of_rank(sent) or (isinstance(given, ast.Call) and sent.key.differs_by & BY_RANK)):
            continue
        name = fact.name.removeprefix(PREFIX)
        if isinstance(given, ast.Call) and last_name(given.func) in NEW - {"clone", "mean", "sum"}:
            if isinstance(script.source.parents.get(fact.node), ast.Expr):
                message = f"`{script.source.one_line(given)}` is a new tensor: the result of {name} is lost with it"
                yield from violation_at(script, reach, message, 0.85)
        elif isinstance(given, ast.Name) and (lost := _lost_at(script, fact, given, by_hand and _is_gradient(sent))):
            message = f"the result of {name} is in `{given.id}`, a tensor of its own, and nothing reads it afterwards"
            if _is_gradient(sent) and not _is_unread(script, fact, given):
                message = f"the gradients of all ranks are in `{given.id}` only, and nothing writes them back"
            if lost is not fact.node:
                message = f"this binds a name, and writes nothing: the result of {name} (line {given.lineno}) is lost"
            yield from violation_at(script, at_node(script, reach, lost), message, 0.8)


def check_sent(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the broadcasts into a copy that nothing reads afterwards."""
    for reach, fact in run.of(PREFIX + "broadcast"):
        given = call_argument(fact.node, "tensor", 0)
        if not (isinstance(given, ast.Name) and reach.by_all and script.is_here(reach)):
            continue
        made = [each for each in script.names.origins(given) if isinstance(each, ast.Call)]
        copied = len(made) == 1 and last_name(made[0].func) in COPIES
        if copied and _lost_at(script, fact, given, may_be_measured=False) is not None:
            yield from violation_at(
                script,
                reach,
                f"`{given.id}` is a copy, and nothing reads it afterwards: what the ranks receive is lost with it",
                0.8,
            )


def _is_of_rank(sent: Value) -> bool:
    """Return whether a tensor holds gradients, what a loop sums up, or data of a rank other than random numbers."""
    held = (part.accumulated or (part.op == "local" and part.args[0] != RANDOM) for part in parts(sent.key))
    return _is_gradient(sent) or any(held)


def _is_gradient(sent: Value) -> bool:
    return "gradient" in sent.facts


def _is_unread(script: Script, reduction: Noted, tensor: ast.Name) -> bool:
    return _lost_at(script, reduction, tensor, may_be_measured=False) is not None


def _lost_at(script: Script, reduction: Noted, tensor: ast.Name, may_be_measured: bool) -> ast.expr | None:
    """Return where the result of a reduction is lost, None if something may read it.

    ``may_be_measured``: a number that tells how large it is does not count.
    """
    source = script.source
    stmt = source.statement_of(reduction.node)
    block = source.block_of(stmt)
    before = block[: block.index(stmt)] if stmt in block else []
    made = next((each for each in reversed(before) if tensor.id in _bound(each)), None)
    if not isinstance(made, ast.Assign) or not _is_new(made.value):
        return None
    function = script.names.enclosing_function(reduction.node)
    around = function or source.tree
    if function is None and any(isinstance(node, FUNCTIONS) and _names(node, {tensor.id}) for node in source.tree.body):
        return None
    if any(_is_read_first(loop, tensor.id) for loop in _loops_around(script, stmt)):
        return None
    held, lost = {tensor.id}, reduction.node
    kept = {name for node in nodes_below(around) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    if tensor.id in kept:
        return None
    reads = [node for node in ast.walk(around) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    end = stmt.end_lineno or stmt.lineno
    for node in sorted(reads, key=lambda each: (each.lineno, each.col_offset)):
        if node.id not in held or node.lineno <= end:
            continue
        if may_be_measured and _is_measured(script, node):
            continue
        at = source.statement_of(node)
        match at:
            case ast.Assign(targets=targets) if all(map(_is_names, targets)):
                rebound = _bound(at)
            case ast.For(target=target, iter=over) if node in ast.walk(over) and _is_names(target):
                held |= _bound(at)
                continue
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=change))) if owner is node:
                if change.endswith("_"):
                    continue
                return None
            case _:
                return None
        if rebound & held and isinstance(at.value, ast.Name):
            lost = at.value
        held |= rebound
    return lost


def _loops_around(script: Script, stmt: ast.stmt) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    at: ast.AST | None = script.source.parents.get(stmt)
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.For | ast.AsyncFor | ast.While):
            yield at
        at = script.source.parents.get(at)


def _is_read_first(loop: ast.For | ast.AsyncFor | ast.While, name: str) -> bool:
    """Return whether a round of a loop reads what the round before has left under a name."""
    for stmt in loop.body:
        uses = [node for node in ast.walk(stmt) if isinstance(node, ast.Name) and node.id == name]
        if uses:
            return any(isinstance(node.ctx, ast.Load) for node in uses)
    return False


def _is_measured(script: Script, tensor: ast.Name) -> bool:
    """Return whether a tensor is only the object of a method that returns its size as a number."""
    method = script.source.parents.get(tensor)
    return isinstance(method, ast.Attribute) and method.attr in MEASURES and method.value is tensor


def _is_new(value: ast.expr) -> bool:
    """Return whether an expression surely makes a tensor of its own, other than by converting one."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        return _is_new(value.func.value)
    if isinstance(value, ast.Call) and last_name(value.func) == "_flatten_dense_tensors":
        return not (value.args and isinstance(value.args[0], ast.List | ast.Tuple) and len(value.args[0].elts) == 1)
    return isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and last_name(value.func) in NEW)


def _is_names(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (isinstance(target, ast.Tuple) and all(map(_is_names, target.elts)))


def _bound(stmt: ast.stmt) -> set[str]:
    """Return the names that an assignment or a loop binds."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target] if isinstance(stmt, ast.For) else []
    return {node.id for each in targets for node in ast.walk(each) if isinstance(node, ast.Name)}


def _names(node: ast.AST, wanted: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in wanted for each in ast.walk(node))
