"""Outlines of modules: their functions without annotations and bodies, which are parsed again where they are asked for.

A program imports far more functions than it calls.
"""

import ast
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...text.python_source import parse_deep
from ..nodes import FIELDS
from ..source import NEWLINE

SHORTEST_LINES = 3  # a shorter function is kept as it is
MOST_BODY_BYTES = 600_000  # of source whose bodies are kept for further calls


class _BodyLater(ast.AST):
    """A function whose body is parsed when it is asked for."""

    source: str

    def __getattr__(self, name: str) -> Any:
        if name != "body":
            raise AttributeError(name)
        self.body = _body(self.source, vars(self)["lineno"])
        _BODIES.keep(self)
        return self.body


class FunctionDef(_BodyLater, ast.FunctionDef):
    """An ``ast.FunctionDef`` of an outline; its name is the one by which statements differ."""


class AsyncFunctionDef(_BodyLater, ast.AsyncFunctionDef):
    """An ``ast.AsyncFunctionDef`` of an outline."""


class _Bodies:
    """The functions of outlines whose bodies were asked for last."""

    def __init__(self) -> None:
        self._read: OrderedDict[_BodyLater, None] = OrderedDict()
        self._count_bytes = 0

    def keep(self, function: _BodyLater) -> None:
        self._read[function] = None
        self._count_bytes += len(function.source)
        while self._count_bytes > MOST_BODY_BYTES and len(self._read) > 1:
            oldest, _ = self._read.popitem(last=False)
            self._count_bytes -= len(oldest.source)
            del oldest.body


_BODIES = _Bodies()


def outline(tree: ast.Module, text: str) -> ast.Module:
    """Return a copy of a syntax tree whose functions hold their text instead of their bodies."""
    return ast.Module(_outlined(tree.body, NEWLINE.split(text.removeprefix("\ufeff"))), [])


def may_mention(function: ast.AST, name: str) -> bool:
    """Return whether the body of a function may contain a name, as far as that is known without parsing it."""
    return not isinstance(function, _BodyLater) or "body" in vars(function) or name in function.source


def count_nodes(tree: ast.Module) -> int:
    """Return the number of nodes, those of bodies that were not asked for left out."""
    found: list[Any] = [*tree.body]
    for node in found:  # which grows meanwhile
        fields = vars(node)
        for name in FIELDS[type(node)]:
            value = fields.get(name)
            if type(value) is list:
                found += [each for each in value if each is not None]
            elif isinstance(value, ast.AST):
                found.append(value)
    return len(found)


def _outlined(body: Sequence[ast.stmt], lines: Sequence[str]) -> list[ast.stmt]:
    return [_outline(stmt, lines) for stmt in body]


def _outline(stmt: ast.stmt, lines: Sequence[str]) -> ast.stmt:
    match stmt:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            last = stmt.end_lineno or stmt.lineno
            if last - stmt.lineno < SHORTEST_LINES:
                return stmt
            kind: Any = FunctionDef if isinstance(stmt, ast.FunctionDef) else AsyncFunctionDef
            function: Any = kind(**{**vars(stmt), "args": _without_annotations(stmt.args), "returns": None})
            function.source = "\n".join(lines[stmt.lineno - 1 : last])
            del function.body
            return function
        case ast.ClassDef(body=body):
            return _copied(stmt, body=_outlined(body, lines))
        case ast.If(body=body, orelse=orelse):
            return _copied(stmt, body=_outlined(body, lines), orelse=_outlined(orelse, lines))
        case ast.Try(body=body, orelse=orelse):
            handlers = [_copied(each, body=_outlined(each.body, lines)) for each in stmt.handlers]
            return _copied(stmt, body=_outlined(body, lines), orelse=_outlined(orelse, lines), handlers=handlers)
        case _:
            return stmt


def _without_annotations(spec: ast.arguments) -> ast.arguments:
    def plain(arg: ast.arg | None) -> ast.arg | None:
        return _copied(arg, annotation=None) if arg and arg.annotation else arg

    lists = {name: [plain(each) for each in getattr(spec, name)] for name in ("posonlyargs", "args", "kwonlyargs")}
    return _copied(spec, **lists, vararg=plain(spec.vararg), kwarg=plain(spec.kwarg))


def _copied(node: Any, **changed: Any) -> Any:
    kind: Any = type(node)
    return kind(**{**vars(node), **changed})


def _body(source: str, line: int) -> list[ast.stmt]:
    """Return the statements of a function, from its text and its first line."""
    indented = source[:1].isspace()
    above = "\n" * (line - 2) + "if 1:\n" if indented and line > 1 else "\n" * (line - 1)
    function: Any = parse_deep(above + source).body[0]
    return (function.body[0] if indented else function).body
