"""The names of one stack frame: what they were assigned, what the caller passed, what a helper returned."""

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..text.python_source import parse_expression
from .syntax import Function, as_expression, parameters

if TYPE_CHECKING:
    from .model.frames import FrameValues, StackEvaluation

RANK = parse_expression('os.environ["RANK"]')
LOCAL_RANK = parse_expression('os.environ["LOCAL_RANK"]')
DEPTH = 6  # functions and modules that are followed from a frame
MOST_LOOKUPS = 500  # of names, from one frame: each scope has its own names, and scopes branch


class RankContext(NamedTuple):
    """The rank for which a condition is evaluated."""

    rank: int
    local_rank: int | None
    world_size: int


class ScriptModule(NamedTuple):
    """A file of a job, and the evaluation of the files of that job."""

    path: str
    tree: ast.Module
    stacks: "StackEvaluation"


class FrameScope:
    """The scope of one stack frame: its function, its caller's arguments, the functions around it, the module."""

    def __init__(
        self,
        script: ScriptModule,
        function: ast.AST,
        caller: "tuple[FrameScope, ast.Call] | None" = None,
        depth: int = 0,
        lookups: Iterator[int] | None = None,
    ) -> None:
        self.script, self.function, self.caller, self.depth = script, function, caller, depth
        self.module = script.tree
        self._lookups = lookups or iter(range(MOST_LOOKUPS))
        self._known: dict[str, tuple[ast.expr, FrameScope] | None] = {}
        self._helpers: dict[ast.Call, tuple[ast.expr, FrameScope] | None] = {}

    @cached_property
    def values(self) -> "FrameValues":
        """The values of expressions in the frame; only those of a stack itself take the arguments of their caller."""
        caller = self.caller and not self.depth and (self.caller[0].values, self.caller[1])
        return self.script.stacks.frame(self.script.path, self.function, caller or None)

    def depends_on_rank(self, expr: ast.expr) -> bool:
        """Return whether a rank goes into an expression."""
        return self.values.depends_on_rank(expr)

    def names_rank(self, expr: ast.expr) -> bool:
        """Return whether an expression itself asks for a rank, not only for something that a rank has chosen."""
        return self.values.names_rank(expr)

    def condition(self, test: ast.expr, who: RankContext) -> bool | None:
        """Return the value of a condition on a rank, or None if unknown."""
        try:
            return bool(self.values.on_rank(test, *who))
        except LookupError:
            return None

    def integer(self, expr: ast.expr, who: RankContext) -> int | None:
        """Return the whole number that an expression is on a rank (a peer, a source), or None if unknown."""
        try:
            value = self.values.on_rank(expr, *who)
        except LookupError:
            return None
        return value if isinstance(value, int) else None

    def definition(self, expr: ast.AST) -> "tuple[ast.expr, FrameScope] | None":
        """Return the one expression that ``expr`` refers to, with the scope to read it in, or None."""
        match expr:
            case ast.Name(id=name):
                return self.lookup(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                return self.attribute(attr)
            case ast.Call():
                return self.helper(expr)
        return None

    def lookup(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        """Return the one expression that ``name`` refers to, with the scope to read it in, or None."""
        if name not in self._known:
            self._known[name] = self._find(name) if self._may_search() else None
        return self._known[name]

    def _inner(self, function: ast.AST, caller: "tuple[FrameScope, ast.Call] | None" = None) -> "FrameScope":
        return FrameScope(self.script, function, caller, self.depth + 1, self._lookups)

    def _may_search(self) -> bool:
        return self.depth <= DEPTH and next(self._lookups, None) is not None

    def _find(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        if value := assigned_value(self.function, name):
            return value, self
        if self.caller and (argument := _argument(self.function, self.caller[1], name)):
            return argument, self.caller[0]
        if name in _parameters(self.function):
            only = None if self.caller else self._only_call()
            argument = _argument(self.function, only, name) if only else None
            return (argument, self._inner(self._holder(argument))) if argument else None
        for around in self._around():
            if value := assigned_value(around, name):
                return value, self._inner(around)
        return None

    def helper(self, call: ast.Call) -> "tuple[ast.expr, FrameScope] | None":
        """Return what a function or method of this module returns, as one expression, or None."""
        if call not in self._helpers:
            self._helpers[call] = self._helper(call) if self._may_search() else None
        return self._helpers[call]

    def _helper(self, call: ast.Call) -> "tuple[ast.expr, FrameScope] | None":
        match call.func:
            case ast.Name(id=name) if (found := self.lookup(name)) and isinstance(found[0], ast.Lambda):
                return found[0].body, found[1]
        return self._returned(self.function_called(call), call)

    def function_called(self, call: ast.Call) -> Function | None:
        """Return the function or method of this module that is called, or None."""
        match call.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                return self._function(name)
        return None

    def attribute(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        """Return what ``self.name`` refers to: its one assignment, that of the class, or what a property returns."""
        key = f"self.{name}"
        if key not in self._known:
            self._known[key] = self._attribute(name) if self._may_search() else None
        return self._known[key]

    def _attribute(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        if value := assigned_value(self.module, f"self.{name}"):
            owner = next(
                (f for f in ast.walk(self.module) if isinstance(f, Function) and _is_in(value, f)), self.module
            )
            return value, self._inner(owner)
        for node in ast.walk(self.module):
            if isinstance(node, ast.ClassDef) and (value := assigned_value(node, name)):
                return value, self._inner(self.module)
        found = self._function(name)
        is_property = found and any("property" in ast.unparse(each) for each in found.decorator_list)
        return self._returned(found, None) if is_property else None

    def _only_call(self) -> ast.Call | None:
        """Return the only call of this function (or of its class) in the module, or None."""
        names = {getattr(self.function, "name", "")}
        for node in ast.walk(self.module):
            if isinstance(node, ast.ClassDef) and self.function in node.body and names == {"__init__"}:
                names = {node.name}
        calls = [node for node in ast.walk(self.module) if isinstance(node, ast.Call)]
        mine = [call for call in calls if (getattr(call.func, "id", None) or getattr(call.func, "attr", None)) in names]
        return mine[0] if len(mine) == 1 else None

    def _holder(self, node: ast.AST) -> ast.AST:
        """Return the innermost function that holds a node, else the module."""
        holders = [f for f in ast.walk(self.module) if isinstance(f, Function) and _is_in(node, f)]
        return holders[-1] if holders else self.module

    def _around(self) -> Iterable[ast.AST]:
        """Return the functions around this one, innermost first, then the module."""
        around = [
            node
            for node in ast.walk(self.module)
            if isinstance(node, Function) and node is not self.function and _is_in(self.function, node)
        ]
        return [*reversed(around), self.module]

    def _function(self, name: str) -> Function | None:
        found = [node for node in ast.walk(self.module) if isinstance(node, Function) and node.name == name]
        return found[0] if len(found) == 1 else None

    def _returned(self, function: Function | None, call: ast.Call | None) -> "tuple[ast.expr, FrameScope] | None":
        value = as_expression(function.body) if function else None
        if not function or not value:
            return None
        return value, self._inner(function, (self, call) if call else None)


def assigned_value(where: ast.AST, name: str) -> ast.expr | None:
    """Return the value assigned to ``name`` (or ``self.name``) in a function or at the top of a module, or None.

    A first value and others under conditions become a choice between them.
    """
    found: list[tuple[ast.expr, list[tuple[ast.expr, bool]] | None]] = []
    for node, tests in _statements(where, deep=name.startswith("self.")):
        match node:
            case ast.Assign(targets=targets, value=value):
                found += [(v, tests) for t in targets if (v := _part_for(t, value, name))]
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_target(target, name):
                found.append((value, tests))
            case ast.NamedExpr(target=target, value=value) if _is_target(target, name):
                found.append((value, tests))
            case ast.AugAssign(target=target) | ast.For(target=target) if _is_target(target, name):
                return None
    if not found or any(tests is None for _, tests in found[1:]):
        return found[0][0] if len(found) == 1 else None
    result = found[0][0]
    for value, tests in found[1:]:
        for test, needs in reversed(tests or []):
            value = ast.IfExp(test=test, body=value if needs else result, orelse=result if needs else value)
        result = value
    return result


def _statements(where: ast.AST, deep: bool) -> Iterable[tuple[ast.AST, list[tuple[ast.expr, bool]] | None]]:
    """Yield the nodes of a function or module in the order of the text, each with the conditions it is under.

    The conditions are None in a loop or a handler. Inner functions and classes are left out unless ``deep``.
    """

    def walk(
        nodes: Iterable[ast.AST], tests: list[tuple[ast.expr, bool]] | None
    ) -> Iterable[tuple[ast.AST, list[tuple[ast.expr, bool]] | None]]:
        for node in nodes:
            yield node, tests
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                if deep:
                    yield from walk(ast.iter_child_nodes(node), tests)
            elif isinstance(node, ast.If):
                yield from walk([node.test], tests)
                yield from walk(node.body, None if tests is None else [*tests, (node.test, True)])
                yield from walk(node.orelse, None if tests is None else [*tests, (node.test, False)])
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)):
                yield from walk(ast.iter_child_nodes(node), None)
            else:
                yield from walk(ast.iter_child_nodes(node), tests)

    return walk(ast.iter_child_nodes(where), [])


def _part_for(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    """Return what ``name`` gets of an assignment (of ``a, b = x, y`` its own part), or None."""
    if _is_target(target, name):
        return value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return next((v for t, v in zip(target.elts, value.elts, strict=True) if _is_target(t, name)), None)
    return None


def _is_target(target: ast.expr, name: str) -> bool:
    match target:
        case ast.Name(id=id_):
            return id_ == name
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return f"self.{attr}" == name
    return False


def _parameters(function: ast.AST) -> list[str]:
    return parameters(function) if isinstance(function, Function) else []


def _argument(function: ast.AST, call: ast.Call, name: str) -> ast.expr | None:
    """Return what the caller passes for the parameter ``name``, else its default, else None."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if not isinstance(function, Function):
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    is_method = names[:1] == ["self"] and (isinstance(call.func, ast.Attribute) or function.name == "__init__")
    positional = names[1:] if is_method else names
    if name in positional and positional.index(name) < len(call.args):
        value = call.args[positional.index(name)]
        return None if isinstance(value, ast.Starred) else value
    if any(isinstance(a, ast.Starred) for a in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return None
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    for keyword, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default:
            defaults[keyword.arg] = default
    return defaults.get(name)


def _is_in(node: ast.AST, function: ast.AST) -> bool:
    first, last = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0)
    return first <= getattr(node, "lineno", 0) and getattr(node, "end_lineno", 0) <= last
