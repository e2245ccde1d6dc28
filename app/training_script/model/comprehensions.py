"""Evaluate comprehensions: element by element over a few known elements, else as a loop."""

import ast
from collections.abc import Sequence
from typing import Any

from .amounts import is_of_data
from .containers import ContainerEvaluator
from .function_steps import Rounds
from .iterables import OF_TEXTS, UNORDERED_FACT
from .keys import BY_RANK, LOCAL, is_text
from .names import CARRIED, MOST_NESTED, as_own
from .values import (
    NO_FACTS,
    Generated,
    Instance,
    Mapped,
    Value,
    is_elements,
)

HELD_BY_NAME = {"loader", "sampler"}  # what a comprehension makes and a program looks up


class ComprehensionEvaluator(ContainerEvaluator):
    """Evaluation of the comprehensions in one function."""

    def _over_elements(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        """Evaluate a comprehension: element by element over a few known ones, of which a test leaves out those None."""
        clause, *more = node.generators
        if not (more or clause.ifs or clause.is_async) and _is_same_name(node.elt, clause.target):
            return self.evaluate(clause.iter)
        held = self.evaluate(clause.iter) if isinstance(clause.iter, (ast.List, ast.Tuple)) else None
        if held is None or more or not is_elements(held.obj) or len(held.obj) > MOST_NESTED:
            return self._comprehension(node, [node.elt])
        if any(not _leaves_out_none(test, clause.target) for test in clause.ifs):
            return self._comprehension(node, [node.elt])
        before, values = dict(self.env), list[Value]()
        for each in held.obj:
            if not clause.ifs or each.key is not self.keys.none:
                self.bind(clause.target, each)
                values.append(self.evaluate(node.elt))
        self.env.clear()
        self.env.update(before)
        facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
        return Value(self.keys.make("sequence", *(value.key for value in values)), facts, tuple(values))

    def _comprehension(self, node: Any, elements: Sequence[ast.expr]) -> Value:
        before = dict(self.env)
        iterables: list[Value] = []
        by_rank = False
        outside, self.items = self.items, []
        for clause in node.generators:
            iterable = self.evaluate(clause.iter)
            iterables.append(iterable)
            self.bind(clause.target, self.element(iterable, clause.iter))
            chosen = [self.evaluate(test) for test in clause.ifs]
            by_rank = by_rank or any(test.key.differs_by & BY_RANK for test in chosen)
            by_values = iterable.key.op == "local" and any(test.key.differs_by & LOCAL for test in chosen)
            iterables += [self.unknown(clause.iter, *chosen)] if by_values else chosen
        values = [self.evaluate(each) for each in elements]
        if by_rank:
            values = [as_own(each) for each in values]
        body, self.items = self.items, outside
        if body:
            count = self.count(iterables[0], node)
            self.items.append(Rounds(count, self.site(node), body, [], free=False, test_led=False))
        self.env.clear()
        self.env.update(before)
        key = self.keys.make("built", len(iterables), *(value.key for value in (*iterables, *values)))
        held = Mapped if isinstance(node, ast.DictComp) else Generated
        known = isinstance(values[-1].obj, Instance) or values[-1].facts & HELD_BY_NAME
        obj = held(values[-1]) if known else None
        return Value(key, frozenset[str]().union(*(value.facts for value in values)) & CARRIED, obj)

    def _ListComp(self, node: ast.ListComp) -> Value:
        return self._over_elements(node)

    def _SetComp(self, node: ast.SetComp) -> Value:
        made = self._comprehension(node, [node.elt])
        if is_of_data(made.key.args[-1] if made.key.op == "built" else made.key):
            return Value(self.distinct(node), UNORDERED_FACT)
        texts = OF_TEXTS if made.key.op == "built" and is_text(made.key.args[-1]) else NO_FACTS
        return self.unknown(node, made, facts=UNORDERED_FACT | texts)

    def _GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        return self._over_elements(node)

    def _DictComp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, [node.key, node.value])


def _leaves_out_none(test: ast.expr, target: ast.expr) -> bool:
    """Return whether a test of a comprehension only leaves out the elements that are None."""
    return ast.unparse(test) == f"{ast.unparse(target)} is not None"


def _is_same_name(element: ast.expr, target: ast.expr) -> bool:
    """Return whether the element of a comprehension is what its loop gets."""
    return isinstance(element, ast.Name) and isinstance(target, ast.Name) and element.id == target.id
