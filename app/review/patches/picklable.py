"""The patches that turn what pickle refuses into what it can copy."""

import ast

from ...training_script.syntax import FUNCTIONS
from ..rule_context import Patch, Script, no_patch

LIST, DEFINED = "list-of-generator", "define-function"
BY_HAND = "send a name or a number, and look up the function or make the object on each rank"


def picklable(script: Script, held: ast.AST | None) -> Patch:
    """Return the patch that sends a list instead of a generator, or a function by its name instead of a lambda."""
    source = script.source
    above = source.parents.get(held) if isinstance(held, ast.GeneratorExp) else None
    of_call = isinstance(above, ast.Call) and isinstance(held, ast.expr) and source.end(above) == source.end(held)
    if isinstance(held, ast.GeneratorExp) and not of_call:
        inner = source.code(held)[1:-1]
        why = "the receivers get a list, which next() does not take"
        return Patch(id=LIST, safety="unsafe", why_unsafe=why, edits=[source.replace(held, f"[{inner}]")])
    stmt = source.parents.get(held) if isinstance(held, ast.Lambda) else None
    if (
        isinstance(held, ast.Lambda)
        and isinstance(stmt, ast.Assign)
        and isinstance(target := stmt.targets[0], ast.Name)
        and len(stmt.targets) == 1
        and source.alone(stmt)
        and not isinstance(source.parents.get(stmt), (*FUNCTIONS, ast.ClassDef))
        and script.names.enclosing_function(stmt) is None
        and len(script.names.bindings(target)) == 1
    ):
        indent = source.indent(stmt.lineno)
        body = f"{indent}{source.unit}return {source.one_line(held.body)}"
        code = f"def {target.id}({ast.unparse(held.args)}):{source.newline}{body}"
        return Patch(
            id=DEFINED,
            safety="unsafe",
            why_unsafe="every rank has to run a script that defines the function",
            edits=[source.replace(stmt, code)],
        )
    return no_patch(DEFINED, BY_HAND)
