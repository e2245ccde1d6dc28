"""Evaluate conditions: what both sides do, and the values behind them."""

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..nodes import walk
from ..syntax import dotted_name, last_name
from .function_steps import Attempt, Branch, Item, Leave, Rounds, kinds
from .keys import BY_RANK, LOCAL, Key
from .noted_calls import INIT
from .sequences import Event, Site
from .statements import StatementEvaluator
from .values import Value, is_elements


class _Side(NamedTuple):
    """The first side of a branch, evaluated."""

    test: Key
    agreed: Key  # the test as all ranks see it
    site: Site
    text: ast.expr | None
    outside: list[Item]  # before the branch
    items: list[Item]
    env: dict[str, Value]
    leaves: bool
    calls: int  # of unknown functions, until this branch
    calls_here: int
    makes_group: bool  # which there was not before


class ConditionEvaluator(StatementEvaluator):
    """Evaluation of the conditions in one function."""

    def _If_statement(self, stmt: ast.If) -> bool:
        """Evaluate a condition and the ``elif`` behind it, one after the other: there may be thousands."""
        sides: list[_Side] = []
        leaves, chain = False, _chain(stmt)
        for each in chain:
            if each is not stmt:
                self.budget.spend()
            test = self._truth(each.test)
            if test.is_constant and test.value and isinstance(each.body[-1], ast.Raise) and _asks_for_none(each.test):
                test = self.unknown(each.test).key  # a program that always fails there is not one that somebody runs
            self.again = self.again or test.is_constant  # a round may change what it is made of
            if not test.is_constant or self.quick:
                last_line = each.test.end_lineno or each.lineno
                site = Site(self.module.path, each.lineno, each.col_offset + 1, last_line)
                sides.append(self._first_side(test, site, each.test, lambda each=each: self._then(each)))
            elif test.value:
                leaves = not self._makes_group_later(each) and self._then(each)
                break
            elif (leaves_with_group := self._with_new_group(each)) is not None:
                leaves = leaves_with_group
                break
        else:
            leaves = self.block(chain[-1].orelse)
        for side in reversed(sides):
            leaves = self._with_other_side(side, leaves) or self.has_ended()
        return leaves

    def _then(self, stmt: ast.If) -> bool:
        on_demand = self.on_demand
        self.on_demand = on_demand or makes_on_demand(stmt, in_loop=bool(self.loops))
        leaves = self.block(stmt.body)
        self.on_demand = on_demand
        return leaves

    def _with_new_group(self, stmt: ast.If) -> bool | None:
        """Evaluate what a program does if it has no process group, and return whether that leaves.

        None if it makes no process group there, which each rank has then: nothing is evaluated.
        """
        if self.shared.has_group or not _asks_for_group(stmt.test):
            return None
        if not any(isinstance(node, ast.Call) for each in stmt.body for node in walk(each)):
            return None
        env, count_items, count_returned = dict(self.env), len(self.items), len(self.returned)
        leaves = self._then(stmt)
        if self.shared.has_group:
            return leaves
        self.restore(env)
        del self.items[count_items:], self.returned[count_returned:]
        return None

    def _makes_group_later(self, stmt: ast.If) -> bool:
        """Return whether a function, which does nothing if there is a process group, makes one behind that."""
        if self.shared.has_group or self.function is None or not _returns_nothing(stmt):
            return False
        if not _asks_for_group(stmt.test):
            return False
        called = self.function.module.parsed.called_in(self.function.node)
        return any(name == INIT.rpartition(".")[2] for name, _ in called)

    def _Assert_statement(self, stmt: ast.Assert) -> None:
        test = self._truth(stmt.test)
        if not test.differs_by & BY_RANK:
            return

        def fail() -> bool:
            self.items.append(Leave("raise", self.site(stmt), AssertionError.__name__))
            return True

        self._branch(test, self.site(stmt), lambda: False, fail, stmt.test)

    def _truth(self, node: ast.expr) -> Key:
        """Return a condition. A name for the result of an unknown function asks if there is one, as a test for None."""
        value = self.evaluate(node)
        foreign = isinstance(node, ast.Name) and "foreign" in value.facts
        return self.unknown(node).key if foreign else self.shared.settled(value.key)

    def _branch(
        self,
        test: Key,
        site: Site,
        then: "Callable[[], bool]",
        other: "Callable[[], bool]",
        text: ast.expr | None = None,
    ) -> bool:
        side = self._first_side(test, site, text, then)
        return self._with_other_side(side, other())

    def _first_side(self, test: Key, site: Site, text: ast.expr | None, then: "Callable[[], bool]") -> _Side:
        """Evaluate the first side of a branch; what is evaluated next is on the other side."""
        before, outside, calls = dict(self.env), self.items, self.unknown_calls
        has_group = self.shared.has_group
        agreed = self.agreed(test)
        self.items = []
        self.path.append(self.keys.make("and", self.path[-1], agreed))
        leaves = then()
        makes_group = self.shared.has_group and not has_group
        self.shared.has_group = has_group
        counts = calls, self.unknown_calls
        side = _Side(test, agreed, site, text, outside, self.items, dict(self.env), leaves, *counts, makes_group)
        self.restore(before)
        self.items = []
        self.path[-1] = self.keys.make("and", self.path[-2], self.keys.make("not", agreed))
        return side

    def _with_other_side(self, side: _Side, leaves_other: bool) -> bool:
        """Join both sides of a branch, the other one just evaluated; return whether both leave."""
        self.path.pop()
        test, agreed, items_then = side.test, side.agreed, side.items
        items_other, self.items = self.items, side.outside
        if side.makes_group and not (self.shared.has_group or side.leaves or test.differs_by & BY_RANK):
            self.restore(side.env)  # several ranks take this side, whatever it asks for
            self.shared.has_group = True
            self.shared.with_group[test] = self.keys.true
            self.items += items_then
            return False
        self.shared.has_group = self.shared.has_group or side.makes_group
        if asks_for_several(test) and kinds(items_then) and not items_other and not side.leaves:
            self.restore(side.env)  # without the branch there is one rank, and nothing to agree on
            unknown = side.calls_here > side.calls, False
            self.items.append(Branch(test, side.site, items_then, [], unknown, side.text))
            return False
        unknown = side.calls_here > side.calls, self.unknown_calls > side.calls_here
        if items_then or items_other or (any(unknown) and test.differs_by & BY_RANK):
            asked = test if test is agreed or waits(items_then) or waits(items_other) else agreed
            self.items.append(Branch(asked, side.site, items_then, items_other, unknown, side.text))
        if side.leaves and not leaves_other:
            return False
        if leaves_other and not side.leaves:
            self.restore(side.env)
            return False
        for name in self.env.keys() - side.env.keys():
            if name in self.set_here and (first := self.set_here[name].before):
                self.env[name] = self.joined(agreed, first, self.env[name], side.site)
                continue
            self.env[name] = self._of_some(name, self.env[name], self.keys.make("not", test), side.site)
        held = self.env.get
        for name in [name for name, first in side.env.items() if held(name) is not first]:  # few of those of a module
            first = side.env[name]
            second = held(name) or (self.set_here[name].before if name in self.set_here else None)
            if second is None:
                self.env[name] = self._of_some(name, first, test, side.site)
            elif first is not second:
                self.env[name] = self.joined(agreed, first, second, side.site)
        return side.leaves and leaves_other

    def _of_some(self, name: str, value: Value, test: Key, site: Site) -> Value:
        """Return the value of a name that only one side of a branch binds, kept as such if the rank decides."""
        if not test.differs_by & BY_RANK or not name.isidentifier():
            return value
        return self.shared.of_some.bound(name, value, test, site)

    def restore(self, env: dict[str, Value]) -> None:
        self.env.clear()
        self.env.update(env)

    def _Match_statement(self, stmt: ast.Match) -> bool:
        return self._cases(self.evaluate(stmt.subject), stmt.subject, stmt.cases)

    def _cases(self, subject: Value, text: ast.expr, cases: Sequence[ast.match_case]) -> bool:
        """Evaluate the first of some cases, and on its other side the rest of them."""
        if not cases:
            return False
        case, *rest = cases
        test = self._fits(case.pattern, subject)
        if case.guard is not None:
            test = self.keys.make("and", test, self.evaluate(case.guard).key)
        if test is self.keys.true:
            return self.block(case.body)
        if test is self.keys.false:
            return self._cases(subject, text, rest)
        site = self.site(case.pattern)
        return self._branch(test, site, lambda: self.block(case.body), lambda: self._cases(subject, text, rest), text)

    def _fits(self, pattern: ast.pattern, subject: Value) -> Key:
        """Return the condition under which a value fits a pattern, whose names are bound to its parts."""
        match pattern:
            case ast.MatchValue(value=value):
                return self.keys.make("compare", "Eq", subject.key, self.evaluate(value).key)
            case ast.MatchSingleton(value=None):
                return self.keys.make("compare", "Is", subject.key, self.keys.none)
            case ast.MatchSingleton(value=truth):
                return subject.key if truth else self.keys.make("not", subject.key)
            case ast.MatchAs(pattern=inner, name=name):
                test = self._fits(inner, subject) if inner else self.keys.true
                if name:
                    self.bind(ast.Name(name, ast.Store()), subject)
                return test
            case ast.MatchOr(patterns=patterns):
                return self._all("or", [self._fits(each, subject) for each in patterns])
            case ast.MatchSequence(patterns=patterns) if is_elements(subject.obj) and len(subject.obj) == len(patterns):
                pairs = zip(patterns, subject.obj, strict=True)
                return self._all("and", [self._fits(each, part) for each, part in pairs])
            case _:
                return self.keys.make("matches", subject.key, *self.place(pattern))

    def _all(self, op: str, tests: Sequence[Key]) -> Key:
        found = self.keys.constant(op == "and")
        for test in tests:
            found = self.keys.make(op, found, test)
        return found


