"""Variables that a loop changes and reads again in a later iteration, or behind it: counters, sums, the best so far."""

import ast
from collections.abc import Iterable, Iterator

from ...training_script.reaching_values import may_be_unbound
from ...training_script.scopes import Binding
from ...training_script.syntax import FUNCTIONS, Function, dotted_name, last_name
from .facts import Loop, TrainingFacts
from .saved_parts import is_saved
from .types import Refusal

CHANGES = {"append", "extend", "insert", "update", "add", "appendleft", "setdefault"}
PLAIN_CALLS = {
    *("int", "float", "bool", "str", "list", "dict", "set", "tuple", "deque", "Counter", "defaultdict", "OrderedDict"),
    *("zeros", "tensor", "ones", "zeros_like", "full", "empty"),
}


def carried_values(facts: TrainingFacts, loop: Loop) -> list[str]:
    """Return the variables and attributes of ``self`` that ``loop`` carries over its iterations, in order.

    Raises:
        Refusal: One of them may get its first value in the loop: a run that continues behind that place has none.
    """
    written, sure = _written(facts, loop)
    early = _read_before_written(loop)
    behind = _read_behind(facts, loop)
    found = [
        name
        for name, kinds in written.items()
        if name in early
        or "in place" in kinds
        or (name.startswith("self.") and "assigned" in kinds and name not in sure)
        or (name in behind and name not in sure)
    ]
    for name in found:
        _check_reads(facts, loop, name)
    return [name for name in found if _begins_plain(facts, loop, name)]


def unsaved_values(facts: TrainingFacts, loop: Loop) -> list[ast.expr]:
    """Return the other objects that ``loop`` collects in: a metric or a meter with ``update``."""
    found: dict[str, ast.expr] = {}
    for node in (each for part in (loop, *facts.training_functions) for each in _nodes(part)):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=attr))) if attr in CHANGES:
                name = _variable(target)
                if name and not _begins_plain(facts, loop, name) and not is_saved(facts, target):
                    found.setdefault(name, target)
            case _:
                pass
    return [*found.values()]


