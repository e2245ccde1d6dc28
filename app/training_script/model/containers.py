"""Evaluate the sequences, sets and mappings that a program writes out."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from .amounts import is_of_data
from .followed import MOST_ELEMENTS, is_followed
from .iterables import MAPPING, OF_TEXTS, UNORDERED_FACT
from .keys import Key, is_text
from .names import CARRIED, MOST_NESTED, POOLED
from .orders import OrderEvaluator
from .values import (
    Record,
    Table,
    Value,
)


class ContainerEvaluator(OrderEvaluator):
    """Evaluation of sequences, sets and mappings in one function."""

    def _Tuple(self, node: ast.Tuple) -> Value:
        return self._sequence(node, node.elts)

    def _List(self, node: ast.List) -> Value:
        return self._sequence(node, node.elts)

    def _Set(self, node: ast.Set) -> Value:
        value = self._sequence(node, node.elts)
        # The hash of a text is another one in each process, and so is the order of several.
        texts = value.key.op == "sequence" and len(node.elts) > 1 and all(map(is_text, value.key.args))
        return replace(value, facts=value.facts | UNORDERED_FACT | OF_TEXTS, obj=None) if texts else value

    def _Dict(self, node: ast.Dict) -> Value:
        names = [self.evaluate(each) for each in node.keys]
        values = [self.evaluate(each) for each in node.values]
        if len(values) > MOST_ELEMENTS or None in node.keys or not all(each.key.is_constant for each in names):
            table = (
                Table(tuple(names), tuple(values)) if len(values) <= MOST_NESTED and is_followed(tuple(names)) else None
            )
            if table is None and None in node.keys and len(values) <= MOST_ELEMENTS:
                return self._merged(names, values)
            if table is None and any(is_of_data(each.key) for each in names):
                return Value(self.distinct(node), MAPPING)
            if table is None and None not in node.keys and len(values) <= MOST_ELEMENTS and _are_texts(names):
                return Value(self.keys.make("mapping", *pairs_of(names, values)))
            return replace(self.unknown(node, *names, *values), obj=table)
        facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED - UNORDERED_FACT
        fields = {name.key.value: value for name, value in zip(names, values, strict=True)}
        return Value(self.keys.make("mapping", *pairs_of(names, values)), facts, Record(fields))

    def _merged(self, names: list[Value], values: list[Value]) -> Value:
        """Return a mapping with the entries of others: with each name, if all of them are known."""
        merged: dict[Any, Value] | None = {}
        for name, value in zip(names, values, strict=True):
            own = {name.key.value: value} if name.key.is_constant and name.key is not self.keys.none else None
            fields = value.obj.fields if name.key is self.keys.none and isinstance(value.obj, Record) else own
            merged = None if merged is None or fields is None else {**merged, **fields}
        if merged is not None:
            return self.mapping(merged)
        return Value(self.keys.make("merged", *(value.key for value in values)))

    def _sequence(self, node: ast.expr, elements: Sequence[ast.expr]) -> Value:
        values = [self.evaluate(each) for each in elements]
        if any(isinstance(each, ast.Starred) for each in elements):
            made = self.unknown(node, *values)
            return replace(made, facts=facts_of_all(values) & POOLED)
        if len(values) > MOST_ELEMENTS:
            differs_by = self.unknown(node, *values).key.differs_by
            return Value(self.keys.make("elements", len(values), *self.place(node), differs_by=differs_by))
        facts = facts_of_all(values) & CARRIED - UNORDERED_FACT
        key = self.keys.make("sequence", *(value.key for value in values))
        return Value(key, facts, tuple(values))


def pairs_of(names: list[Value], values: list[Value]) -> Iterator[Key]:
    """Yield the names and values of a mapping in turn."""
    return (each.key for pair in zip(names, values, strict=True) for each in pair)


def _are_texts(names: list[Value]) -> bool:
    """Return whether names are written out, or texts with values in them."""
    return all(is_text(each.key) for each in names)


def facts_of_all(values: Sequence[Value]) -> frozenset[str]:
    """Return the facts of what is put together; it begins with the first of the values."""
    facts = frozenset[str]().union(*(value.facts for value in values))
    return facts - POOLED if values and "pooled" not in values[0].facts else facts
