"""The collectives that a function calls and their conditions: the raw material for finding diverging ranks.

Only the function itself counts, and what the functions of this file that it calls do in any case (one level).
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ..training_script.collectives import collective_name
from ..training_script.rank_conditions import RANKS, UnknownParts
from ..training_script.rank_names import one_rank_decorator
from ..training_script.syntax import FUNCTIONS, LOOPS, Function, dotted_name, is_generator, nodes_of_body
from .rule_context import Script

Body = Function | ast.Module


class BranchCondition(NamedTuple):
    """A branch that has been taken: all ``tests`` have the given values, or (``negated``) not all of them.

    ``guard`` is the statement that decides, ``place`` the position of the code relative to it.
    """

    guard: ast.stmt
    place: str  # body, orelse, after (the guard's branch leaves early), inside (an expression)
    tests: tuple[tuple[ast.expr, bool], ...]
    negated: bool
    by_rank: bool


Path = tuple[BranchCondition, ...]


class CollectiveCall(NamedTuple):
    """A call of a collective. ``through`` is the function of this file that makes it; not ``sure``: possibly made.

    ``certain``: reached by every rank that runs the function, as far as the text shows; ``protocol``: in a ``while``
    loop that only some ranks run, the way leaders and workers communicate.
    """

    kind: str
    call: ast.Call
    stmt: ast.stmt
    path: Path
    through: Function | None
    sure: bool
    certain: bool
    protocol: bool


class CollectiveCalls:
    """The collectives of every function of a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._of: dict[Body, list[CollectiveCall]] = {}

    def of(self, body: Body) -> list[CollectiveCall]:
        """Return the calls of a function, or of the module's own statements, in the order of the text."""
        if body not in self._of:
            walk = _Walk(self)
            start: Path = ()
            if isinstance(body, FUNCTIONS) and any(one_rank_decorator(_name(d)) for d in body.decorator_list):
                start = (BranchCondition(body, "inside", ((ast.Name(id="is_main_process"), True),), False, True),)
            walk.block(body.body, start, True, False)
            self._of[body] = walk.events
        return self._of[body]

    def certain_calls(self, function: Function) -> list[str]:
        """Return the collectives that ``function`` itself makes on every rank that calls it."""
        if is_generator(function):
            return []
        found = [e.kind for e in self._direct(function) if e.certain and not any(c.by_rank for c in e.path)]
        return list(dict.fromkeys(found))

    def possible_calls(self, function: Function) -> set[str]:
        """Return the collectives that ``function`` may make, itself or through functions of the file at any depth."""
        if not any(self._own_kinds.values()):
            return set()
        return self._reachable_kinds[function]

    @cached_property
    def _reachable_kinds(self) -> dict[Function, set[str]]:
        """The collectives below each function: of functions that call each other, those of all of them."""
        import networkx as nx

        graph: nx.DiGraph[Function] = nx.DiGraph()
        graph.add_nodes_from(self._callees)
        graph.add_edges_from((caller, each) for caller, called in self._callees.items() for each in called)
        found: dict[Function, set[str]] = {}
        for members in nx.strongly_connected_components(graph):  # the called ones come first
            below = {called for each in members for called in self._callees[each]} - members
            kinds = set().union(*(self._own_kinds[each] for each in members), *(found[each] for each in below))
            found |= dict.fromkeys(members, kinds)
        return found

    @cached_property
    def _own_kinds(self) -> dict[Function, set[str]]:
        """The collectives in the text of each function."""
        names = self.script.names
        return {
            function: {kind for call in calls if (kind := collective_name(call, names))}
            for function, calls in self._calls.items()
        }

    @cached_property
    def _callees(self) -> dict[Function, set[Function]]:
        """The functions of the file that each function calls."""
        names = self.script.names
        return {
            function: {called for call in calls if (called := names.function(call))}
            for function, calls in self._calls.items()
        }

    @cached_property
    def _calls(self) -> dict[Function, list[ast.Call]]:
        functions = (node for node in ast.walk(self.script.source.tree) if isinstance(node, FUNCTIONS))
        return {
            function: [node for node in nodes_of_body(function) if isinstance(node, ast.Call)] for function in functions
        }

    def _direct(self, function: Function) -> list[CollectiveCall]:
        walk = _Walk(self, follow=False)
        walk.block(function.body, (), True, False)
        return walk.events


