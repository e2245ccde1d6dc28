"""Files that a function of another file writes, by its text."""

import ast
from collections.abc import Sequence
from pathlib import Path

from ...training_script.model.parsed_modules import PARSED_MODULES
from ...training_script.model.sequences import Site
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, nodes_of_body
from ..side_effects import called_name, writes_output

MAKES = ("makedirs", "mkdir")  # what all ranks may do


def write_elsewhere(path: str, way: Sequence[Site]) -> str:
    """Return the name of a function on the way to a collective that writes, in a file other than ``path``; "" if none.

    ``way``: the calls that lead to the collective, and its own place.
    """
    collective = (way[-1].line, way[-1].column) if way else None
    for site in way:
        module = PARSED_MODULES.get(Path(site.path)) if site.path != path else None
        functions = nodes_of_kinds(module.tree, *FUNCTIONS) if module else []
        around = [node for node in functions if node.lineno <= site.line <= (node.end_lineno or node.lineno)]
        for call in nodes_of_body(around[-1]) if around else ():
            if not isinstance(call, ast.Call) or (call.lineno, call.col_offset + 1) == collective:
                continue
            if (writes_output(call) and called_name(call)[1] not in MAKES) or "upload" in called_name(call)[1]:
                return around[-1].name
    return ""
