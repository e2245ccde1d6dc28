"""Evaluate conditions, loops, context managers and errors: branches are joined, loops are evaluated twice.

A loop is evaluated first to see what a round changes, then with what a round may find changed.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..rank_names import one_rank_decorator
from ..syntax import last_name
from .expressions import is_inner
from .items import Attempt, Branch, Item, Leave, Rounds, kinds
from .keys import BY_RANK, LOCAL, NEVER_NONE, Key
from .library_calls import UNIFORM_ERRORS
from .library_effects import is_of_batches
from .sequences import Event, Site
from .statements import StatementEvaluator
from .values import Bound, FunctionRef, Instance, Value, is_elements

WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
RANK_FIRST = ("main_process_first", "local_main_process_first")  # the others wait until one rank is through
LOCK = re.compile(r"(?:\w*_)?\w*lock", re.IGNORECASE)  # ranks take turns behind a lock


class BranchEvaluator(StatementEvaluator):
    """Evaluation of the compound statements in one function."""

    def _If_statement(self, stmt: ast.If) -> bool:
        test = self._truth(stmt.test)
        on_demand = self.on_demand

        def then() -> bool:
            self.on_demand = on_demand or makes_on_demand(stmt)
            leaves = self.block(stmt.body)
            self.on_demand = on_demand
            return leaves

        if test.is_constant and not self.quick:
            return then() if test.value else self.block(stmt.orelse)
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.test.end_lineno or stmt.lineno)
        return self._branch(test, site, then, lambda: self.block(stmt.orelse), stmt.test)

    def _Assert_statement(self, stmt: ast.Assert) -> None:
        test = self._truth(stmt.test)
        if not test.spread & BY_RANK:
            return

        def fail() -> bool:
            self.items.append(Leave("raise", self.site(stmt)))
            return True

        self._branch(test, self.site(stmt), lambda: False, fail, stmt.test)

    def _truth(self, node: ast.expr) -> Key:
        """Return a condition. A name for the result of an unknown function asks if there is one, as a test for None."""
        value = self.evaluate(node)
        return self.unknown(node).key if isinstance(node, ast.Name) and "foreign" in value.facts else value.key

    def _branch(
        self,
        test: Key,
        site: Site,
        then: "Callable[[], bool]",
        other: "Callable[[], bool]",
        text: ast.expr | None = None,
    ) -> bool:
        before, outside, calls = dict(self.env), self.items, self.unknown_calls
        agreed = self.agreed(test)
        self.items = []
        self.path.append(agreed)
        leaves_then = then()
        env_then, items_then, calls_then = dict(self.env), self.items, self.unknown_calls
        self._restore(before)
        self.items = []
        self.path[-1] = self.keys.make("not", agreed)
        leaves_other = other()
        self.path.pop()
        items_other, self.items = self.items, outside
        if asks_for_several(test) and kinds(items_then) and not items_other and not leaves_then:
            self._restore(env_then)  # without the branch there is one rank, and nothing to agree on
            self.items.append(Branch(test, site, items_then, [], (calls_then > calls, False), text))
            return False
        if items_then or items_other:
            unknown = calls_then > calls, self.unknown_calls > calls_then
            asked = test if test is agreed or waits(items_then) or waits(items_other) else agreed
            self.items.append(Branch(asked, site, items_then, items_other, unknown, text))
        if leaves_then and not leaves_other:
            return False
        if leaves_other and not leaves_then:
            self._restore(env_then)
            return False
        for name, first in env_then.items():
            second = self.env.get(name)
            if second is None:
                self.env[name] = first
            elif first is not second:
                self.env[name] = self.joined(agreed, first, second)
        return leaves_then and leaves_other

    def _restore(self, env: dict[str, Value]) -> None:
        self.env.clear()
        self.env.update(env)

    def _Match_statement(self, stmt: ast.Match) -> bool:
        subject = self.evaluate(stmt.subject)

        def cases(rest: list[ast.match_case]) -> bool:
            if not rest:
                return False
            case = rest[0]
            if isinstance(case.pattern, ast.MatchValue):
                test = self.keys.make("compare", "Eq", subject.key, self.evaluate(case.pattern.value).key)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
                return self.block(case.body)
            else:
                test = self.keys.make("matches", subject.key, *self.place(case.pattern))
            return self._branch(test, self.site(case.pattern), lambda: self.block(case.body), lambda: cases(rest[1:]))

        return cases(stmt.cases)

    def _With_statement(self, stmt: ast.With | ast.AsyncWith) -> bool:
        no_sync, no_grad, free = self.no_sync, self.no_grad, self.free
        one_rank, passes_over = None, False
        entered: list[tuple[Value, ast.expr]] = []
        for item in stmt.items:
            context = item.context_expr
            name = last_name(context)
            value = self.evaluate(context)
            if isinstance(value.obj, Instance):
                self._enter(value, "__enter__", context)
                entered.append((value, context))
            if name == "no_sync":
                self.no_sync = True
            if name in WITHOUT_GRADIENTS:
                self.no_grad = True
            if name in ("join", "Join"):
                self.free = True
            in_turns = bool(LOCK.fullmatch(name)) or "turns" in value.facts or name in RANK_FIRST
            passes_over = passes_over or name == "suppress" or in_turns
            if item.optional_vars is not None:
                self.bind(item.optional_vars, self.unknown(context, value))
            one_rank = one_rank or (one_rank_decorator(name) if isinstance(context, ast.Call) else None)
        outside, self.items = self.items, []
        leaves = self.block(stmt.body)
        outside += [Attempt(self.items, [])] if passes_over else self.items
        self.items = outside
        for value, context in reversed(entered):
            self._enter(value, "__exit__", context)
        self.no_sync, self.no_grad, self.free = no_sync, no_grad, free
        return leaves

    def _enter(self, value: Value, method: str, context: ast.expr) -> None:
        found = value.obj.cls.find(method)
        if found:
            function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
            self.call_function(function, [value], {}, self.site(context))

    _AsyncWith_statement = _With_statement

    def _Try_statement(self, stmt: ast.Try) -> bool:
        outside, before = self.items, dict(self.env)
        self.items = []
        leaves = self.block(stmt.body) or self.block(stmt.orelse)
        body, env = self.items, dict(self.env)
        goes_on = [each for each in stmt.handlers if not (_always_leaves(each.body) or _of_user(each))]
        handled: list[Item] = []
        for handler in stmt.handlers:
            self._restore({**before, **env})
            if handler.name:
                self.env[handler.name] = Value(self.keys.local("an error", *self.place(handler)))
            self.items = []
            self.block(handler.body)
            if handler in goes_on:
                test = self.keys.local("an error", *self.place(handler))
                handled = [Branch(test, self.site(handler), self.items, handled)] if handled else self.items
                if not _uniform(handler):
                    for name, value in self.env.items():
                        if name in env and value is not env[name]:
                            env[name] = self.joined(self.unknown(handler).key, value, env[name])
                else:
                    env = {**self.env, **env}
        self.items = outside
        self.items += [Attempt(body, handled)] if goes_on else body
        self._restore(env)
        if stmt.finalbody:
            leaves = self.block(stmt.finalbody) or leaves
        return leaves and not goes_on

    def _For_statement(self, stmt: ast.For | ast.AsyncFor) -> None:
        iterable = self.evaluate(stmt.iter)
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.iter.end_lineno or stmt.lineno)
        functions = iterable.obj if is_elements(iterable.obj) else ()
        if (
            functions
            and all(isinstance(each.obj, FunctionRef | Instance | Bound) for each in functions)
            and not self.quick
        ):
            for each in functions:
                self.bind(stmt.target, each)
                self.block(stmt.body)
            return
        element = self.element(iterable, stmt.iter)

        def round_() -> None:
            self.bind(stmt.target, element)
            self.block(stmt.body)

        self._rounds(self.count(iterable, stmt.iter), site, round_, stmt.orelse, test_led=False)

    _AsyncFor_statement = _For_statement

    def _While_statement(self, stmt: ast.While) -> bool:
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.test.end_lineno or stmt.lineno)
        test: list[Any] = []

        def round_() -> None:
            test.append(self.evaluate(stmt.test).key)
            self.block(stmt.body)

        self._rounds(lambda: self.keys.make("while", test[-1]), site, round_, stmt.orelse, test_led=True)
        return False

    def _rounds(
        self,
        count: "Key | Callable[[], Key]",
        site: Site,
        round_: "Callable[[], None]",
        orelse: Sequence[ast.stmt],
        *,
        test_led: bool,
    ) -> None:
        """Evaluate a loop: once to see what changes, once more with what a round may find."""
        outside, before, quick, left = self.items, dict(self.env), self.quick, self.left_rounds
        if not quick:
            self.items, self.quick, returned, self.left_rounds = [], True, list(self.returned), []
            round_()
            self.quick, self.returned = False, returned
            before |= self._changed(before, site)
            self._restore(before)
        self.items, self.left_rounds = [], []
        round_()
        body, self.items = self.items, outside
        self.env.update(self._changed(before, site))
        self.left_rounds = left
        outside, self.items = self.items, []
        self.block(orelse)
        rest, self.items = self.items, outside
        self.items.append(Rounds(count if isinstance(count, Key) else count(), site, body, rest, self.free, test_led))

    def _changed(self, before: dict[str, Value], site: Site) -> dict[str, Value]:
        """Return the names that a round may have changed, at its end or where it was left."""
        changed: dict[str, Value] = {}
        for env in (*self.left_rounds, self.env):
            for name, value in before.items():
                after = env.get(name)
                if after is not None and after is not value and after.key is not value.key:
                    changed[name] = self._changing(name, site, changed.get(name, value), after)
        return changed

    def _changing(self, name: str, site: Site, value: Value, after: Value) -> Value:
        """Return a value that rounds of a loop change: the same where both are, and of what changes it."""
        spread = value.key.spread | after.key.spread
        op = "changing" if may_become_none(after.key, value.key) else "altered"
        key = self.keys.make(op, name, *site[:2], spread=spread & 2)
        if spread & 1:
            key = self.keys.make("changing", name, *site[:2], value.key, after.key)
        facts = after.facts if is_inner(after, value) else value.facts | after.facts
        return Value(key, facts, after.obj if after.obj == value.obj else value.obj or after.obj)


def makes_on_demand(stmt: ast.If) -> bool:
    """Return whether a branch makes what an attribute or a mapping lacks, and keeps it there."""
    wanted = ""
    match stmt.test:
        case ast.Compare(
            left=ast.Attribute() | ast.Subscript() as left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]
        ):
            wanted = ast.unparse(left)
        case ast.Compare(ops=[ast.NotIn()], comparators=[held]):
            wanted = ast.unparse(held)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="hasattr"), args=[held, ast.Constant(name)])):
            wanted = f"{ast.unparse(held)}.{name}"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute() | ast.Subscript() as held):
            wanted = ast.unparse(held)
        case _:
            return False
    targets = (each for node in stmt.body if isinstance(node, ast.Assign) for each in node.targets)
    kept = [each.value if isinstance(each, ast.Subscript) else each for each in targets]
    return any(isinstance(each, ast.Attribute | ast.Name) and ast.unparse(each) == wanted for each in kept)


def asks_for_several(test: Key) -> bool:
    """Return whether a condition compares a number that is the same on every rank with one: the number of ranks."""
    if test.op != "compare" or test.spread & (BY_RANK | LOCAL):
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


def may_become_none(key: Key, before: Key) -> bool:
    """Return whether a value may be None though the one that it was computed from is not."""
    if key is before or key.op in NEVER_NONE or is_of_batches(key):
        return False
    if key.op == "if":
        return any(may_become_none(part, before) for part in key.args[1:])
    return True


def _always_leaves(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(stmt, ast.Raise | ast.Return) or _exits(stmt) for stmt in body)


def _exits(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and last_name(stmt.value) in ("exit", "_exit", "quit")
    )


def _of_user(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler only answers to the end that a user asks for."""
    return handler.type is not None and last_name(handler.type) == "KeyboardInterrupt"


def _uniform(handler: ast.ExceptHandler) -> bool:
    """Return whether the error of a handler is the same on every rank."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    return bool(caught) and all(last_name(each) in UNIFORM_ERRORS for each in caught)
