"""The models that a script gives to Accelerate."""

import ast

from ..training_script.nodes import nodes_below
from .rule_context import Script

OF_MODELS = ("parameters", "named_parameters", "train")


def prepares_several(script: Script) -> bool:
    """Return whether each call of ``prepare`` gets several models, which DeepSpeed and FSDP2 refuse."""
    methods = [
        (each.func, each.args)
        for each in nodes_below(script.source.tree)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
    ]
    owners = [func.value for func, _ in methods if func.attr in OF_MODELS]
    models = {owner.id for owner in owners if isinstance(owner, ast.Name)}
    given = [args for func, args in methods if func.attr == "prepare"]
    counts = [sum(isinstance(arg, ast.Name) and arg.id in models for arg in args) for args in given]
    return min(counts, default=0) > 1
