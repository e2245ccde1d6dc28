"""Evaluate the rounds of loops: first to see what a round changes, then with what a round may find changed."""

import ast
from collections.abc import Callable, Sequence

from .amounts import DISTINCT, is_of_data
from .conditions import ConditionEvaluator
from .function_steps import Rounds
from .iterables import is_of_batches
from .keys import BY_RANK, LOCAL, NEVER_NONE, TOUCHED, Accumulated, Key
from .sequences import Site
from .values import Value


class RoundsEvaluator(ConditionEvaluator):
    """Evaluation of the rounds of loops in one function."""

    def _rounds(
        self,
        count: "Key | Callable[[], Key]",
        site: Site,
        round_: "Callable[[], None]",
        orelse: Sequence[ast.stmt],
        *,
        test_led: bool,
    ) -> None:
        """Evaluate a loop: once to see what changes, then, if anything does, with what a round may find."""
        outside, before, quick, left = self.items, dict(self.env), self.quick, self.left_rounds
        skipped, first = self.skipped, self.env.copy()
        amount = count if isinstance(count, Key) else None
        if quick or not self._is_settled_by_one(before, site, amount, round_):
            self.items, self.left_rounds, self.skipped = [], [], [*skipped]
            round_()
        self.skipped = skipped
        body, self.items = self.items, outside
        changed = self._changed(before, site, amount)
        if amount is not None and not self.left_rounds:
            for name, value in changed.items():
                self.keys.note_accumulated(
                    value.key, Accumulated(first[name].key, before[name].key, self.env[name].key, amount)
                )
        self.again = self.again or bool(changed)  # where this loop is in another one
        self.env.update(changed)
        self.left_rounds = left
        outside, self.items = self.items, []
        self.block(orelse)
        rest, self.items = self.items, outside
        self.items.append(Rounds(count if isinstance(count, Key) else count(), site, body, rest, self.free, test_led))

    def _is_settled_by_one(
        self, before: dict[str, Value], site: Site, count: Key | None, round_: "Callable[[], None]"
    ) -> bool:
        """Evaluate one round of a loop; return whether another one would find and do the same.

        If not, the names are in ``before`` and bound to what a round may find, and nothing else of the round is left.
        """
        returned, skipped, count_stores = list(self.returned), self.skipped, self.shared.count_stores
        self.items, self.left_rounds, self.skipped, self.seen = [], [], [*skipped], []
        self.quick, self.again = True, False
        round_()
        self.quick, seen, self.seen = False, self.seen, []
        changed = self._changed(before, site, count)
        if not (changed or self.again or self.shared.count_stores > count_stores):
            for node, value in seen:
                self.keep(node, value)
            return True
        self.returned, self.skipped = returned, skipped
        before |= changed
        self.restore(before)
        return False

    def _changed(self, before: dict[str, Value], site: Site, count: Key | None) -> dict[str, Value]:
        """Return the names that a round may have changed, at its end or where it was left."""
        loop = (*site[:2], id(count)) if count is not None else site[:2]
        changed: dict[str, Value] = {}
        for env in (*self.left_rounds, self.env):
            for name, value in before.items():
                after = env.get(name)
                if after is not None and after is not value and after.key is not value.key:
                    changed[name] = self._changing(name, loop, changed.get(name, value), after)
        return changed

    def _changing(self, name: str, loop: tuple[object, ...], value: Value, after: Value) -> Value:
        """Return a value that rounds of a loop change: the same where both are, and of what changes it."""
        if after.key.op == DISTINCT:
            return after
        differs_by = value.key.differs_by | after.key.differs_by
        op = "changing" if may_become_none(after.key, value.key) else "altered"
        key = self.keys.make(op, name, *loop, differs_by=differs_by & (LOCAL | TOUCHED))
        if differs_by & BY_RANK and is_of_data(after.key) and counts_up(value.key, after.key):
            key = self.keys.make(op, name, *loop, differs_by=LOCAL)  # a total of data that the rank chooses
        elif differs_by & BY_RANK:
            op = "counted" if counts_on(value.key, after.key) else "changing"
            key = self.keys.make(op, name, *loop, value.key, after.key)
        facts = after.facts if self.is_inner(after, value) else value.facts | after.facts
        return Value(key, facts, after.obj if after.obj == value.obj else value.obj or after.obj)


def counts_on(before: Key, after: Key) -> bool:
    """Return whether a round adds one number, the same on all ranks, to a value."""
    if after.op != "binary" or after.args[0] not in ("Add", "Sub") or after.args[1] is not before:
        return False
    return not after.args[2].differs_by & (BY_RANK | LOCAL)


def counts_up(before: Key, after: Key) -> bool:
    """Return whether a round adds something to a number, or takes something from it."""
    while after.op == "binary" and after.args[0] in ("Add", "Sub"):
        after = after.args[1]
        if after is before:
            return True
    return False


def may_become_none(key: Key, before: Key) -> bool:
    """Return whether a value may be None though the one that it was computed from is not."""
    if key is before or key.op in NEVER_NONE or is_of_batches(key):
        return False
    if key.op == "if":
        return any(may_become_none(part, before) for part in key.args[1:])
    return True
