"""The patches that turn an argument into the kind of value that a call takes."""

import ast

from ...training_script.edits import Edit
from ...training_script.model.signatures import Parameter
from ...training_script.syntax import last_name
from ..rule_context import Patch, Script, no_patch
from ..value_kinds import FLOAT, GROUP, NUMBER, TEXT
from .os_import import import_edit

FIX = "fit-argument"
OF_BATCH = {"send": "isend", "recv": "irecv"}
# What to do by hand, by the kind of the parameter.
BY_HAND = {
    "tensor": "pass a tensor, for each tensor one call: torch.tensor(value) makes one of a number",
    "tensors": "pass a list with a tensor for each rank",
    "objects": "pass a list: the call puts what it receives into its places",
    "group": "pass what dist.new_group returned",
    "process": "pass a function of the module, and what it needs as args",
    "hook": "return a torch.futures.Future, as that of dist.all_reduce(…, async_op=True).get_future()",
}


def fitted(script: Script, call: ast.Call, parameter: Parameter, node: ast.expr, kinds: set[str]) -> Patch:
    """Return the patch that passes a value of the kind that a parameter takes."""
    source = script.source
    code = source.code(node)
    match parameter.kind:
        case "duration" | "seconds" if kinds <= {NUMBER, FLOAT}:
            name, imported = _timedelta(script)
            edits = [source.replace(node, f"{name}(seconds={code})"), *([imported] if imported else [])]
            return Patch(id=FIX, safety="unsafe", why_unsafe="the number is taken for seconds", edits=edits)
        case "number" if kinds == {TEXT}:
            return Patch(id=FIX, safety="safe", edits=[source.replace(node, f"int({code})")])
        case "keys":
            return Patch(id=FIX, safety="safe", edits=[source.replace(node, f"[{code}]")])
        case "message" if isinstance(node, ast.Attribute) and last_name(node) in OF_BATCH:
            named = source.code(node.value)
            return Patch(id=FIX, safety="safe", edits=[source.replace(node, f"{named}.{OF_BATCH[node.attr]}")])
        case "operation" if kinds == {GROUP} and call.args and call.args[-1] is node:
            return Patch(id=FIX, safety="safe", edits=[source.replace(node, f"group={code}")])
        case kind:
            return no_patch(FIX, BY_HAND.get(kind, "pass a value of this kind"))


def _timedelta(script: Script) -> tuple[str, Edit | None]:
    """Return the name of ``timedelta`` in a script, and the edit that imports it if it is missing."""
    for name, bindings in script.names.module.bindings.items():
        for each in bindings:
            if isinstance(each.at, ast.ImportFrom) and each.at.module == "datetime":
                return name, None
            if isinstance(each.at, ast.Import) and any(alias.name == "datetime" for alias in each.at.names):
                return f"{name}.timedelta", None
    return "timedelta", import_edit(script, "from datetime import timedelta")
