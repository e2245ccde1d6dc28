"""The patch that leaves out the second division of a value by the number of ranks, or of rounds."""

import ast

from ..rule_context import Patch, Script, no_patch

ONCE = "divide-once"


def divide_once(script: Script, division: ast.BinOp | ast.AugAssign | None) -> Patch:
    """Return the patch that keeps what is divided as it is."""
    if not isinstance(division, ast.BinOp):
        return no_patch(ONCE, "leave this division out")
    source = script.source
    reason = "what reads the value gets a larger one, and may have been adapted to the smaller one"
    edits = [source.replace(division, source.one_line(division.left))]
    return Patch(id=ONCE, safety="unsafe", why_unsafe=reason, edits=edits)
