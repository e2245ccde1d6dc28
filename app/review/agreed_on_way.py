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
        if not deciding or any(_differs(script, test, known, set()) for test in deciding):
            return False
        agreed = True
    return agreed


def _differs(script: Script, key: Key, known: Mapping[Key, bool], seen: set[Key]) -> bool:
    """Return whether data of one rank are in a value, where the truth of some conditions is known."""
    if key in seen or key in known or not key.spread & (LOCAL | BY_RANK):
        return False
    seen.add(key)
    if key.op == "altered":
        return _is_altered_apart(script, key, known, seen)
    inner = [arg for arg in key.args if isinstance(arg, Key)]
    if key.op == "if" and inner[0] in known:
        return _differs(script, inner[1 if known[inner[0]] else 2], known, seen)
    own = not any(each.spread & (LOCAL | BY_RANK) for each in inner)
    return own or any(_differs(script, each, known, seen) for each in inner)


def _is_altered_apart(script: Script, key: Key, known: Mapping[Key, bool], seen: set[Key]) -> bool:
    """Return whether the rounds of a loop give a name data of one rank."""
    name, path, line, *_ = key.args
    if path != script.source.path:
        return True
    values = [
        script.evaluated.value(node.value)
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Assign) and node.lineno > (line if isinstance(line, int) else 0)
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return not values or any(value is None or _differs(script, value, known, seen) for value in values)
