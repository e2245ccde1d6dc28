"""Calls that only one rank should make, recognised by their names: printing, logging, saving."""

import ast
import re

from ..training_script.syntax import dotted_name

# Last part of the name of calls that only one rank should make.
EFFECT = re.compile(
    r"print\w*|pprint|\w*log\w*|info|debug|warn|warning|error|exception|critical|\w*save\w*|\w*dump\w*|\w*write\w*|\w*plot\w*"
    r"|show|\w*report\w*|display|record\w*|notify\w*|send\w*|\w*upload\w*|push\w*|\w*export\w*|add_(?:scalar|image|text|figure|histogram)s?"
    r"|set_(?:description|postfix)|mkdir|makedirs|remove|unlink|rmtree|rename|replace|touch|symlink\w*|copy(?:file|tree)|imsave|savefig"
)
WRITES = re.compile(
    r"\w*save\w*|\w*dump\w*|write\w*|mkdir|makedirs|remove|unlink|rmtree|rename|touch|symlink\w*|copy(?:file|tree)"
)
LOGS = {"math", "numpy", "torch", "np", "F"}  # their log* functions are mathematical


def called_name(call: ast.Call) -> tuple[str, str]:
    if isinstance(call.func, ast.Attribute):
        return dotted_name(call.func.value), call.func.attr
    return "", call.func.id if isinstance(call.func, ast.Name) else ""


def is_side_effect(call: ast.Call) -> bool:
    """Return whether a call prints, logs, saves or has another effect that only one rank should have."""
    owner, name = called_name(call)
    if owner in LOGS and name.startswith("log"):
        return False
    if owner.partition(".")[0] in ("wandb", "mlflow", "writer", "logger", "logging"):
        return True
    return _opens_to_write(call) or bool(EFFECT.fullmatch(name))


def writes_output(call: ast.Call) -> bool:
    return _opens_to_write(call) or bool(WRITES.fullmatch(called_name(call)[1]))


def _opens_to_write(call: ast.Call) -> bool:
    modes = [
        a.value
        for a in [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
        if isinstance(a, ast.Constant)
    ]
    return called_name(call)[1] == "open" and any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes)
