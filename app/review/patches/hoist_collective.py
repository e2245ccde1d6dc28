"""The patch for DW401: move a collective and what it needs out of a condition on the rank; side effects stay under it.

The body of the branch is split into runs that keep their order: statements that the collective depends on move out to
the level of the condition, all others stay under (a copy of) it. Refused if more would change than which ranks do the
work.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from ...training_script.collectives import POINT_TO_POINT
from ...training_script.edits import Edit
from ...training_script.model.sequences import Site
from ...training_script.syntax import LOOPS, dotted_name, nodes_of_body
from ..rank_bindings import differs_by_rank, is_under_rank_condition
from ..rule_context import Patch, Script, no_patch
from ..side_effects import called_name, is_side_effect, writes_output
from .carried_state import changed_behind, refuse_state_of_some, refuse_unbound
from .guarded_writes import guarded_writes
from .hoist_edits import BodyPiece, NoPatch, branch_edits
from .names_in_code import asked_for, names_read, names_set, reads_any, touches
from .torch_names import INIT, distributed_module
from .writes_elsewhere import write_elsewhere

FIX = "hoist-collective"
LEAVING = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
LOOP_EXITS = (ast.Break, ast.Continue)
# Calls whose result does not depend on data of one rank.
SAME_EVERYWHERE = re.compile(
    r"len|isinstance|hasattr|getattr|int|float|bool|str|min|max|abs|range|is_initialized|is_available|get_world_size"
    r"|device_count|parse_args|get|getenv"
)
BLOCKS = (ast.For, ast.With, ast.If)


def hoist_collective(
    script: Script, guard: ast.If, calls: Sequence[ast.Call], way: Sequence[Site] = (), *, by_first: bool = False
) -> Patch:
    """Return the patch that lets every rank reach ``calls``, all in the body of ``guard``; display-only if refused.

    ``way``: the calls that lead to a collective, and its place. ``by_first``: the condition lets rank 0 through, and
    no other rank.
    """
    if found := write_elsewhere(script.source.path, way):
        return no_patch(FIX, f"{found}() also writes, and would on every rank: move the collective out of it")
    try:
        return _Hoist(script, guard, calls, by_first=by_first).patch()
    except NoPatch as why:
        return no_patch(FIX, str(why))


class _Hoist:
    def __init__(self, script: Script, guard: ast.If, calls: Sequence[ast.Call], *, by_first: bool) -> None:
        self.script, self.source, self.guard, self.by_first = script, script.source, guard, by_first
        self.writes: list[Edit] = []
        self.calls: set[ast.AST] = {*calls}
        self.through = [function for call in calls if (function := script.names.function(call))]
        self.needed: set[str] = set()
        self.moved: list[ast.AST] = []
        self.together: set[ast.stmt] = set()
        self.rank_test, self.uniform_test = self._split_test()
        self._refuse_what_cannot_move(calls)

    def patch(self) -> Patch:
        pieces = self._split_with_state()
        self._check_moved()
        refuse_unbound(self.script, self.guard, pieces)
        refuse_state_of_some(self.script, self.guard, pieces, self.calls)
        names = sorted({function.name for function in self.through})
        why = f"{names[0]}() now runs" if names else "the collective and its inputs now run"
        return Patch(
            id=FIX,
            safety="unsafe",
            why_unsafe=f"{why} on all ranks; printing, logging and writing stay under `{self.rank_test}`",
            edits=[*branch_edits(self.source, self.guard, pieces, self.rank_test, self.uniform_test), *self.writes],
        )

    # ---- refusals

    def _split_test(self) -> tuple[str, str]:
        """Return the parts of the condition that depend on the rank, and those that are the same on every rank."""
        test, source, by_rank = self.guard.test, self.source, self.script.depends_on_rank
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        ranked = [part for part in parts if by_rank(part)]
        uniform = [part for part in parts if not by_rank(part)]
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(test)):
            raise NoPatch("the condition assigns a name")
        if unknown := [text for part in ranked for text in self._unknown_parts(part)]:
            raise NoPatch(
                f"the condition mixes the rank with `{min(unknown)}`: decide by hand when every rank should call it"
            )
        for part in uniform:
            self._refuse_what_may_differ(part)
        join = " and ".join
        lacks_group = [] if self.by_first else self._asks_for_group()
        return (
            join(source.one_line(part) for part in ranked),
            join([*lacks_group, *(source.one_line(part) for part in uniform)]),
        )

    def _asks_for_group(self) -> list[str]:
        """Return the question whether there is a process group, if a run of one process has none and no such call."""
        made = [reach for reach, _ in self.script.noted(INIT)]
        module = distributed_module(self.script, self.guard)
        return [f"{module}.is_initialized()"] if module and any(each.conditions for each in made) else []

    def _unknown_parts(self, test: ast.expr) -> Iterator[str]:
        """Yield the parts of a test whose value does not follow from the rank."""
        match test:
            case _ if self.script.is_known_by_rank(test):
                return
            case ast.BoolOp(values=values):
                for value in values:
                    yield from self._unknown_parts(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self._unknown_parts(operand)
            case _:
                yield ast.unparse(test)

    def _refuse_what_cannot_move(self, calls: Sequence[ast.Call]) -> None:
        guard, source = self.guard, self.source
        if guard.orelse:
            raise NoPatch("the condition has an else branch: move the collective out of both by hand")
        if source.code(guard).startswith("elif"):
            raise NoPatch("the condition is an elif: move the collective out by hand")
        for above in (above for call in calls for above in self._above(call) if isinstance(above, ast.If)):
            if self.script.depends_on_rank(above.test):
                raise NoPatch("the collective is under more than one condition on the rank")
            self._refuse_what_may_differ(above.test)
        asked = {ast.unparse(each) for each in asked_for(guard.test)}
        used = {ast.unparse(each.func.value) for each in calls if isinstance(each.func, ast.Attribute)}
        if missing := asked & used:
            raise NoPatch(f"`{min(missing)}` may be None on the other ranks: make it on every rank first")
        if self._waits_for_body():
            raise NoPatch("it waits for what another rank does at the yield: let that rank call it behind the yield")
        if is_under_rank_condition(self.script, guard):
            raise NoPatch("the collective is under more than one condition on the rank")
        for stmt in guard.body:
            for node in (stmt, *nodes_of_body(stmt)):
                if isinstance(node, LEAVING) or (
                    isinstance(node, LOOP_EXITS) and not any(isinstance(a, LOOPS) for a in self._above(node))
                ):
                    raise NoPatch(f"line {node.lineno} leaves the branch: move the collective out by hand")
        for function in self.through:
            writes = [each for each in nodes_of_body(function) if isinstance(each, ast.Call) and writes_output(each)]
            edits = guarded_writes(self.script, function, writes) if self.by_first else None
            if writes and edits is None:
                raise NoPatch(
                    f"{function.name}() also writes (line {writes[0].lineno}), and would on every rank: "
                    "move the collective out of it, keep the writing under the condition"
                )
            self.writes += edits or []

    def _waits_for_body(self) -> bool:
        """Return whether the condition is in a generator, whose caller does something in the middle."""
        function = self.script.names.enclosing_function(self.guard)
        inside = nodes_of_body(function) if function else ()
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside)

    def _check_moved(self) -> None:
        """Refuse if a moved statement depends on, or later decides, what only some ranks have."""
        bound_by = {name for node in self.moved for name in names_set(node)}
        for call in (n for node in self.moved for n in (node, *nodes_of_body(node)) if isinstance(n, ast.Call)):
            if called_name(call)[1] in POINT_TO_POINT:
                raise NoPatch(f"the collective depends on data that one rank sends or receives (line {call.lineno})")
        function = self.script.names.enclosing_function(self.guard) or self.source.tree
        inside = set(ast.walk(self.guard))
        for node in nodes_of_body(function):
            test = node.test if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) else None
            if test is None or node in inside or self._asks_for_rank(test, bound_by):
                continue
            for name in ast.walk(test):
                if not (isinstance(name, ast.Name) and name.id in bound_by):
                    continue
                if any(binding.at not in inside for binding in self.script.names.bindings(name)):
                    raise NoPatch(f"line {test.lineno} depends on `{name.id}`, which every rank would then have")

    def _asks_for_rank(self, test: ast.expr, bound_by: set[str]) -> bool:
        """Return whether a term of a test lets only some ranks through, whatever the moved statements bind."""
        terms = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        return any(self.script.depends_on_rank(term) and not reads_any(term, bound_by) for term in terms)

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around ``node``, up to the branch."""
        parent = self.source.parents[node]
        while parent is not self.guard:
            yield parent
            parent = self.source.parents[parent]

    def _refuse_what_may_differ(self, test: ast.expr, depth: int = 3) -> None:
        """Refuse if ``test`` may differ between ranks: by the rank, by their data, or by files."""
        for node in ast.walk(test):
            if isinstance(node, (ast.Name, ast.Attribute)) and differs_by_rank(self.script, node):
                raise NoPatch(f"`{ast.unparse(node)}` in a condition is not the same on every rank")
            if isinstance(node, ast.Call) and not SAME_EVERYWHERE.fullmatch(called_name(node)[1]):
                raise NoPatch(f"`{ast.unparse(node)}` decides, and may differ between ranks")
            if isinstance(node, ast.Name) and not isinstance(self.source.parents.get(node), ast.Attribute) and depth:
                for binding in self.script.names.bindings(node):
                    if binding.value is not None and binding.kind == "assign":
                        self._refuse_what_may_differ(binding.value, depth - 1)

    def _is_for_one(self, call: ast.Call) -> bool:
        """Return whether a call has an effect that only one rank should have; a collective of a library has none."""
        function = self.script.names.function(call)
        return is_side_effect(call) and not (call in self.calls and (self.writes or function is None))

    # ---- statements that move

    def _split_with_state(self) -> list[BodyPiece]:
        """Split the branch; what changes the state that the moved statements take over moves with them."""
        while True:
            self.needed, self.moved = set(), []
            pieces = self._split(self.guard.body)
            if not (behind := changed_behind(self.script, pieces, self.calls)):
                return pieces
            self.together |= behind

    def _split(self, body: Sequence[ast.stmt]) -> list[BodyPiece]:
        """Decide which statements move, last to first, so that what a moved statement needs moves too."""
        pieces = [self._piece(stmt) for stmt in reversed(body)]
        return pieces[::-1]

    def _piece(self, stmt: ast.stmt) -> BodyPiece:
        holds = any(node in self.calls or node in self.together for node in (stmt, *nodes_of_body(stmt)))
        gives = any(touches(path, self.needed) for path in self._binds(stmt))
        if not holds and not gives:
            return BodyPiece(stmt, False, [])
        effects = [
            node for node in (stmt, *nodes_of_body(stmt)) if isinstance(node, ast.Call) and self._is_for_one(node)
        ]
        if not effects:
            self._move(stmt)
            return BodyPiece(stmt, True, [])
        simple = (
            not isinstance(stmt, BLOCKS)
            or (isinstance(stmt, ast.If) and bool(stmt.orelse))
            or bool(getattr(stmt, "orelse", []))
        )
        if simple:
            raise NoPatch(
                f"line {effects[0].lineno} has an effect that only one rank should have, and the collective needs it"
            )
        if any(node in effects for head in _heads(stmt) for node in ast.walk(head)):
            raise NoPatch(f"line {stmt.lineno} has an effect that only one rank should have, around the collective")
        if any(isinstance(node, LOOP_EXITS) for node in nodes_of_body(stmt)):
            raise NoPatch(f"the loop at line {stmt.lineno} ends early: move the collective out by hand")
        for head in _heads(stmt):
            self._move(head)
        while True:  # a loop may need at its end what it sets at its start
            before = set(self.needed)
            inner = self._split(stmt.body)  # type: ignore[attr-defined]
            if before == self.needed:
                return BodyPiece(stmt, True, inner)

    def _binds(self, node: ast.AST) -> set[str]:
        """Return the dotted names that ``node`` sets, or may change by a method or by a function that gets them."""
        found = names_set(node)
        for child in (node, *nodes_of_body(node)):
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Call)) or is_side_effect(child.value):
                continue
            call = child.value
            if isinstance(call.func, ast.Attribute) and not self.script.names.qualified(call.func):
                found.add(dotted_name(call.func.value))
            found |= {dotted_name(value) for value in [*call.args, *(keyword.value for keyword in call.keywords)]}
        return found - {""}

    def _move(self, node: ast.AST) -> None:
        self.moved.append(node)
        self.needed |= names_read(node)


def _heads(stmt: ast.stmt) -> list[ast.AST]:
    match stmt:
        case ast.For(target=target, iter=items):
            return [target, items]
        case ast.With(items=items):
            return list(items)
        case ast.If(test=test):
            return [test]
    return []