def reads(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names and attributes of ``self`` that nodes read or change in place."""
    found: set[str] = set()
    for node in (each for top in nodes for each in ast.walk(top)):
        if isinstance(node, (ast.Name, ast.Attribute)) and (name := _variable(node)):
            stored = isinstance(node.ctx, ast.Store)
            found |= set() if stored else {name}
        if isinstance(node, ast.AugAssign) and (name := _variable(node.target)):
            found.add(name)
    return found


def _variable(node: ast.AST) -> str:
    """Return ``name`` or ``self.name``, or "" for anything else."""
    name = dotted_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    parts = name.split(".")
    return name if len(parts) == 1 or (len(parts) == 2 and parts[0] == "self") else ""


def _written(facts: TrainingFacts, loop: Loop) -> tuple[dict[str, set[str]], set[str]]:
    """Return what a loop and the methods that it calls write, and which of it each iteration surely assigns."""
    written: dict[str, set[str]] = {}
    for node in _nodes(loop):
        for name, kind in _writes(node):
            written.setdefault(name, set()).add(kind)
    for function in _methods(facts, loop):
        for node in _nodes(function):
            for name, kind in _writes(node):
                if name.startswith("self."):
                    written.setdefault(name, set()).add(kind)
    return written, {name for stmt in loop.body for name, kind in _writes(stmt) if kind == "assigned"}


def _writes(node: ast.AST) -> Iterator[tuple[str, str]]:
    targets: list[ast.expr] = []
    match node:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target, value=ast.expr()) | ast.NamedExpr(target=target):
            targets = [target]
        case ast.AugAssign(target=ast.Subscript(value=target) | target):
            if name := _variable(target):
                yield name, "in place"
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=attr))) if attr in CHANGES:
            if name := _variable(target):
                yield name, "in place"
        case _:
            pass
    for target in (part for each in targets for part in ast.walk(each)):
        if isinstance(target, (ast.Name, ast.Attribute)) and isinstance(target.ctx, ast.Store):
            if name := _variable(target):
                yield name, "assigned"
        elif isinstance(target, ast.Subscript) and (name := _variable(target.value)):
            yield name, "in place"


def _nodes(part: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a loop or function, without those of functions and classes in it."""
    pending = [*ast.iter_child_nodes(part)]
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            pending = [*ast.iter_child_nodes(node), *pending]


def _methods(facts: TrainingFacts, loop: Loop) -> list[Function]:
    """Return the methods of the same object that a loop calls, directly or through others."""
    found: list[Function] = []
    pending: list[ast.AST] = [loop]
    while pending:
        for node in _nodes(pending.pop()):
            if isinstance(node, ast.Call) and dotted_name(node.func).startswith("self."):
                function = facts.names.function(node)
                if function is not None and function not in found:
                    found.append(function)
                    pending.append(function)
    return found


def _read_before_written(loop: Loop) -> set[str]:
    """Return the names that an iteration reads before it surely assigns them."""
    found = reads([loop.test]) if isinstance(loop, ast.While) else set[str]()
    assigned = {dotted_name(node) for node in ast.walk(loop.target)} if isinstance(loop, ast.For) else set[str]()
    for stmt in loop.body:
        value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
        found |= reads([value] if value is not None else [stmt]) - assigned
        assigned |= {name for name, kind in _writes(stmt) if kind == "assigned"}
    return found


def _read_behind(facts: TrainingFacts, loop: Loop) -> set[str]:
    """Return the names that are read behind a loop in its function."""
    function = facts.names.enclosing_function(loop)
    whole = function or facts.source.tree
    end = loop.end_lineno or loop.lineno
    return reads(node for node in _nodes(whole) if isinstance(node, ast.expr) and node.lineno > end)


def _check_reads(facts: TrainingFacts, loop: Loop, name: str) -> None:
    """Refuse a variable that only some iterations bind or read, and that has no value when the run continues there.

    Loops in ``loop`` have a batch left then, and what they bind is bound behind them.
    """
    uses = [(node, _conditions(facts, loop, node)) for node in _uses(facts, loop, name)]
    if not any(_changes(facts, loop, test) for _, conditions in uses for test, _ in conditions):
        return
    stores = [(node, conditions) for node, conditions in uses if isinstance(node.ctx, ast.Store)]
    for node, conditions in uses:
        stmt = facts.source.statement_of(node)
        if isinstance(node.ctx, ast.Store) and not isinstance(stmt, ast.AugAssign):
            continue
        is_bound = any(
            facts.source.statement_of(store).lineno < stmt.lineno and under <= conditions for store, under in stores
        )
        if not is_bound and may_be_unbound(facts.names, node, stmt):
            raise Refusal(
                node.lineno,
                f"`{name}` may have no value here when the run continues: give it one before the loop of line "
                f"{loop.lineno}",
            )


def _conditions(facts: TrainingFacts, loop: Loop, node: ast.AST) -> set[tuple[ast.expr, bool]]:
    """Return the tests around a statement of a loop, each with the side that it is on."""
    found: set[tuple[ast.expr, bool]] = set()
    while node is not loop:
        above = facts.source.parents[node]
        if isinstance(above, ast.If | ast.While) and above is not loop and node is not above.test:
            found.add((above.test, node in above.body))
        node = above
    return found


def _changes(facts: TrainingFacts, loop: Loop, test: ast.expr) -> bool:
    """Return whether a condition reads what the iterations of a loop change."""
    changing = {name for each in _nodes(loop) for name, _ in _writes(each)}
    for each in (loop, *_nodes(loop)):
        changing |= {dotted_name(part) for part in ast.walk(each.target)} if isinstance(each, ast.For) else set[str]()
    return not changing.isdisjoint(reads([test]))


def _uses(facts: TrainingFacts, loop: Loop, name: str) -> list[ast.Name]:
    """Return the places in a loop that name a variable of the function around the loop."""
    known = facts.names.lookup(name, facts.names.scope_of[loop])
    return [
        node
        for node in _nodes(loop)
        if isinstance(node, ast.Name)
        and node.id == name
        and facts.names.lookup(name, facts.names.scope_of[node]) == known
    ]


def _begins_plain(facts: TrainingFacts, loop: Loop, name: str) -> bool:
    """Return whether a variable is bound before the loop, to a number, a text or a container of such."""
    if any(may_be_unbound(facts.names, node, loop) for node in _uses(facts, loop, name)[:1]):
        return False
    inside = {*ast.walk(loop)}
    if name.startswith("self."):
        owner = facts.names.enclosing_class(facts.names.scope_of[loop])
        bindings = facts.names.attributes.get((owner, name), []) if owner else []
    else:
        found = facts.names.lookup(name, facts.names.scope_of[loop])
        bindings = found[0] if found else []
    return any(binding.at not in inside and _gives_plain(facts, binding) for binding in bindings)


def _gives_plain(facts: TrainingFacts, binding: Binding) -> bool:
    if binding.kind == "param":
        given = facts.names.origins_of_binding(binding)
        return any(isinstance(each, ast.expr) and _is_plain(each, None) for each in given)
    return binding.value is not None and _is_plain(binding.value, binding.place)


def _is_plain(value: ast.expr, place: int | None) -> bool:
    if place is not None and isinstance(value, (ast.Tuple, ast.List)) and place < len(value.elts):
        return _is_plain(value.elts[place], None)
    match value:
        case ast.Constant() | ast.List() | ast.Dict() | ast.Set() | ast.Tuple() | ast.ListComp() | ast.DictComp():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_plain(operand, None)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left, None) and _is_plain(right, None)
        case ast.Call():
            return last_name(value.func) in PLAIN_CALLS
        case ast.Attribute(attr="inf"):
            return True
    return False
