"""The patch that loads a state of whole tensors into a model whose parameters are shards."""

import ast

from ...training_script.edits import Edit
from ...training_script.syntax import dotted_name
from ..rule_context import Patch, Script, no_patch
from .torch_names import import_line

FIX = "load-whole-state"
BY_HAND = "load it by set_model_state_dict with StateDictOptions(full_state_dict=True)"
MODULE = "torch.distributed.checkpoint.state_dict"
LOAD, OPTIONS = "set_model_state_dict", "StateDictOptions"


def load_whole_state(script: Script, call: ast.Call) -> Patch:
    """Return the patch of a load that is a statement of its own."""
    source, stmt = script.source, script.source.statement_of(call)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "state_dict")]
    strict = [each.value for each in call.keywords if each.arg == "strict"]
    whole = isinstance(stmt, ast.Expr) and stmt.value is call and len(given) == 1
    if not whole or owner is None or not dotted_name(owner) or len(call.args) + len(call.keywords) > 1 + len(strict):
        return no_patch(FIX, BY_HAND)
    names = {name: _name_here(script, name, stmt) for name in (LOAD, OPTIONS)}
    missing = sorted(name for name, here in names.items() if not here)
    if any(node.id in missing for node in script.names.scope_of if isinstance(node, ast.Name)):
        return no_patch(FIX, BY_HAND)
    imported = import_line(source, f"from {MODULE} import {', '.join(sorted(missing))}") if missing else None
    if missing and imported is None:
        return no_patch(FIX, BY_HAND)
    options = "full_state_dict=True" + "".join(f", strict={source.one_line(each)}" for each in strict)
    code = (
        f"{names[LOAD] or LOAD}({source.code(owner)}, {source.one_line(given[0])}, "
        f"options={names[OPTIONS] or OPTIONS}({options}))"
    )
    edits: list[Edit] = [source.replace(call, code), *([imported] if imported else [])]
    return Patch(id=FIX, safety="safe", edits=edits)


def _name_here(script: Script, name: str, at: ast.stmt) -> str:
    """Return the name under which the top of the script imports a function, if it means that at a statement."""
    for stmt in script.source.tree.body:
        if isinstance(stmt, ast.ImportFrom) and stmt.module == MODULE and stmt.level == 0:
            for alias in stmt.names:
                bound = alias.asname or alias.name
                found = script.names.lookup(bound, script.names.scope_of.get(at, script.names.module))
                if alias.name == name and found and all(each.kind == "import" for each in found[0]):
                    return bound
    return ""
