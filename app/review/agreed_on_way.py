"""Decisions that ranks agree on wherever the collective behind them is reached: both need the same option."""

import ast
from collections.abc import Mapping

from ..training_script.model.divergence import Divergence
from ..training_script.model.keys import BY_RANK, LOCAL, Key
from ..training_script.model.reach import known_tests
from ..training_script.model.sequences import Event
from ..training_script.nodes import nodes_below
from .rule_context import Script


def is_agreed_on_way(script: Script, found: Divergence) -> bool:
    """Return whether the conditions on the way to a collective make the value that decides it that of all ranks."""
    if found.by != LOCAL or found.rounds or found.second:
        return False
    agreed = False
    for reach in (reach for run in script.runs for reach in run.reached):
        if not isinstance(reach.fact, Event) or reach.fact.site != found.first.site:
            continue
        deciding = [each.test for each in reach.conditions if each.site == found.decided]
        known = known_tests(tuple(each for each in reach.conditions if each.site != found.decided))
        value = _Value(script, found.decided.line, known)
        if not deciding or any(map(value.differs, deciding)):
            return False
        agreed = True
    return agreed


class _Value:
    """A value where the truth of some conditions is known, at a decision in a line of the script."""

    def __init__(self, script: Script, line: int, known: Mapping[Key, bool]) -> None:
        self.script, self.line, self.known = script, line, known
        self._seen: set[Key] = set()

    def differs(self, key: Key) -> bool:
        """Return whether data of one rank are in the value."""
        if key in self._seen or key in self.known or not key.differs_by & (LOCAL | BY_RANK):
            return False
        self._seen.add(key)
        if key.op == "altered":
            return self._is_altered_apart(key)
        inner = [arg for arg in key.args if isinstance(arg, Key)]
        if key.op == "if" and inner[0] in self.known:
            return self.differs(inner[1 if self.known[inner[0]] else 2])
        own = not any(each.differs_by & (LOCAL | BY_RANK) for each in inner)
        return own or any(map(self.differs, inner))

    def _is_altered_apart(self, key: Key) -> bool:
        """Return whether a loop may give a name data of one rank, other than where the decision has been taken."""
        name, path, line, *_ = key.args
        if path != self.script.source.path or not isinstance(line, int):
            return True
        sets = [
            node
            for node in nodes_below(self.script.source.tree)
            if isinstance(node, ast.Assign) and node.lineno > line
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        ]
        values = [self.script.evaluated.value(node.value) for node in sets if self._is_decided(node)]
        return len(values) < len(sets) or not sets or any(value is None or self.differs(value) for value in values)

    def _is_decided(self, node: ast.AST) -> bool:
        """Return whether a statement is run as the decision says."""
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, ast.If) and at.lineno == self.line:
                return True
            at = self.script.source.parents.get(at)
        return False
