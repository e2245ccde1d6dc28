"""Files that a function of another file writes, by its text."""

import ast
from collections.abc import Sequence

from ...training_script.model.sequences import Site
from ...training_script.model.site_functions import function_in_module
from ...training_script.syntax import nodes_of_body
from ..side_effects import called_name, writes_output

MAKES = ("makedirs", "mkdir")  # what all ranks may do


def write_elsewhere(path: str, way: Sequence[Site]) -> str:
    """Return the name of a function on the way to a collective that writes, in a file other than ``path``; "" if none.

    ``way``: the calls that lead to the collective, and its own place.
    """
    collective = (way[-1].line, way[-1].column) if way else None
    for site in way:
        around = function_in_module(site) if site.path != path else None
        if around is None:
            continue
        for call in nodes_of_body(around):
            if not isinstance(call, ast.Call) or (call.lineno, call.col_offset + 1) == collective:
                continue
            if (writes_output(call) and called_name(call)[1] not in MAKES) or "upload" in called_name(call)[1]:
                return around.name
    return ""
