"""The files that a module writes or deletes: whether one of them exists may differ from one moment to the next."""

import ast
from collections.abc import Iterable, Iterator

from ..nodes import nodes_below, walk
from ..syntax import FUNCTIONS, dotted_name, last_name

# The place of the path among the arguments; -1: the object of the method.
WRITERS = {
    "save": 1,
    "save_file": 1,
    "dump": 1,
    "replace": 1,
    "rename": 1,
    "copyfile": 1,
    "copy": 1,
    "copy2": 1,
    "move": 1,
    "savez": 0,
    "remove": 0,
    "open": 0,
    "write_text": -1,
    "write_bytes": -1,
    "touch": -1,
    "unlink": -1,
    "symlink_to": -1,
}
MODES = ("w", "a", "x")
OF_NUMPY = ("np", "numpy")  # whose ``save`` gets the path first
MOST_STEPS = 4  # from a path to the text in it
Function = ast.FunctionDef | ast.AsyncFunctionDef


def written_names(tree: ast.Module) -> frozenset[str]:
    """Return the constant names in the paths that the calls of a module write or delete."""
    below = nodes_below(tree)
    if not (writes := [each for each in below if type(each) is ast.Call and last_name(each.func) in WRITERS]):
        return frozenset()
    paths = _Paths(tree)
    found = {text for call in writes for part in _path(call) for text in paths.of(part, MOST_STEPS)}
    return frozenset(name for name in found if "." in name.strip("./"))


class _Paths:
    """The texts that the paths of a module are made of: by its names, parameters, attributes and options."""

    def __init__(self, tree: ast.Module) -> None:
        below = nodes_below(tree)
        self._at_top = _bound(tree.body)
        self._functions = [node for node in below if isinstance(node, FUNCTIONS)]
        self._in_function: dict[ast.AST, dict[str, list[ast.expr]]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        self._attributes: dict[str, list[ast.expr]] = {}
        self._classes: dict[ast.AST, str] = {}  # of the methods
        for node in below:
            match node:
                case ast.Call():
                    self._calls.setdefault(last_name(node.func), []).append(node)
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                    self._attributes.setdefault(name, []).append(value)
                case ast.ClassDef(name=name, body=body):
                    self._classes |= {each: name for each in body if isinstance(each, FUNCTIONS)}
                case _:
                    pass
        for call in self._calls.get("add_argument", ()):
            self._add_option(call)

    def _add_option(self, call: ast.Call) -> None:
        defaults = [each.value for each in call.keywords if each.arg == "default"]
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        for text in texts:
            self._attributes.setdefault(text.lstrip("-").replace("-", "_"), []).extend(defaults)

    def of(self, path: ast.expr, steps: int) -> Iterator[str]:
        """Yield the constant texts that an expression is made of, where names lead to them in so many steps."""
        for part in walk(path):
            held: Iterable[ast.expr] = ()
            match part:
                case ast.Constant(value=str() as text):
                    yield text
                case ast.Name(id=name) if steps:
                    held = self._held(name, part)
                case ast.Attribute(attr=name) if steps:
                    held = self._attributes.get(name, ())
                case _:
                    pass
            for each in held:
                yield from self.of(each, steps - 1)

    def _held(self, name: str, read: ast.Name) -> Iterable[ast.expr]:
        """Return what a name may hold where it is read."""
        function = self._around(read)
        if function is None:
            return self._at_top.get(name, ())
        if function not in self._in_function:
            self._in_function[function] = _bound(walk(function))
        own = self._in_function[function]
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        given = self._given(function, names, name) if name in names else ()
        return [*own.get(name, ()), *given] or self._at_top.get(name, ())

    def _given(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: list[str], name: str) -> list[ast.expr]:
        """Return what calls of a function pass for a parameter."""
        owner = self._classes.get(function, "")
        place = names.index(name) - (1 if owner and names[0] == "self" else 0)
        calls = self._calls.get(owner if function.name == "__init__" else function.name, ())
        by_name = [each.value for call in calls for each in call.keywords if each.arg == name]
        return [*by_name, *(call.args[place] for call in calls if 0 <= place < len(call.args))]

    def _around(self, node: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the innermost function around an expression."""
        line = node.lineno
        around = [each for each in self._functions if each.lineno <= line <= (each.end_lineno or each.lineno)]
        return max(around, key=lambda each: each.lineno, default=None)


def _bound(stmts: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the names that assignments bind, with what they are bound to."""
    found: dict[str, list[ast.expr]] = {}
    for stmt in stmts:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case _:
                pass
    return found


def _path(call: ast.Call) -> list[ast.expr]:
    """Return the path that a call writes to."""
    name = last_name(call.func)
    place = WRITERS[name]
    if place < 0:
        return [call.func]
    if name == "open":
        writes = any(isinstance(each, ast.Constant) and str(each.value).startswith(MODES) for each in call.args[1:2])
        return call.args[:1] if writes else []
    if name == "save" and dotted_name(call.func).startswith(OF_NUMPY):
        place = 0
    return call.args[place : place + 1]
