"""Parameters that DeepSpeed may have divided among the ranks: a call that gathers them communicates only then."""

import ast

from ...training_script.model.sequences import Event
from ...training_script.model.site_functions import function_in_module, innermost_function
from ...training_script.nodes import walk
from ..rule_context import Script

GATHERS = "GatheredParameters"
OF_DIVIDED = {"ds_id", "ds_status", "ds_shape"}  # attributes of a parameter that stage 3 of ZeRO has divided


def asks_if_divided(script: Script, event: Event) -> bool:
    """Return whether parameters are gathered in a function that asks each if it is divided: under stage 1 none is."""
    if not event.kind.startswith(GATHERS):
        return False
    site = event.site
    here = site.path == script.source.path
    function = innermost_function(script.source.tree, site.line) if here else function_in_module(site)
    return function is not None and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("hasattr", "getattr")
        and any(isinstance(each, ast.Constant) and each.value in OF_DIVIDED for each in node.args)
        for node in walk(function)
    )