class _Walk:
    """One pass over the statements of a function."""

    def __init__(self, events: CollectiveCalls, follow: bool = True) -> None:
        self.all, self.follow = events, follow
        self.script = events.script
        self.events: list[CollectiveCall] = []

    def block(
        self, stmts: Sequence[ast.stmt], path: Path, certain: bool, protocol: bool
    ) -> list[tuple[ast.stmt, Path]]:
        """Walk statements; return the exits that leave this block early, with their conditions."""
        left: list[tuple[ast.stmt, Path]] = []
        for stmt in stmts:
            exits = self._statement(stmt, path, certain, protocol)
            left += exits
            outer = len(path)
            for taken in dict.fromkeys(taken[outer:] for _, taken in exits):
                if any(condition.by_rank for condition in taken):
                    path = (*path, _unless(taken))
                elif not taken and not isinstance(stmt, LOOPS):
                    return left  # the rest is never reached
                else:
                    certain = False
        return left

    def _statement(self, stmt: ast.stmt, path: Path, certain: bool, protocol: bool) -> list[tuple[ast.stmt, Path]]:
        match stmt:
            case ast.If():
                return self._if(stmt, path, certain, protocol)
            case ast.For() | ast.AsyncFor():
                self._expression(stmt.iter, stmt, path, certain, protocol)
                return self._loop(stmt, path, certain, protocol)
            case ast.While(test=test):
                self._expression(test, stmt, path, certain, protocol)
                alone = self.script.tests.depends(test) or any(c.by_rank for c in path)
                return self._loop(stmt, path, certain and _always(test), protocol or alone)
            case ast.With() | ast.AsyncWith():
                for item in stmt.items:
                    self._expression(item.context_expr, stmt, path, certain, protocol)
                return self.block(stmt.body, path, certain, protocol)
            case ast.Try():
                exits = self.block([*stmt.body, *stmt.orelse], path, certain, protocol)
                for handler in stmt.handlers:
                    exits += self.block(handler.body, path, False, True)
                return exits + self.block(stmt.finalbody, path, certain, protocol)
            case ast.Match():
                return [e for case in stmt.cases for e in self.block(case.body, path, False, protocol)]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return []
            case ast.Return() | ast.Continue() | ast.Break():
                if isinstance(stmt, ast.Return) and stmt.value:
                    self._expression(stmt.value, stmt, path, certain, protocol)
                return [(stmt, path)]
        for child in ast.iter_child_nodes(stmt):
            if isinstance(child, ast.expr):
                self._expression(child, stmt, path, certain, protocol)
        return []

    def _if(self, stmt: ast.If, path: Path, certain: bool, protocol: bool) -> list[tuple[ast.stmt, Path]]:
        self._expression(stmt.test, stmt, path, certain, protocol)
        by_rank = self.script.tests.depends(stmt.test)
        settled = self.settled(stmt.test)
        exits: list[tuple[ast.stmt, Path]] = []
        for place, body, truth in (("body", stmt.body, True), ("orelse", stmt.orelse, False)):
            if settled is None:
                taken = BranchCondition(stmt, place, ((stmt.test, truth),), False, by_rank)
                exits += self.block(body, (*path, taken), certain and by_rank, protocol)
            elif settled is truth:
                exits += self.block(body, path, certain, protocol)
        return exits

    def _loop(
        self, stmt: ast.For | ast.AsyncFor | ast.While, path: Path, certain: bool, protocol: bool
    ) -> list[tuple[ast.stmt, Path]]:
        exits = self.block(stmt.body, path, certain, protocol)
        exits = [exit_ for exit_ in exits if isinstance(exit_[0], ast.Return)]
        return exits + self.block(stmt.orelse, path, False, protocol)

    def settled(self, test: ast.expr) -> bool | None:
        """Return the value of a test that is the same in every distributed run (``world_size > 1``), or None."""
        unknown = UnknownParts({})
        values = {self.script.tests.truth(test, rank, unknown) for rank in RANKS}
        return values.pop() if len(values) == 1 and not unknown.met else None

    def _expression(self, expr: ast.expr, stmt: ast.stmt, path: Path, certain: bool, protocol: bool) -> None:
        match expr:
            case ast.Lambda():
                return
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._expression(test, stmt, path, certain, protocol)
                for part, truth in ((body, True), (orelse, False)):
                    self._expression(part, stmt, (*path, self._inside(stmt, ((test, truth),))), False, protocol)
                return
            case ast.BoolOp(op=op, values=values):
                before: tuple[tuple[ast.expr, bool], ...] = ()
                for value in values:
                    taken = (*path, self._inside(stmt, before)) if before else path
                    self._expression(value, stmt, taken, certain and not before, protocol)
                    before = (*before, (value, isinstance(op, ast.And)))
                return
            case ast.Call():
                self._call(expr, stmt, path, certain, protocol)
        for child in ast.iter_child_nodes(expr):
            if isinstance(child, ast.expr):
                self._expression(child, stmt, path, certain, protocol)
            elif isinstance(child, ast.keyword):
                self._expression(child.value, stmt, path, certain, protocol)
            elif isinstance(child, ast.comprehension):
                self._expression(child.iter, stmt, path, certain, protocol)

    def _inside(self, stmt: ast.stmt, tests: tuple[tuple[ast.expr, bool], ...]) -> BranchCondition:
        return BranchCondition(stmt, "inside", tests, False, any(self.script.tests.depends(test) for test, _ in tests))

    def _call(self, call: ast.Call, stmt: ast.stmt, path: Path, certain: bool, protocol: bool) -> None:
        if kind := collective_name(call, self.script.names):
            self.events.append(CollectiveCall(kind, call, stmt, path, None, True, certain, protocol))
        elif self.follow and (function := self.script.names.function(call)):
            sure = self.all.certain_calls(function)
            for kind in [*sure, *sorted(self.all.possible_calls(function) - set(sure))]:
                self.events.append(CollectiveCall(kind, call, stmt, path, function, kind in sure, certain, protocol))


def function_bodies(script: Script) -> Iterator[Body]:
    """Yield the module and every function in it."""
    yield script.source.tree
    yield from (node for node in ast.walk(script.source.tree) if isinstance(node, FUNCTIONS))


def _unless(taken: Path) -> BranchCondition:
    """Return the condition of the code behind a branch that leaves: not everything that led to the exit was true."""
    tests = tuple(test for condition in taken if not condition.negated for test in condition.tests)
    first = next(condition for condition in taken if condition.by_rank)
    return BranchCondition(first.guard, f"after {first.place}", tests, True, True)


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _name(decorator: ast.expr) -> str:
    return dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
