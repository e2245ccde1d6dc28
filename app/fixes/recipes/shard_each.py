"""``shard-each``: ``fully_shard`` of each layer in place of the list of the layers, which has no forward pass."""

import ast

from ...training_script.nodes import unused_name
from ...training_script.syntax import last_name
from ..facts import CaseFacts
from .error_statement import error_message, statement_of_error
from .types import RecipeResult

PHRASE = "does not support containers that do not implement forward"
LAYERS = {"ModuleList": "", "ModuleDict": ".values()"}  # of torch.nn, and how their layers are passed through
NAMES = ("block", "layer", "each_layer")


def shard_each(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the call that the error names."""
    found, message = statement_of_error(facts, PHRASE), error_message(facts).partition(PHRASE)[2]
    through = next((code for kind, code in LAYERS.items() if kind in message), None)
    if found is None or through is None:
        return RecipeResult()
    file, statement = found
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=[layers, *_])) if last_name(func) == "fully_shard":
            name = unused_name(file.source.tree, NAMES)
            if not name or _may_be_a_layer(file.source.parents, layers):
                return RecipeResult(places=[file.place(statement)])
            header = f"for {name} in {file.source.one_line(layers)}{through}:"
            edits = [*file.source.put_below(statement, header), file.source.replace(layers, name)]
            return RecipeResult(patches=[file.patched(edits)], places=[file.place(statement)])
        case _:
            return RecipeResult(places=[file.place(statement)])


def _may_be_a_layer(parents: dict[ast.AST, ast.AST], layers: ast.expr) -> bool:
    """Return whether a name is another module in another round of a loop, or at another call of a function."""
    at, name = parents.get(layers), layers.id if isinstance(layers, ast.Name) else ""
    while at is not None and name:
        if isinstance(at, ast.For | ast.FunctionDef | ast.AsyncFunctionDef):
            bound = at.target if isinstance(at, ast.For) else at.args
            if any(name == (getattr(node, "id", "") or getattr(node, "arg", "")) for node in ast.walk(bound)):
                return True
        at = parents.get(at)
    return False
