"""``one-dtype``: a model whose parameters have several dtypes gets that of its first one, before FSDP shards it."""

import ast

from ...review.patches.names_in_code import names_set
from ...training_script.syntax import FUNCTIONS, LOOPS, last_name
from ..facts import CaseFacts
from ..user_code import UserFile
from .error_statement import error_message
from .types import RecipeResult

SHARD = "fully_shard"
PHRASE = "FSDP expects uniform original parameter dtype"


def one_dtype(facts: CaseFacts) -> RecipeResult:
    """Return the patch before the first call that shards the model or a part of it, if the error is known."""
    if PHRASE not in error_message(facts):
        return RecipeResult()
    roots = [(file, call) for file in facts.files for call in _sharded_models(file)]
    if len(roots) != 1:
        return RecipeResult()
    file, call = roots[0]
    first = _first_shard(file, call)
    name = ast.unparse(call.args[0])
    if first is None or not all(_is_part(file, each, name) for each in file.calls([SHARD])):
        return RecipeResult(places=[file.place(call)])
    line = f"{name}.to(next({name}.parameters()).dtype)  # FSDP needs one dtype in each unit"
    edit = file.source.insert_line(first.lineno, line, file.source.indent(first.lineno))
    return RecipeResult(patches=[file.patched([edit])], places=[file.place(first, "sharded from here on")])


def _sharded_models(file: UserFile) -> list[ast.Call]:
    """Return the calls that shard a model which a name holds: the last ones of their blocks that shard anything."""
    found: list[ast.Call] = []
    for call in file.calls([SHARD]):
        statement = file.source.statement_of(call)
        block = file.source.block_of(statement)
        is_last = not any(_shards(later) for later in block[block.index(statement) + 1 :])
        if isinstance(statement, ast.Expr) and call.args and isinstance(call.args[0], ast.Name) and is_last:
            found += [] if _is_in_loop(file, statement) else [call]
    return found


def _is_part(file: UserFile, call: ast.Call, model: str) -> bool:
    """Return whether a call shards a model, an attribute of it, or what a loop over a part of it gives."""
    names = {node.id for each in call.args[:1] for node in ast.walk(each) if isinstance(node, ast.Name)}
    at = file.source.parents.get(call)
    while at is not None and model not in names:
        if isinstance(at, ast.For) and names & names_set(at.target):
            names |= {node.id for node in ast.walk(at.iter) if isinstance(node, ast.Name)}
        at = file.source.parents.get(at)
    return model in names


def _is_in_loop(file: UserFile, statement: ast.stmt) -> bool:
    at = file.source.parents.get(statement)
    while at is not None and not isinstance(at, (*FUNCTIONS, *LOOPS)):
        at = file.source.parents.get(at)
    return isinstance(at, LOOPS)


def _first_shard(file: UserFile, call: ast.Call) -> ast.stmt | None:
    """Return the first statement of the block that shards anything, if the name means one model from there on."""
    statement = file.source.statement_of(call)
    block, name = file.source.block_of(statement), ast.unparse(call.args[0])
    first = next(each for each in block if _shards(each))
    between = block[block.index(first) : block.index(statement) + 1]
    is_rebound = any(name in names_set(each) for each in between)
    return None if is_rebound or not file.source.alone(first) or isinstance(first, FUNCTIONS) else first


def _shards(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) == SHARD for node in ast.walk(statement))
