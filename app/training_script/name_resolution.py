"""Name resolution in one file: imports, functions, classes, and the origins of values.

Flow-insensitive: a name means everything that is ever bound to it. What cannot be followed (another file, a
container, a loop variable) is a leaf, and rules draw no conclusions from unknown leaves.
"""

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from .scopes import Binding, Scope, Scopes
from .source import ScriptSource
from .syntax import FUNCTIONS, Function, dotted_name, is_generator, match_arguments, nodes_of_body, parameters

DEPTH = 12
MOST_BINDINGS = 100  # a name that is bound more often is reused for anything, and is not followed
IMPLICIT = {"__file__", "__name__", "__doc__", "__spec__", "__builtins__", "__class__", "__path__", "__annotations__"}

_Place = tuple[ast.expr, int | None]  # an expression, and the position in the tuple that it gives


class _Calls(NamedTuple):
    """The calls of a file: for each function their arguments, and the functions that started processes run."""

    arguments: dict[Function, list[tuple[ast.Call, dict[str, ast.expr]]]]
    spawned: set[Function]


class Names(Scopes):
    """The names of one file."""

    def __init__(self, source: ScriptSource) -> None:
        super().__init__(source)
        self._returned: dict[Function, list[ast.expr]] = {}
        self._is_generator: dict[Function, bool] = {}

    @property
    def arguments(self) -> dict[Function, list[tuple[ast.Call, dict[str, ast.expr]]]]:
        """The arguments of the calls of each function within the file."""
        return self._calls.arguments

    @property
    def spawned(self) -> set[Function]:
        """The functions that started processes run."""
        return self._calls.spawned

    @cached_property
    def _calls(self) -> _Calls:
        """The calls in the text, which few rules ask for."""
        calls = _Calls(defaultdict(list), set())
        for node, scope in self.scope_of.items():
            if type(node) is ast.Call:  # no call that was completed
                self._record_call(node, scope, calls)
        return calls

    def lookup(self, name: str, scope: Scope) -> tuple[list[Binding], Scope] | None:
        """Return the bindings of ``name`` as seen from ``scope`` and the scope that holds them, or None."""
        start = scope
        at: Scope | None = scope
        while at:
            if at.elsewhere.get(name) == "global":
                at = self.module
            if (at is start or not isinstance(at.node, ast.ClassDef)) and at.bindings.get(name):
                return at.bindings[name], at
            at = at.parent
        return None

    def enclosing_function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around ``node``, or None."""
        at = self.source.parents.get(node)
        while at and not isinstance(at, FUNCTIONS):
            at = self.source.parents.get(at)
        return at

    def qualified(self, expr: ast.expr) -> str:
        """Return the full dotted name of ``expr`` by the imports (``torch.distributed.barrier``), else ""."""
        attributes: list[str] = []
        node = expr
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        found = self.lookup(node.id, self.scope_of.get(node, self.module))
        if not found:
            return ""
        for binding in found[0]:
            if binding.kind == "import":
                return ".".join([_imported(binding.at, node.id), *attributes])
        return ""

    def function(self, call: ast.Call) -> Function | None:
        """Return the function of this file that ``call`` runs, or None if that is not certain."""
        scope = self.scope_of.get(call, self.module)
        match call.func:
            case ast.Name(id=name):
                found = self.lookup(name, scope)
                if not found or len(found[0]) != 1:
                    return None
                at = found[0][0].at
                if isinstance(at, ast.ClassDef):
                    return self.method(at, "__init__")
                return at if isinstance(at, FUNCTIONS) else None
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                owner = self.enclosing_class(scope)
                return self.method(owner, name) if owner else None
            case ast.Attribute(value=ast.Name() as receiver, attr=name):
                made = [binding.value for binding in self.bindings(receiver)]
                owner = self.class_of(made[0]) if len(made) == 1 and made[0] else None
                return self.method(owner, name) if owner else None
        return None

    def class_of(self, expr: ast.AST) -> ast.ClassDef | None:
        """Return the class of this file that ``expr`` instantiates, or None."""
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name):
            found = self.lookup(expr.func.id, self.scope_of.get(expr, self.module))
            if found and len(found[0]) == 1 and isinstance(found[0][0].at, ast.ClassDef):
                return found[0][0].at
        return None

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """Return the method ``name`` of a class or of a base class in this file, or None."""
        for node in owner.body:
            if isinstance(node, FUNCTIONS) and node.name == name:
                return node
        for base in owner.bases:
            if isinstance(base, ast.Name) and (above := self.classes.get(base.id)) and above is not owner:
                return self.method(above, name)
        return None

    def bindings(self, expr: ast.expr) -> list[Binding]:
        """Return the bindings of a name, an attribute of ``self`` or a dotted name (``args.rank``) in the file."""
        scope = self.scope_of.get(expr, self.module)
        if isinstance(expr, ast.Name):
            found = self.lookup(expr.id, scope)
            return found[0] if found else []
        path = dotted_name(expr)
        if not path:
            return []
        if path.startswith("self."):
            owner = self.enclosing_class(scope)
            return self.attributes.get((owner, path), []) if owner else []
        return self.attributes.get((None, path), [])

    def origins(self, expr: ast.expr, depth: int = DEPTH) -> list[ast.AST]:
        """Return the expressions (and parameters) that ``expr`` may finally stand for.

        Followed through names, attributes of ``self``, tuples, functions of this file and their arguments. Leaves are
        calls to other files, constants, parameters that no call gives a value, and what cannot be followed.
        """
        return self._leaves([(expr, None)], depth)

    def origins_of_binding(self, binding: Binding) -> list[ast.AST]:
        """Return the expressions (and parameters) that one binding of a name may finally stand for."""
        if binding.kind == "param":
            return self._leaves(self._steps_to_callers(binding, None), DEPTH)
        return self._leaves([(binding.value, binding.place)], DEPTH) if binding.value else [binding.at]

    def returned_values(self, function: Function) -> list[ast.expr]:
        """Return the expressions that a function returns, in the order of the text."""
        if function not in self._returned:
            found = [node.value for node in nodes_of_body(function) if isinstance(node, ast.Return) and node.value]
            self._returned[function], self._is_generator[function] = found, is_generator(function)
        return self._returned[function]

    def unresolved(self) -> set[str]:
        """Return the names that are read but bound nowhere."""
        if self.star_import:
            return set()
        known = set(dir(builtins)) | IMPLICIT
        return {
            node.id
            for node, scope in self.scope_of.items()
            if isinstance(node, ast.Name) and node.id not in known and not self.lookup(node.id, scope)
        }

    # ---- origins of values

    def _leaves(self, first: "Iterable[ast.AST | _Place]", depth: int) -> list[ast.AST]:
        leaves: dict[ast.AST, None] = {}
        seen: set[_Place] = set()
        level = first
        for _ in range(depth):
            following: list[_Place] = []
            for step in level:
                if isinstance(step, ast.AST):
                    leaves[step] = None
                elif step not in seen:
                    seen.add(step)
                    following.append(step)
            level = [step for at in following for step in self._steps(*at)]
        leaves.update((step, None) for step in level if isinstance(step, ast.AST))
        return list(leaves)

    def _steps(self, expr: ast.expr, place: int | None) -> "Iterator[ast.AST | _Place]":
        """Yield the leaves and the further places of an expression."""
        if isinstance(expr, ast.IfExp):
            yield from ((part, place) for part in (expr.body, expr.orelse))
        elif isinstance(expr, ast.BoolOp) and isinstance(expr.op, ast.Or):
            yield from ((part, place) for part in expr.values)
        elif isinstance(expr, ast.NamedExpr):
            yield expr.value, place
        elif place is not None and isinstance(expr, (ast.Tuple, ast.List)):
            if place < len(expr.elts) and not any(isinstance(item, ast.Starred) for item in expr.elts):
                yield expr.elts[place], None
            else:
                yield expr
        elif isinstance(expr, (ast.Name, ast.Attribute)):
            yield from self._steps_of_name(expr, place)
        elif isinstance(expr, ast.Call) and (function := self.function(expr)) and function.name != "__init__":
            returned = self.returned_values(function)
            if not returned or self._is_generator[function]:
                yield expr
            yield from ((value, place) for value in returned)
        else:
            yield expr

    def _steps_of_name(self, expr: ast.Name | ast.Attribute, place: int | None) -> "Iterator[ast.AST | _Place]":
        bindings = self.bindings(expr)
        if not bindings or len(bindings) > MOST_BINDINGS:
            yield expr
            return
        for binding in bindings:
            if binding.kind == "param":
                yield from self._steps_to_callers(binding, place)
            elif binding.kind == "assign" and binding.value and (place is None or binding.place is None):
                yield binding.value, binding.place if place is None else place
            else:
                yield expr

    def _steps_to_callers(self, binding: Binding, place: int | None) -> "Iterator[ast.AST | _Place]":
        assert isinstance(binding.at, ast.arg)
        function = self.source.parents[self.source.parents[binding.at]]
        given = [
            values[binding.at.arg]
            for _, values in (self.arguments.get(function, []) if isinstance(function, FUNCTIONS) else [])
            if binding.at.arg in values
        ]
        if not given and binding.value:
            given = [binding.value]
        if not given:
            yield binding.at
        yield from ((value, place) for value in given)

    # ---- calls

    def passed_parameters(self, function: Function) -> list[str]:
        """Return the parameters that a call passes: without the object of a method."""
        method = isinstance(self.source.parents.get(function), ast.ClassDef)
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
        return parameters(function)[1 if method and not static else 0 :]

    def _record_call(self, call: ast.Call, scope: Scope, calls: _Calls) -> None:
        if function := self.function(call):
            names = self.passed_parameters(function)
            calls.arguments[function].append((call, match_arguments(names, call.args, call.keywords)))
        target = next(
            (k.value for k in call.keywords if k.arg in ("target", "fn")), call.args[0] if call.args else None
        )
        is_start = self.qualified(call.func).endswith((".spawn", ".start_processes", ".Process"))
        if is_start and isinstance(target, ast.Name):
            self._record_start(call, target, scope, calls)

    def _record_start(self, call: ast.Call, target: ast.Name, scope: Scope, calls: _Calls) -> None:
        """Record the start of a process: ``spawn`` passes the process index before the given arguments."""
        found = self.lookup(target.id, scope)
        function = found[0][0].at if found and len(found[0]) == 1 else None
        if not isinstance(function, FUNCTIONS):
            return
        spawn = not self.qualified(call.func).endswith(".Process")
        place = next((k.value for k in call.keywords if k.arg == "args"), None)
        if place is None and spawn and len(call.args) > 1:
            place = call.args[1]
        names = parameters(function)
        if spawn:
            calls.spawned.add(function)
            names = names[1:]
        if isinstance(place, (ast.Tuple, ast.List)):
            calls.arguments[function].append((call, match_arguments(names, place.elts, [])))


def _imported(node: ast.AST, name: str) -> str:
    """Return the full name that an import statement binds to ``name``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname == name:
                return alias.name
        return name
    assert isinstance(node, ast.ImportFrom)
    above = "." * node.level + (f"{node.module}." if node.module else "")
    for alias in node.names:
        if (alias.asname or alias.name) == name:
            return above + alias.name
    return name
