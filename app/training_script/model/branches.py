"""Evaluate context managers, errors and loops."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from ..loop_forms import as_for
from ..nodes import walk
from ..rank_names import TURN_CONTEXTS, one_rank_decorator
from ..syntax import last_name
from .caught_errors import caught_by
from .context_steps import before_leaving, count_leaves, has_notes, with_body
from .followed import known_functions
from .function_steps import Attempt, Branch, Called, Item, Rounds, Summary, kinds, own_kinds
from .library_calls import UNIFORM_ERRORS
from .rounds import RoundsEvaluator
from .sequences import Site
from .values import Context, Either, FunctionRef, Instance, Value, is_elements

WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
LOCK = re.compile(r"(?:\w*_)?\w*lock", re.IGNORECASE)  # ranks take turns behind a lock


class BranchEvaluator(RoundsEvaluator):
    """Evaluation of the other compound statements in one function."""

    def _With_statement(self, stmt: ast.With | ast.AsyncWith) -> bool:
        no_sync, no_grad, free = self.no_sync, self.no_grad, self.free
        one_rank, passes_over = None, False
        entered: list[tuple[Value, ast.expr]] = []
        around: list[tuple[Summary, Site]] = []  # context managers whose steps need other ranks
        for item in stmt.items:
            context = item.context_expr
            name = last_name(context)
            value = self.evaluate(context)
            if isinstance(value.obj, Context) and (value.obj.summary.kinds or has_notes(value.obj.summary.items)):
                around.append((value.obj.summary, self.site(context)))
            given = value.obj.given if isinstance(value.obj, Context) else None
            if isinstance(value.obj, Instance):
                given = self._enter(value, "__enter__", context)
                entered.append((value, context))
            if name == "no_sync":
                self.no_sync = True
            if name in WITHOUT_GRADIENTS:
                self.no_grad = True
            if name in ("join", "Join"):
                self.free = True
            in_turns = bool(LOCK.fullmatch(name)) or "turns" in value.facts or name in TURN_CONTEXTS
            passes_over = passes_over or name == "suppress" or in_turns
            if item.optional_vars is not None:
                self.bind(item.optional_vars, given or self.unknown(context, value))
            one_rank = one_rank or (one_rank_decorator(name) if isinstance(context, ast.Call) else None)
        outside, self.items = self.items, []
        leaves = self.block(stmt.body)
        body: list[Item] = [Attempt(self.items, [])] if passes_over else self.items
        for summary, site in reversed(around):
            inlined = not count_leaves(summary.items)
            body = with_body(summary.items, body) if inlined else [Called(summary, site), *body]
        self.items = []
        for value, context in reversed(entered):
            self._enter(value, "__exit__", context)
        end = self.items
        self.items = outside + (before_leaving(body, end) if kinds(end) else body) + end
        self.no_sync, self.no_grad, self.free = no_sync, no_grad, free
        return leaves

    def _enter(self, value: Value, method: str, context: ast.expr) -> Value | None:
        """Follow what an object does where its block begins or ends; return the result, None if it is not known."""
        found = value.obj.cls.find(method)
        if found is None:
            return None
        function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
        return self.call_function(function, [value], {}, self.site(context))

    _AsyncWith_statement = _With_statement

    def _Try_statement(self, stmt: ast.Try) -> bool:
        outside, before, begin = self.items, dict(self.env), len(self.items)
        self.items = []
        leaves = self.block(stmt.body) or self.block(stmt.orelse)
        body, env = self.items, dict(self.env)
        goes_on = [each for each in stmt.handlers if not (_always_leaves(each.body) or _of_user(each))]
        handled: list[Item] = []
        for handler in stmt.handlers:
            self.restore({**before, **env})
            if handler.name:
                self.env[handler.name] = Value(self.keys.local("an error", *self.place(handler)))
            self.items = []
            self.path.append(self.keys.make("and", self.path[-1], self.unknown(handler).key))
            self.block(handler.body)
            self.path.pop()
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
        of_one = [self.site(each) for each in goes_on if not _uniform(each)]
        attempt = Attempt(body, handled, next(iter(of_one), None), caught_by(goes_on))
        self.items += [attempt] if goes_on else body
        self.restore(env)
        if stmt.finalbody:
            body, self.items = self.items[begin:], []
            leaves = self.block(stmt.finalbody) or leaves
            end = self.items
            events, _ = own_kinds(end)  # a called function may have thousands of them: these come at its last end only
            self.items = outside[:begin] + (before_leaving(body, end) if events else body) + end
        return leaves and not goes_on

    def _For_statement(self, stmt: ast.For | ast.AsyncFor) -> None:
        over = self.evaluate(stmt.iter)
        if over.key.op == "if":
            self.note_none(ast.copy_location(ast.Starred(stmt.iter, ast.Load()), stmt.iter), stmt.iter, over)
        iterable = self.iterated(over, stmt.iter)
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.iter.end_lineno or stmt.lineno)
        if (held := known_functions(iterable)) is not None:
            self.again = True
            if not self.quick:
                self._each(stmt, held)
                return
        element = self.element(iterable, stmt.iter)

        def round_() -> None:
            self.bind(stmt.target, element)
            self.loops.append(iterable)
            self.block(stmt.body)
            self.loops.pop()

        self._rounds(self.count(iterable, stmt.iter), site, round_, stmt.orelse, test_led=False)
        made = self.items[-1]
        if "unordered" in iterable.facts and isinstance(made, Rounds) and kinds(made.body):
            self.note_order(stmt.iter, iterable)

    _AsyncFor_statement = _For_statement

    def iterated(self, value: Value, node: ast.expr) -> Value:
        """Return what a loop over an object of the program goes over."""
        found = value.obj.cls.find("__iter__") if isinstance(value.obj, Instance) else None
        if found is None:
            return value
        function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
        return self.call_function(function, [value], {}, self.site(node))

    def _each(self, stmt: ast.For | ast.AsyncFor, held: Either | tuple[Value, ...]) -> bool:
        """Evaluate a loop over functions or objects round by round; no round leaves the function in any case."""
        if isinstance(held, Either):
            place, sides = held.site or self.site(stmt.iter), (held.then.obj, held.other.obj)
            first, second = (side if isinstance(side, Either) or is_elements(side) else () for side in sides)
            self._branch(held.test, place, lambda: self._each(stmt, first), lambda: self._each(stmt, second))
            return False
        cut = any(isinstance(node, (ast.Break, ast.Continue)) for each in stmt.body for node in walk(each))
        for each in held:
            outside, self.items = self.items, []
            self.bind(stmt.target, each)
            self.block(stmt.body)
            body, self.items = self.items, outside
            once = Rounds(self.keys.constant(1), self.site(stmt.iter), body, [], free=False, test_led=False)
            self.items += [once] if cut else body
        return False

    def _While_statement(self, stmt: ast.While) -> bool:
        if (counted := as_for(stmt)) is not None:
            self._For_statement(counted)
            return False
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.test.end_lineno or stmt.lineno)
        test: list[Any] = []

        def round_() -> None:
            test.append(self.evaluate(stmt.test).key)
            self.loops.append(Value(self.keys.make("while", test[-1])))
            self.block(stmt.body)
            self.loops.pop()

        self._rounds(lambda: self.keys.make("while", test[-1]), site, round_, stmt.orelse, test_led=True)
        return False


def _always_leaves(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements leave the function or raise an error, unless they go on to another round before."""
    for stmt in body:
        if isinstance(stmt, (ast.Raise, ast.Return)) or _exits(stmt):
            return True
        if isinstance(stmt, ast.If) and any(isinstance(each, (ast.Continue, ast.Break)) for each in walk(stmt)):
            return False
    return False


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
