"""Evaluate comparisons of values."""

import ast

from .choices import sides_of
from .collective_effects import is_gathered
from .comprehensions import ComprehensionEvaluator
from .iterables import is_of_batches
from .keys import BY_RANK, LOCAL, OF_BRANCHES, Key, is_text
from .noted_calls import MEETING_POINT
from .values import (
    Value,
    is_elements,
)

OF_ROUNDS = {"altered", "changing"}  # what earlier rounds of a loop have left, which may be None
LAUNCH_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", *MEETING_POINT}

EXPERIMENT = "wandb.run"


class ComparisonEvaluator(ComprehensionEvaluator):
    """Evaluation of the comparisons in one function."""

    def _Compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        result: Key | None = None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            single = self.keys.make("compare", type(op).__name__, left.key, self._as_members(right))
            if isinstance(op, (ast.In, ast.NotIn)) and left.key.is_constant and right.key.differs_by & LOCAL:
                single = self.unknown(node).key  # data of one rank have the same names on every rank
            elif isinstance(op, (ast.In, ast.NotIn)) and self._is_launch_variable(left, right):
                single = self.keys.constant(isinstance(op, ast.In))
            elif is_text(right.key) and left.key is self.keys.true:
                single = self.unknown(node).key  # its name suggests a flag, but it is the name of something
            if isinstance(op, (ast.Eq, ast.NotEq)) and right.key.is_constant and left.key.differs_by & LOCAL:
                single = self._chosen_test(left.key, right.key, isinstance(op, ast.Eq)) or single
            if isinstance(op, (ast.Eq, ast.NotEq)) and is_gathered(left.key) != is_gathered(right.key):
                single = self.unknown(node).key  # on all ranks alike, some rank has the same as another or not
            if right.key is self.keys.none:
                single = self._none_test(single, left, op, node)
            result = single if result is None else self.keys.make("and", result, single)
            left = right
        assert result is not None
        return Value(result)

    def _chosen_test(self, value: Key, number: Key, equal: bool) -> Key | None:
        """Return the condition under which a branch has chosen a number instead of data; None for other values."""
        if value.op != "if" or value.args[0].differs_by & LOCAL or number not in value.args[1:]:
            return None
        chosen = value.args[0] if value.args[1] is number else self.keys.make("not", value.args[0])
        return chosen if equal else self.keys.make("not", chosen)

    def _is_launch_variable(self, name: Value, owner: Value) -> bool:
        """Return whether a variable of the environment is one that torchrun sets for every rank."""
        return self.qualified(owner) == "os.environ" and name.key.is_constant and name.key.value in LAUNCH_VARIABLES

    def _none_test(self, test: Key, left: Value, op: ast.cmpop, node: ast.Compare) -> Key:
        if self.qualified(left) == EXPERIMENT:
            return test  # it is None where nothing has started a run
        if left.obj is not None and isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            none = self.is_none(left.key)
            return self.keys.make("not", none) if isinstance(op, (ast.IsNot, ast.NotEq)) else none
        if left.key.op == "next":
            return self.keys.make("compare", type(op).__name__, left.key.args[1], self.keys.none)
        by_branch = self._is_none_by_data(left.key) and not is_of_batches(left.key)
        if left.key.differs_by & LOCAL and not test.is_constant and not by_branch:
            return self.unknown(node).key  # a function returns None or not for the same reason on every rank
        if left.key.differs_by & BY_RANK and not test.is_constant and self.keys.none not in sides_of(left.key):
            return self.unknown(node).key  # no side of a branch by the rank is known to be None
        return test

    def _is_none_by_data(self, value: Key) -> bool:
        """Return whether a condition by data of one rank decides between None and something else."""
        pending = [value]
        while pending:
            each = pending.pop()
            if each.op not in OF_BRANCHES:
                continue
            sides = [arg for arg in each.args[each.op == "if" :] if isinstance(arg, Key)]
            if each.op == "if" and each.args[0].differs_by & LOCAL and any(map(self._may_be_none, sides)):
                return True
            pending += sides
        return False

    def _may_be_none(self, value: Key) -> bool:
        return any(side is self.keys.none or side.op in OF_ROUNDS for side in sides_of(value))

    def _as_members(self, value: Value) -> Key:
        if is_elements(value.obj) and all(each.key.is_constant for each in value.obj):
            return self.keys.constant(tuple(each.key.value for each in value.obj))
        return value.key