def _asks_for_group(test: ast.expr) -> bool:
    """Return whether a condition asks if there is a process group."""
    return any(isinstance(each, ast.Call) and "initialized" in last_name(each.func) for each in walk(test))


def _returns_nothing(stmt: ast.If) -> bool:
    match stmt.body:
        case [ast.Return(value=None | ast.Constant(value=None))]:
            return True
        case _:
            return False


def _asks_for_none(test: ast.expr) -> bool:
    """Return whether a condition compares something with None, which is supposed not to be None if nothing shows it."""
    compared = (each for node in walk(test) if isinstance(node, ast.Compare) for each in node.comparators)
    return any(isinstance(each, ast.Constant) and each.value is None for each in compared)


def _chain(stmt: ast.If) -> list[ast.If]:
    """Return a condition and each ``elif`` of it."""
    found = [stmt]
    while len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], ast.If):
        stmt = stmt.orelse[0]
        found.append(stmt)
    return found


def makes_on_demand(stmt: ast.If, *, in_loop: bool = False) -> bool:
    """Return whether a branch makes what an attribute or a mapping lacks, and keeps it there; a name in a loop."""
    wanted = ""
    if not isinstance(stmt.test, (ast.Compare, ast.UnaryOp)):
        return False
    match stmt.test:
        case ast.Compare(
            left=ast.Attribute() | ast.Subscript() as left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]
        ):
            wanted = _code(left)
        case ast.Compare(ops=[ast.NotIn()], comparators=[held]):
            wanted = _code(held)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="hasattr"), args=[held, ast.Constant(name)])):
            wanted = f"{_code(held)}.{name}"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute() | ast.Subscript() as held):
            wanted = _code(held)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)) if in_loop:
            wanted = name
        case _:
            return False
    made = (each for inner in stmt.body for each in walk(inner))
    targets = (each for node in made if isinstance(node, ast.Assign) for each in node.targets)
    kept = [each.value if isinstance(each, ast.Subscript) else each for each in targets]
    return any(isinstance(each, (ast.Attribute, ast.Name)) and _code(each) == wanted for each in kept)


def _code(node: ast.expr) -> str:
    """Return an expression as text: that of most is a dotted name."""
    return dotted_name(node) or ast.unparse(node)


def asks_for_several(test: Key) -> bool:
    """Return whether a condition compares a number that is the same on every rank with one: the number of ranks."""
    if test.op != "compare" or test.differs_by & (BY_RANK | LOCAL):
        return False
    name, left, right = test.args
    return left.op != "constant" and right.is_constant and (name, right.value) in (("Gt", 1), ("NotEq", 1), ("GtE", 2))


def waits(items: Sequence[Item]) -> bool:
    """Return whether some of the steps themselves is a collective that the text names."""
    pending = [*items]
    while pending:
        match pending.pop():
            case Event(implied=False):
                return True
            case Branch(then=first, other=second) | Rounds(body=first, rest=second) | Attempt(first, second):
                pending += [*first, *second]
            case _:
                pass
    return False
