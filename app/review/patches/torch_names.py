"""The names of torch and its modules in a script, and names and devices for what a patch adds."""

import ast
from collections.abc import Collection, Iterable

from ...training_script.edits import Edit
from ...training_script.nodes import unused_name
from ...training_script.reaching_values import Absent, values_at
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument
from ..rule_context import Script

INIT = "torch.distributed.init_process_group"


def distributed_module(script: Script, at: ast.AST) -> str:
    """Return an expression for ``torch.distributed`` by the imports at the top of the script, or ""."""
    torch = torch_module(script, at)
    return _imported(script, "torch.distributed", at) or (f"{torch}.distributed" if torch else "")


def torch_module(script: Script, at: ast.AST) -> str:
    """Return the name of torch by the imports at the top of the script, or ""."""
    return _imported(script, "torch", at)


def free_name(script: Script, wanted: Iterable[str]) -> str:
    """Return the first of the names that the script does not use, or ""."""
    return unused_name(script.source.tree, wanted)


def import_line(source: ScriptSource, code: str) -> Edit | None:
    """Return the edit that imports something above the first import but ``__future__``, None if there is none."""
    for stmt in source.tree.body:
        if isinstance(stmt, (ast.Import, ast.ImportFrom)) and getattr(stmt, "module", "") != "__future__":
            return source.insert_line(stmt.lineno, code, "")
    return None


def is_made_by(script: Script, node: ast.expr, classes: Collection[str]) -> bool:
    """Return whether an object is one of some classes, in every call of the function around it."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    made = values_at(script.names, node, script.source.statement_of(node))
    return bool(made) and all(
        isinstance(each, ast.Call) and script.names.qualified(each.func) in classes for each in made
    )


def imports_os(script: Script) -> bool:
    """Return whether the script imports ``os`` at its top, under this name."""
    return any(
        isinstance(stmt, ast.Import) and any(alias.name == "os" and not alias.asname for alias in stmt.names)
        for stmt in script.source.tree.body
    )


def tensor_device(script: Script, at: ast.stmt, torch: str) -> str | None:
    """Return the argument that puts a new tensor where the process group can reduce it; None if that is not known."""
    backends = _backends(script)
    if backends and backends <= {"gloo", "mpi"}:
        return ""
    if is_bound(script, "device", at):
        return ", device=device"
    if not script.mentions("set_device") and backends:
        return None
    return ', device="cuda"' if backends == {"nccl"} else f', device="cuda" if {torch}.cuda.is_available() else "cpu"'


def _imported(script: Script, full: str, at: ast.AST) -> str:
    """Return the name that an import at the top of the script binds to a module, as seen from ``at``."""
    for stmt in script.source.tree.body:
        for name, meaning in _bound_by(stmt):
            scope = script.names.scope_of.get(at, script.names.module)
            found = script.names.lookup(name, scope) if meaning == full else None
            if found and all(binding.kind == "import" for binding in found[0]):
                return name
    return ""


def _bound_by(stmt: ast.stmt) -> list[tuple[str, str]]:
    match stmt:
        case ast.Import(names=names):
            packages = [alias.asname or alias.name.partition(".")[0] for alias in names]
            return [(name, alias.name if alias.asname else name) for name, alias in zip(packages, names, strict=True)]
        case ast.ImportFrom(module=str() as module, names=names, level=0):
            return [(alias.asname or alias.name, f"{module}.{alias.name}") for alias in names]
    return []


def _backends(script: Script) -> set[object]:
    """Return the backends of the process groups that the script makes, None for one that is not in its text."""
    found: set[object] = set()
    for call in script.names.scope_of:
        if isinstance(call, ast.Call) and script.names.qualified(call.func) == INIT:
            given = call_argument(call, "backend", 0)
            found.add(given.value if isinstance(given, ast.Constant) else None)
    return found


def is_bound(script: Script, name: str, at: ast.stmt) -> bool:
    """Return whether a name surely has a value before a statement."""
    function = script.names.enclosing_function(at)
    for node in script.names.scope_of:
        if isinstance(node, ast.Name) and node.id == name and script.names.enclosing_function(node) is function:
            values = values_at(script.names, node, at)
            return bool(values) and not any(isinstance(value, Absent) for value in values)
    return False
