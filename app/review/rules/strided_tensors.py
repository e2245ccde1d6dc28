"""DW439: parts of a tensor that are not in a row in memory, passed to a collective."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import call_argument
from ..rule_context import Script, Violation
from ..violations import violation_at_node

PREFIX = "torch.distributed."
# Collectives with the place of a tensor that they send or fill.
TENSORS = {
    "all_reduce": (0, "tensor"),
    "broadcast": (0, "tensor"),
    "reduce": (0, "tensor"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "reduce_scatter_tensor": (0, "output"),
    "recv": (0, "tensor"),
}
CALLS = re.compile(r"(?:" + "|".join(TENSORS) + r")\(\s*\w+[\w.]*\[")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the columns of tensors that a collective changes in place: it takes what is next to them in memory."""
    if not run.distributed or not script.mentions(CALLS):
        return
    for node in nodes_below(script.source.tree):
        name = script.names.qualified(node.func).removeprefix(PREFIX) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in TENSORS:
            continue
        given = call_argument(node, TENSORS[name][1], TENSORS[name][0])
        if isinstance(given, ast.Subscript) and _leaves_gaps(given.slice):
            yield violation_at_node(
                node,
                f"{name} goes through memory in a row, and these elements are not next to each other: gloo "
                "changes others in their place, NCCL raises an error",
                0.85,
            )


def _leaves_gaps(index: ast.expr) -> bool:
    """Return whether an index takes all rows, and not all of a column or of each row."""
    if isinstance(index, ast.Slice):
        return isinstance(index.step, ast.Constant) and index.step.value != 1
    parts = index.elts if isinstance(index, ast.Tuple) else []
    whole = [isinstance(each, ast.Slice) and not (each.lower or each.upper or each.step) for each in parts]
    rows = [isinstance(each, ast.Slice) for each in parts]
    return any(rows[at] and not all(whole[at + 1 :]) for at in range(len(parts)))
