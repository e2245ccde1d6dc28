"""The patch for DW203: ``sampler.set_epoch(epoch)``, where the sampler is surely bound and with a count of epochs.

Inserted at the start of the epoch loop or, where the loader is bound only later, before the line that reads the loader.
A sampler that is None in runs without ``torch.distributed`` gets a condition.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.edits import Edit
from ...training_script.reaching_values import Absent, State, may_return_nothing, values_at
from ...training_script.syntax import dotted_name, nodes_of_body
from ...training_script.torch_classes import LOADER_CLASSES
from ..epoch_loops import COUNTS, EpochLoop, counts_steps, is_call_of, samplers_of_loader
from ..rank_bindings import differs_by_rank
from ..rule_context import Patch, Script, no_patch
from .hoist_edits import NoPatch

FIX = "insert-set-epoch"
WHY_UNSAFE = "the order of the data changes, so a run is not comparable with earlier ones"
COUNTER_NAMES = ("epoch", "epoch_index", "pass_index")
NO_SAMPLER = "the sampler is not accessible in the loop: pass it in, and call set_epoch there"


class _Point(NamedTuple):
    """A line to insert before: that of ``stmt`` or, ``inside``, the first of the body of the loop ``stmt``."""

    line: int
    indent: str
    stmt: ast.stmt
    inside: bool


class _Target(NamedTuple):
    """An expression for the sampler, and the condition under which it has an epoch ("": always)."""

    sampler: str
    condition: str


class _Counter(NamedTuple):
    """A number of the epoch: its name, the edits that count it, and the lines before and after its use."""

    name: str
    edits: list[Edit]
    before: list[str]
    after: list[str]


def insert_set_epoch(script: Script, sampler: ast.Call, use: EpochLoop) -> Patch:
    """Return the patch that calls ``set_epoch`` in each epoch; display-only if that cannot be made safe."""
    try:
        return _SetEpoch(script, sampler, use).patch()
    except NoPatch as why:
        return no_patch(FIX, str(why))


class _SetEpoch:
    def __init__(self, script: Script, sampler: ast.Call, use: EpochLoop) -> None:
        self.script, self.source, self.names = script, script.source, script.names
        self.sampler, self.loop, self.loader, self.use = sampler, use.epochs, use.loader, use.use
        self.counts_steps = counts_steps(script, use)

    def patch(self) -> Patch:
        for point in self._points():
            if targets := [*self._targets(point)]:
                target = next((each for each in targets if not each.condition), targets[0])
                return Patch(id=FIX, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=self._edits(point, target))
        raise NoPatch(NO_SAMPLER)

    def _edits(self, point: _Point, target: _Target) -> list[Edit]:
        counter = self._counter()
        call = f"{target.sampler}.set_epoch({counter.name})"
        lines = [call]
        if target.condition:
            lines = [f"if {target.condition}:", self._unit() + call]
        inserted = [*counter.before, *lines, *counter.after]
        return [*counter.edits, *(self.source.insert_line(point.line, line, point.indent) for line in inserted)]

    def _unit(self) -> str:
        """Return one level of indentation as the loop uses it."""
        outer = self.source.indent(self.loop.lineno)
        return self.source.indent(self.loop.body[0].lineno).removeprefix(outer) or self.source.one_level(outer)

    # ---- places

    def _points(self) -> Iterator[_Point]:
        loop, source = self.loop, self.source
        first = loop.body[0]
        if not source.alone(first) or first.lineno <= source.header_end(loop):
            raise NoPatch("the body of the loop is on the line of its header: put it on lines of its own")
        if not self.counts_steps:
            line = source.header_end(loop) + 1
            yield _Point(line, source.indent(first.lineno), loop, inside=True)
        stmt = self.source.statement_of(self.use)
        if source.alone(stmt) and not source.code(stmt).startswith("elif"):
            line = source.first_line_with_comments(stmt, source.header_end(loop))
            yield _Point(line, source.indent(stmt.lineno), stmt, inside=False)

    # ---- the sampler

    def _targets(self, point: _Point) -> Iterator[_Target]:
        for expr in self._names_of_sampler():
            held = values_at(self.names, expr, point.stmt, inside=point.inside)
            if self.sampler not in held or Absent.UNBOUND in held:
                continue
            name = dotted_name(expr)
            others = held - {self.sampler, Absent.NONE}
            none = f"{name} is not None" if Absent.NONE in held else ""
            yield _Target(name, f'hasattr({name}, "set_epoch")' if others else none)
        if isinstance(self.loader, (ast.Name, ast.Attribute)) and dotted_name(self.loader):
            held = values_at(self.names, self.loader, point.stmt, inside=point.inside)
            held -= frozenset() if point.inside else self._excluded_by_use(point.stmt)
            yield from self._through_loader(dotted_name(self.loader), held)

    def _excluded_by_use(self, stmt: ast.stmt) -> State:
        """Return what the loader cannot be where ``stmt`` reads it: the script would fail there without the patch."""
        if stmt is self.use:
            return frozenset([Absent.UNBOUND, Absent.NONE])
        value = stmt.value if isinstance(stmt, (ast.Expr, ast.Assign, ast.Return)) else None
        return frozenset([Absent.UNBOUND]) if value is self.use else frozenset()

    def _names_of_sampler(self) -> Iterator[ast.Name | ast.Attribute]:
        """Yield a node for each variable of the loop's function, and attribute of its class, that holds the sampler."""
        scope = self.names.scope_of[self.loop]
        owner = self.names.enclosing_class(scope)
        found: set[str] = set()
        for node, at in self.names.scope_of.items():
            if not isinstance(node, (ast.Name, ast.Attribute)) or (path := dotted_name(node)) in found:
                continue
            local = isinstance(node, ast.Name) and at is scope and path in scope.bindings
            own = path.startswith("self.") and owner is not None and self.names.enclosing_class(at) is owner
            if (local or own) and self.sampler in self.names.origins(node):
                found.add(path)
                yield node

    def _through_loader(self, name: str, held: State) -> Iterator[_Target]:
        loaders = [
            value for value in held if isinstance(value, ast.Call) and is_call_of(self.script, value, LOADER_CLASSES)
        ]
        if not loaders or held - {*loaders, Absent.NONE}:
            return
        made = [samplers_of_loader(self.script, loader) for loader in loaders]
        samplers = [list(each) for each in made]
        ways = {way for each in samplers for item, way in each if item is self.sampler}
        if len(ways) != 1:
            return
        way = ways.pop()
        always = all([item for item, _ in each] == [self.sampler] for each in samplers) and not self._may_be_missing()
        if not always and way != ".sampler":
            return
        conditions = [f"{name} is not None"] if Absent.NONE in held else []
        conditions += [] if always else [f'hasattr({name}{way}, "set_epoch")']
        yield _Target(f"{name}{way}", " and ".join(conditions))

    def _may_be_missing(self) -> bool:
        """Return whether the function that makes the sampler may return without one."""
        function = self.names.enclosing_function(self.sampler)
        inside = set(ast.walk(function)) if function else set[ast.AST]()
        made_here = self.loop in inside or any(
            isinstance(node, ast.Call) and is_call_of(self.script, node, LOADER_CLASSES) for node in inside
        )
        return function is not None and not made_here and may_return_nothing(self.names, function)

    # ---- the number of the epoch

    def _counter(self) -> _Counter:
        loop = self.loop
        if self.counts_steps:
            name = self._free_name()
            return _Counter(name, self._set_to_zero(name), [f"{name} += 1"], [])
        if isinstance(loop, ast.While):
            if name := self._counted_by_while(loop):
                return _Counter(name, [], [], [])
            name = self._free_name()
            return _Counter(name, self._set_to_zero(name), [], [f"{name} += 1"])
        if isinstance(loop.target, ast.Name) and loop.target.id == "_" and self._counts(loop.iter):
            name = self._free_name()
            return _Counter(name, [self.source.replace(loop.target, name)], [], [])
        if counted := self._counted_by_for(loop):
            return counted
        if isinstance(loop, ast.AsyncFor):
            raise NoPatch("the loop does not count epochs: count its iterations, and pass the count to set_epoch")
        name, target = self._free_name(), self.source.code(loop.target)
        target = f"({target})" if isinstance(loop.target, ast.Tuple) and not target.startswith("(") else target
        edits = [
            self.source.replace(loop.target, f"{name}, {target}"),
            Edit(self.source.start(loop.iter), self.source.start(loop.iter), "enumerate("),
            Edit(self.source.end(loop.iter), self.source.end(loop.iter), ")"),
        ]
        return _Counter(name, edits, [], [])

    def _counted_by_for(self, loop: ast.For | ast.AsyncFor) -> _Counter | None:
        """Return the loop variable, if it counts the iterations and is the same on every rank."""
        target = loop.target
        if isinstance(target, (ast.Tuple, ast.List)):
            enumerated = isinstance(loop.iter, ast.Call) and dotted_name(loop.iter.func) == "enumerate"
            counts = enumerated and bool(target.elts) and not self._may_differ(loop.iter)
            target = target.elts[0] if target.elts else target
            if isinstance(target, ast.Name) and target.id == "_" and counts:
                name = self._free_name()
                return _Counter(name, [self.source.replace(target, name)], [], [])
        else:
            counts = self._counts(loop.iter)
        if not counts or not isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        path = dotted_name(target)
        inside = set(nodes_of_body(loop))
        if path and any(binding.at in inside for binding in self.names.bindings(target)):
            return None
        return _Counter(self.source.code(target), [], [], [])

    def _counts(self, items: ast.expr) -> bool:
        """Return whether an expression gives whole numbers in a row, the same on every rank."""
        while isinstance(items, ast.Call) and not COUNTS.match(dotted_name(items.func)):
            if not items.args or dotted_name(items.func).rpartition(".")[2] in ("enumerate", "zip", "map"):
                return False
            items = items.args[0]
        return isinstance(items, ast.Call) and not self._may_differ(items)

    def _counted_by_while(self, loop: ast.While) -> str:
        """Return the variable of the test that each iteration increases by one, if it is the same on every rank."""
        own = [*nodes_of_body(loop)]
        if any(isinstance(node, ast.Continue) for node in own):
            return ""
        tested = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
        for stmt in loop.body:
            match stmt:
                case ast.AugAssign(target=ast.Name(id=name) as target, op=ast.Add(), value=ast.Constant(value=1)) if (
                    name in tested
                ):
                    bound = [each for each in self.names.bindings(target) if each.at in own]
                    return "" if len(bound) > 1 or differs_by_rank(self.script, target) else name
        return ""

    def _may_differ(self, call: ast.expr) -> bool:
        return self.script.depends_on_rank(call) or any(
            differs_by_rank(self.script, node) for node in ast.walk(call) if isinstance(node, (ast.Name, ast.Attribute))
        )

    def _set_to_zero(self, name: str) -> list[Edit]:
        if not self.source.alone(self.loop):
            raise NoPatch("the loop shares its line with another statement: put it on a line of its own")
        first = self.source.first_line_with_comments(self.loop, self.loop.lineno - 1)
        return [self.source.insert_line(first, f"{name} = 0", self.source.indent(self.loop.lineno))]

    def _free_name(self) -> str:
        scope = self.names.scope_of[self.loop]
        for name in COUNTER_NAMES:
            if not self.names.lookup(name, scope):
                return name
        raise NoPatch("the loop does not count epochs: count its iterations, and pass the count to set_epoch")
