"""The patch by which one rank of all writes what one rank of each node wrote."""

import ast

from ...training_script.model.keys import Key
from ...training_script.model.reach import Condition
from ...training_script.nodes import nodes_below
from ..rule_context import Patch, Script, no_patch
from .torch_names import imports_os

FIX = "write-on-global-rank-0"


def write_on_global_rank(script: Script, condition: Condition) -> Patch:
    """Return the patch that asks for the rank among all ranks where a condition asks for that of a node."""
    lines = range(condition.site.line, condition.site.end_line + 1)
    tests = [
        node
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Compare) and node.lineno in lines and _is_first_of_node(script.evaluated.value(node))
    ]
    if len(tests) != 1 or not imports_os(script) or condition.site.path != script.source.path:
        return no_patch(FIX, "let global rank 0 write it, or put the node into the path")
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="nodes that share no disk then have the file on the first of them only",
        edits=[script.source.replace(tests[0], 'int(os.environ.get("RANK", 0)) == 0')],
    )


def _is_first_of_node(test: Key | None) -> bool:
    """Return whether a condition compares the local rank that torchrun sets with 0."""
    if test is None or test.op != "compare" or test.args[0] != "Eq":
        return False
    _, left, right = test.args
    rank, number = (right, left) if left.is_constant else (left, right)
    return rank.op == "rank" and rank.args == ("local", "LOCAL_RANK") and number.is_constant and number.value == 0
