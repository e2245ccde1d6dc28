"""What a name in a script stands for, read from the text: what was assigned, passed by a caller, got from a helper."""

import ast
from collections.abc import Iterable

Function = ast.FunctionDef | ast.AsyncFunctionDef
INDEX = ast.Name(id="rank", ctx=ast.Load())  # what mp.spawn passes first


class FrameScope:
    """Where a condition stands: what its names were assigned, in the function, its caller's arguments, the functions
    around it, the module."""

    def __init__(
        self, module: ast.Module, function: ast.AST, caller: "tuple[FrameScope, ast.Call] | None" = None
    ) -> None:
        self.module, self.function, self.caller = module, function, caller
        self._known: dict[str, tuple[ast.expr, FrameScope] | None] = {}

    def lookup(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        """The one expression ``name`` stands for, with the scope to read it in; None where there is none or several."""
        if name not in self._known:
            self._known[name] = self._looked_up(name)
        return self._known[name]

    def _looked_up(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        if value := assigned_value(self.function, name):
            return value, self
        if self.caller and (argument := _argument(self.function, self.caller[1], name)):
            return argument, self.caller[0]
        if name in _parameters(self.function):
            if self._is_spawn_index(name):
                return INDEX, self
            only = None if self.caller else self._only_call()
            argument = _argument(self.function, only, name) if only else None
            return (argument, FrameScope(self.module, self._holder(argument))) if argument else None
        for around in self._around():
            if value := assigned_value(around, name):
                return value, FrameScope(self.module, around)
        return None

    def helper(self, call: ast.Call) -> "tuple[ast.expr, FrameScope] | None":
        """What a function or method of this module returns, as one expression."""
        match call.func:
            case ast.Name(id=name) if (found := self.lookup(name)) and isinstance(found[0], ast.Lambda):
                return found[0].body, found[1]
        return self._returned(self.function_called(call), call)

    def function_called(self, call: ast.Call) -> Function | None:
        """The function or method of this module that is called."""
        match call.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                return self._function(name)
        return None

    def attribute(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        """What ``self.name`` stands for: its one assignment, the class's, or what a property returns."""
        key = f"self.{name}"
        if key not in self._known:
            self._known[key] = self._attribute(name)
        return self._known[key]

    def _attribute(self, name: str) -> "tuple[ast.expr, FrameScope] | None":
        if value := assigned_value(self.module, f"self.{name}"):
            owner = next(
                (f for f in ast.walk(self.module) if isinstance(f, Function) and _is_in(value, f)), self.module
            )
            return value, FrameScope(self.module, owner)
        for node in ast.walk(self.module):
            if isinstance(node, ast.ClassDef) and (value := assigned_value(node, name)):
                return value, FrameScope(self.module, self.module)
        found = self._function(name)
        is_property = found and any("property" in ast.unparse(each) for each in found.decorator_list)
        return self._returned(found, None) if is_property else None

    def _only_call(self) -> ast.Call | None:
        """The one place of the module from which this function is called, or its class made."""
        names = {getattr(self.function, "name", "")}
        for node in ast.walk(self.module):
            if isinstance(node, ast.ClassDef) and self.function in node.body and names == {"__init__"}:
                names = {node.name}
        calls = [node for node in ast.walk(self.module) if isinstance(node, ast.Call)]
        mine = [call for call in calls if (getattr(call.func, "id", None) or getattr(call.func, "attr", None)) in names]
        return mine[0] if len(mine) == 1 else None

    def _holder(self, node: ast.AST) -> ast.AST:
        """The innermost function that holds a node, else the module."""
        holders = [f for f in ast.walk(self.module) if isinstance(f, Function) and _is_in(node, f)]
        return holders[-1] if holders else self.module

    def _around(self) -> Iterable[ast.AST]:
        """The functions around this one, the innermost first, then the module."""
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
        value = _as_expression(function.body) if function else None
        return (
            (value, FrameScope(self.module, function, (self, call) if call else None)) if function and value else None
        )

    def _is_spawn_index(self, name: str) -> bool:
        """Whether this is the parameter by which ``mp.spawn`` or a loop over processes tells the rank."""
        own, parameters = getattr(self.function, "name", ""), _parameters(self.function)
        for node in ast.walk(self.module):
            match node:
                case ast.Call(func=ast.Attribute(attr="spawn" | "start_processes") | ast.Name(id="spawn"), args=args):
                    targets = [*args[:1], *(k.value for k in node.keywords if k.arg == "fn")]
                    if any(isinstance(t, ast.Name) and t.id == own for t in targets):
                        return parameters[:1] == [name]
                case ast.For(target=ast.Name(id=index), iter=ast.Call(func=ast.Name(id="range"))):
                    if own and _starts_process(node, own, index, parameters.index(name)):
                        return True
        return False


def _starts_process(loop: ast.For, function: str, index: str, position: int) -> bool:
    """Whether a loop starts ``Process(target=function, args=(…, index, …))`` with its index at that position."""
    for node in ast.walk(loop):
        keywords = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
        match keywords.get("target"), keywords.get("args"):
            case ast.Name(id=target), ast.Tuple(elts=items) if target == function and position < len(items):
                item = items[position]
                return isinstance(item, ast.Name) and item.id == index
    return False


def assigned_value(where: ast.AST, name: str) -> ast.expr | None:
    """The value of the assignments to ``name`` (or ``self.name``) in a function or at the top of a module; of a first
    value and others under conditions, the choice between them."""
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
    """All nodes of a function or module in the order of the text, each with the conditions it stands under (None: in a
    loop or a handler); without those of the functions and classes inside it unless ``deep``."""

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
    """What ``name`` gets of an assignment; of ``a, b = x, y`` its own part."""
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


def _as_expression(body: list[ast.stmt]) -> ast.expr | None:
    """What a function's body returns, as a choice between expressions; None where that cannot be said."""
    for index, statement in enumerate(body):
        match statement:
            case ast.Return(value=ast.expr() as value):
                return value
            case ast.If(test=test, body=inner, orelse=orelse):
                rest = body[index + 1 :]
                yes, no = _as_expression([*inner, *rest]), _as_expression([*orelse, *rest])
                return ast.IfExp(test=test, body=yes, orelse=no) if yes and no else None
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
                continue
            case _:
                return None
    return None


def _parameters(function: ast.AST) -> list[str]:
    if not isinstance(function, Function):
        return []
    arguments = function.args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(function: ast.AST, call: ast.Call, name: str) -> ast.expr | None:
    """What the caller passes for the parameter ``name``, or its default."""
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
