"""Import a script from another process: where its names are defined, and which code an import would run."""

import ast
from pathlib import Path

from .plain_values import calls_by_line
from .source import ScriptSource
from .syntax import is_main_block, last_name

# Calls that only make a value.
HARMLESS = {"getLogger", "ArgumentParser", "namedtuple", "TypeVar", "partial", "Path", "resolve", "compile", "get"}
HARMLESS |= {"getenv", "int", "float", "str", "bool", "tuple", "list", "dict", "set", "range", "len", "device", "field"}
WITHOUT_EFFECT = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass, ast.AnnAssign),
)


def import_specs(source: ScriptSource, path: Path) -> dict[str, str]:
    """Return ``module:name`` for the functions and classes of a script and of the modules next to it, by name."""
    found: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = path.parent.joinpath(*node.module.split("."))
            if module.with_suffix(".py").is_file() or (module / "__init__.py").is_file():
                found |= {each.asname or each.name: f"{node.module}:{each.name}" for each in node.names}
    for node in source.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = f"{path.stem}:{node.name}"
    return found if path.stem.isidentifier() else {name: spec for name, spec in found.items() if path.stem not in spec}


def requires_arguments(function: ast.FunctionDef) -> bool:
    """Return whether a function has parameters without a default."""
    given = function.args
    return len(given.posonlyargs) + len(given.args) > len(given.defaults) or None in given.kw_defaults


def first_line_with_effect(source: ScriptSource) -> int:
    """Return the first line that does something when the script is imported, or 0."""
    for node in source.tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        plain = isinstance(node, ast.Assign) and all(last_name(each.func) in HARMLESS for each in calls_by_line(node))
        optional = isinstance(node, (ast.If, ast.Try)) and all(isinstance(each, WITHOUT_EFFECT) for each in node.body)
        if not (isinstance(node, WITHOUT_EFFECT) or is_main_block(node) or docstring or plain or optional):
            return node.lineno
    return 0
