"""The module ``os`` in a script, and the import that it may need."""

import ast

from ...training_script.edits import Edit
from ..rule_context import Script


def os_module(script: Script) -> tuple[str, Edit | None]:
    """Return the name of the module ``os``, and the edit that imports it if it is missing."""
    for name, bindings in script.names.module.bindings.items():
        for binding in bindings:
            if isinstance(binding.at, ast.Import) and any(
                a.name == "os" and (a.asname or "os") == name for a in binding.at.names
            ):
                return name, None
    return "os", import_edit(script, "import os")


def import_edit(script: Script, code: str) -> Edit:
    """Return the edit that inserts an import before the first other import, behind ``__future__``."""
    body = script.source.tree.body
    for stmt in body:
        if isinstance(stmt, (ast.Import, ast.ImportFrom)) and getattr(stmt, "module", "") != "__future__":
            return script.source.insert_line(stmt.lineno, code, "")
    first = next((s for s in body if not isinstance(s, (ast.Import, ast.ImportFrom)) and not _docstring(s)), body[0])
    return script.source.insert_line(script.source.first_line_with_comments(first, first.lineno - 1), code, "")


def _docstring(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
