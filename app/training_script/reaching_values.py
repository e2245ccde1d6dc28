"""Values that a name may hold at a place: followed over branches, loops, ``try``, ``with`` and early exits.

``Names`` knows everything that is ever bound to a name; here only what reaches the place counts, and that nothing has
been bound yet. Of a program that ran, a line that read the name proves that it was bound.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from weakref import WeakKeyDictionary

from .control_flow import LEAVING_CALLS
from .name_resolution import Names
from .scopes import Binding
from .syntax import FUNCTIONS, Function, called_function_name, dotted_name, last_name, nodes_of_body

MOST_STEPS = 20_000  # statements that are passed: loops in loops are passed again and again
DEPTH = 4  # of calls that are followed to the values of an outer scope
MOST_KEPT = 50_000  # states of the statements of one script


class Absent(Enum):
    """No value: the name is not bound, or holds None."""

    UNBOUND = "unbound"
    NONE = "None"


Value = ast.AST | Absent
State = frozenset[Value]  # empty: the place is not reached
NOTHING: State = frozenset()
UNBOUND: State = frozenset([Absent.UNBOUND])
Reached = dict[tuple[ast.stmt, bool], State]  # before each statement, and at the start of each iteration of a loop
_REACHED: "WeakKeyDictionary[Names, dict[object, tuple[Reached, bool]]]" = WeakKeyDictionary()


def values_at(names: Names, expr: ast.Name | ast.Attribute, stmt: ast.stmt, *, inside: bool = False) -> State:
    """Return the values that a name or an attribute of ``self`` may hold before ``stmt`` runs.

    ``inside``: at the start of each iteration of the loop ``stmt``. Values are the leaves of ``Names.origins``.
    """
    return _at(names, expr, stmt, inside, DEPTH)


def may_be_unbound(names: Names, expr: ast.Name | ast.Attribute, stmt: ast.stmt) -> bool:
    """Return whether a name that the function around ``stmt`` binds may have no value before ``stmt`` runs."""
    function = names.enclosing_function(stmt)
    is_own = any(names.enclosing_function(each.at) is function for each in names.bindings(expr))
    return is_own and Absent.UNBOUND in values_at(names, expr, stmt)


def may_return_nothing(names: Names, function: Function) -> bool:
    """Return whether a function may end without a ``return`` that gives a value."""
    flow = _Flow(names, "", {})
    ends = flow.block(function.body, UNBOUND)
    bare = any(isinstance(node, ast.Return) and node.value is None for node in nodes_of_body(function))
    return bool(ends) or bare


def _at(names: Names, expr: ast.Name | ast.Attribute, stmt: ast.stmt, inside: bool, depth: int) -> State:
    function = names.enclosing_function(stmt)
    bindings = names.bindings(expr)
    elsewhere = [each for each in bindings if names.enclosing_function(each.at) is not function]
    reached, gave_up = _reached(names, expr, function, bindings, depth)
    found = reached.get((stmt, inside), NOTHING) | (UNBOUND if gave_up else NOTHING)
    return found | _leaves(names, elsewhere) if found and elsewhere and _rebinds(names, expr, function) else found


def _reached(
    names: Names, expr: ast.Name | ast.Attribute, function: Function | None, bindings: Sequence[Binding], depth: int
) -> tuple[Reached, bool]:
    """Return the states of a name in one function, and whether they are not complete; they are kept with ``names``."""
    path = dotted_name(expr)
    kept = _REACHED.setdefault(names, {})
    key = path, function, tuple(map(id, bindings)), depth
    known = kept.get(key)
    if known is None:
        here = [each for each in bindings if names.enclosing_function(each.at) is function]
        elsewhere = [each for each in bindings if names.enclosing_function(each.at) is not function]
        flow = _Flow(names, path, _by_place(names, here))
        body = function.body if function else names.source.tree.body
        flow.block(body, _at_entry(names, expr, function, here, elsewhere, depth))
        if sum(len(reached) for reached, _ in kept.values()) > MOST_KEPT:
            kept.clear()
        known = kept[key] = flow.reached, flow.gave_up
    return known


def _at_entry(
    names: Names,
    expr: ast.Name | ast.Attribute,
    function: Function | None,
    here: Sequence[Binding],
    elsewhere: Sequence[Binding],
    depth: int,
) -> State:
    """Return what the name holds when its function is called."""
    if parameter := next((each for each in here if each.kind == "param"), None):
        return _leaves(names, [parameter])
    if function is None or depth == 0:
        return UNBOUND
    if isinstance(expr, ast.Attribute):
        return _after_init(names, expr, function) | _leaves(names, elsewhere)
    if here or not elsewhere:
        return UNBOUND
    calls = [call for call, _ in names.arguments.get(function, [])]
    if not calls or _is_passed_on(names, function, calls):
        return UNBOUND
    places = [_statement(names, call) for call in calls]
    return NOTHING.union(*(_at(names, expr, place, False, depth - 1) for place in places))


def _after_init(names: Names, expr: ast.Attribute, function: Function) -> State:
    """Return what an attribute of ``self`` holds when ``__init__`` has run."""
    owner = names.source.parents.get(function)
    init = names.method(owner, "__init__") if isinstance(owner, ast.ClassDef) else None
    if init is None or init is function or not dotted_name(expr).startswith("self."):
        return UNBOUND
    own = [each for each in names.bindings(expr) if names.enclosing_function(each.at) is init]
    flow = _Flow(names, dotted_name(expr), _by_place(names, own))
    return flow.block(init.body, UNBOUND) | flow.returned


def _rebinds(names: Names, expr: ast.Name | ast.Attribute, function: Function | None) -> bool:
    """Return whether a function that is called meanwhile may bind the name: an attribute, or a ``global`` name."""
    if isinstance(expr, ast.Attribute):
        return True
    found = names.lookup(expr.id, names.scope_of.get(expr, names.module))
    owner = found[1].function if found else None
    return owner is function


def _is_passed_on(names: Names, function: Function, calls: Sequence[ast.Call]) -> bool:
    """Return whether a function is used in another way than by these calls."""
    called = {id(call.func) for call in calls}
    return any(
        isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == function.name and id(node) not in called
        for node in names.scope_of
    )


def _statement(names: Names, node: ast.AST) -> ast.stmt:
    while not isinstance(node, ast.stmt):
        node = names.source.parents[node]
    return node


def _by_place(names: Names, bindings: Iterable[Binding]) -> dict[ast.AST, State]:
    places: dict[ast.AST, State] = {}
    for binding in bindings:
        if binding.kind != "param":
            places[binding.at] = places.get(binding.at, NOTHING) | _leaves(names, [binding])
    return places


def _leaves(names: Names, bindings: Iterable[Binding]) -> State:
    """Return the values that bindings give; one that cannot be followed is the binding itself."""
    found: set[Value] = set()
    for binding in bindings:
        found |= {*names.origins_of_binding(binding)}
        if binding.kind == "assign" and binding.value and _calls_for_nothing(names, binding.value):
            found.add(Absent.NONE)
    return frozenset(Absent.NONE if _is_none(value) else value for value in found)


def _calls_for_nothing(names: Names, value: ast.expr) -> bool:
    function = names.function(value) if isinstance(value, ast.Call) else None
    return function is not None and function.name != "__init__" and may_return_nothing(names, function)


def _is_none(value: Value) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _nodes_around(names: Names, places: Iterable[ast.AST]) -> set[ast.AST]:
    """Return these nodes and all that they are parts of."""
    found: set[ast.AST] = set()
    for place in places:
        node: ast.AST | None = place
        while node is not None and node not in found:
            found.add(node)
            node = names.source.parents.get(node)
    return found


class _Flow:
    """One pass over the statements of a function for one name."""

    def __init__(self, names: Names, path: str, places: dict[ast.AST, State]) -> None:
        self.names, self.path, self.places = names, path, places
        self.reached: Reached = {}
        self._around = _nodes_around(names, places)
        self.returned: State = NOTHING
        self._broken: list[State] = []  # of each loop, the states at its breaks
        self._again: list[State] = []  # and at its ``continue``
        self._tried: list[State] = []  # of each ``try``, every state in its body
        self._steps = 0

    @property
    def gave_up(self) -> bool:
        """True if the states are not complete, as loops in loops took too long."""
        return self._steps > MOST_STEPS

    def block(self, stmts: Sequence[ast.stmt], state: State) -> State:
        """Return the state behind statements."""
        self._steps += len(stmts)
        for stmt in stmts:
            self._note(stmt, False, state)
            state = self._statement(stmt, state)
            self._tried = [tried | state for tried in self._tried]
        return state

    def _note(self, stmt: ast.stmt, inside: bool, state: State) -> None:
        self.reached[stmt, inside] = self.reached.get((stmt, inside), NOTHING) | state

    def _statement(self, stmt: ast.stmt, state: State) -> State:
        if not state:
            return state
        match stmt:
            case ast.If(test=test, body=body, orelse=orelse):
                state = self._bound_in(test, state)
                return self.block(body, self._if(test, True, state)) | self.block(orelse, self._if(test, False, state))
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(stmt, state)
            case ast.Try():
                return self._try(stmt, state)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    state = self.places.get(item, self._bound_in(item.context_expr, state))
                if any("suppress" in ast.unparse(item.context_expr) for item in items):
                    return self._body_of_try(body, state)[1]
                return self.block(body, state)
            case ast.Match(subject=subject, cases=cases):
                state = self._bound_in(subject, state)
                certain = any(isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern for case in cases)
                ends = [self.block(case.body, self._bound_in(case.pattern, state)) for case in cases]
                return NOTHING.union(*ends, NOTHING if certain else state)
            case ast.Return(value=value):
                self.returned |= self._bound_in(value, state) if value else state
                return NOTHING
            case ast.Raise():
                return NOTHING
            case ast.Break() | ast.Continue():
                leaving = self._broken if isinstance(stmt, ast.Break) else self._again
                leaving[-1] |= state
                return NOTHING
            case ast.Expr(value=ast.Call() as call) if called_function_name(call) in LEAVING_CALLS:
                return NOTHING
            case ast.Assert(test=test):
                return self._if(test, True, self._bound_in(test, state))
            case ast.Delete(targets=targets) if any(dotted_name(target) == self.path for target in targets):
                return UNBOUND
        if stmt in self.places:
            return self.places[stmt]
        return state if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)) else self._bound_in(stmt, state)

    def _bound_in(self, node: ast.AST, state: State) -> State:
        """Return the state when the name may be bound inside of an expression."""
        if node not in self._around:
            return state
        for inner in (node, *nodes_of_body(node)):
            state |= self.places.get(inner, NOTHING)
        return state

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, state: State) -> State:
        test = stmt.test if isinstance(stmt, ast.While) else None
        before = self._bound_in(stmt.iter if isinstance(stmt, (ast.For, ast.AsyncFor)) else stmt.test, state)
        self._broken.append(NOTHING)
        while True:
            self._again.append(NOTHING)
            within = self.places.get(stmt, self._if(test, True, before) if test else before)
            self._note(stmt, True, within)
            after = self.block(stmt.body, within) | self._again.pop()
            if after <= before or self._steps > MOST_STEPS:
                break
            before |= after
        done = NOTHING if isinstance(test, ast.Constant) and test.value else before
        ended = self.block(stmt.orelse, self._if(test, False, done) if test else done)
        return ended | self._broken.pop()

    def _try(self, stmt: ast.Try, state: State) -> State:
        after, anywhere = self._body_of_try(stmt.body, state)
        ended = self.block(stmt.orelse, after)
        for handler in stmt.handlers:
            named = self.places.get(handler)
            behind = self.block(handler.body, named or anywhere)
            ended |= UNBOUND if named and behind else behind
        return self.block(stmt.finalbody, ended)

    def _body_of_try(self, body: Sequence[ast.stmt], state: State) -> tuple[State, State]:
        """Return the state behind a body, and every state that an exception in it may leave."""
        self._tried.append(state)
        after = self.block(body, state)
        return after, self._tried.pop()

    def _if(self, test: ast.expr, truth: bool, state: State) -> State:
        """Return the state where ``test`` has this value."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._if(operand, not truth, state)
            case ast.BoolOp(op=op, values=values) if truth is isinstance(op, ast.And):
                for value in values:
                    state = self._if(value, truth, state)
                return state
            case ast.BoolOp(values=[first, *_]):
                return state - UNBOUND if any(self._reads(first)) else state
        if not any(self._reads(test)):
            return state
        state -= UNBOUND  # else the test would have raised
        return state - {Absent.NONE} if self._excludes_none(test, truth) else state

    def _excludes_none(self, test: ast.expr, truth: bool) -> bool:
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
                return self._is_name(left) and truth is isinstance(op, (ast.IsNot, ast.NotEq))
            case ast.Call(func=ast.Name(id="isinstance" | "hasattr"), args=[subject, _]):
                return truth and self._is_name(subject)
        return truth and self._is_name(test)

    def _is_name(self, node: ast.AST) -> bool:
        return dotted_name(node) == self.path

    def _reads(self, node: ast.expr) -> Iterator[bool]:
        """Yield True for each place in an expression that surely reads the name."""
        match node:
            case ast.IfExp(test=test):
                yield from self._reads(test)
            case ast.BoolOp(values=[first, *_]):
                yield from self._reads(first)
            case ast.Name() | ast.Attribute() if self._is_name(node):
                yield True
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        yield from self._reads(child)
