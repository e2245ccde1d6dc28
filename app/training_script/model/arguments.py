"""Arguments of calls: what is unpacked, and what was given before, is written out."""

import ast
from collections.abc import Iterable

from ..nodes import CompletedCall
from .choices import ChoiceEvaluator
from .values import Record, Value, is_elements


class ArgumentEvaluator(ChoiceEvaluator):
    """The arguments of calls in one function."""

    def arguments(self, node: ast.Call) -> tuple[ast.Call, list[Value], dict[str, Value]]:
        """Evaluate the arguments of a call; return it with the elements of known sequences and mappings written out."""
        if ast.Starred not in map(type, node.args):
            values = [self.evaluate(arg) for arg in node.args]
            if not node.keywords:
                return node, values, {}
            if None not in [each.arg for each in node.keywords]:
                return node, values, {each.arg or "": self.evaluate(each.value) for each in node.keywords}
            return self._written_out(node, values, node.args)
        values: list[Value] = []
        placed: list[ast.expr] = []
        for arg in node.args:
            value = self.evaluate(arg)
            if type(arg) is ast.Starred and is_elements(value.obj):
                values += value.obj
                placed += _elements_of(arg.value, len(value.obj))
            else:
                values.append(value)
                placed.append(arg)
        return self._written_out(node, values, placed)

    def _written_out(
        self, node: ast.Call, values: list[Value], placed: list[ast.expr]
    ) -> tuple[ast.Call, list[Value], dict[str, Value]]:
        """Evaluate the named arguments of a call, of which those by their places are known."""
        named: dict[str, Value] = {}
        keywords: list[ast.keyword] = []
        for each in node.keywords:
            value = self.evaluate(each.value)
            if each.arg is None and isinstance(value.obj, Record):
                named |= value.obj.fields
                keywords += _fields_of(each, value.obj.fields)
            else:
                named[each.arg or "**"] = value
                keywords.append(each)
        is_written_out = placed == node.args and keywords == node.keywords
        return node if is_written_out else self.complete(node, node.func, placed, keywords), values, named

    def complete(
        self, written: ast.Call, function: ast.expr, placed: list[ast.expr], named: list[ast.keyword]
    ) -> CompletedCall:
        """Return a call with all that it passes on, at the place of the one that is written."""
        made = ast.copy_location(CompletedCall(function, placed, named), written)
        made.written = written
        return made

    def with_arguments(self, partial: ast.Call, call: ast.Call) -> ast.Call:
        """Return a call with the arguments that were given before it, as if it were written out."""
        if len(partial.args) < 2 and not partial.keywords:
            return call
        placed, named = [*partial.args[1:], *call.args], [*partial.keywords, *call.keywords]
        if call.func is partial:  # all of it is written at one place
            return self.complete(call, partial.args[0], placed, named)
        return ast.copy_location(ast.Call(call.func, placed, named), call)


def _elements_of(held: ast.expr, count: int) -> list[ast.expr]:
    """Return expressions for the elements of a sequence, which are those that it is written with, if it is."""
    if isinstance(held, ast.Tuple | ast.List) and len(held.elts) == count:
        return held.elts
    return [_part(held, place) for place in range(count)]


def _fields_of(held: ast.keyword, names: Iterable[str]) -> list[ast.keyword]:
    """Return named arguments for the entries of a mapping, if it is written there: another one may get more later."""
    match held.value:
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            written = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
        case ast.Call(func=ast.Name(id="vars"), args=[ast.Call(args=[], keywords=keywords)]):
            written = {each.arg: each.value for each in keywords}
        case ast.Call(args=[], keywords=keywords):
            written = {each.arg: each.value for each in keywords}
        case _:
            return [held]
    return [ast.keyword(name, written[name]) for name in names] if written.keys() >= set(names) else [held]


def _part(held: ast.expr, name: int) -> ast.expr:
    made = ast.Subscript(held, ast.copy_location(ast.Constant(name), held), ast.Load())
    return ast.copy_location(made, held)
