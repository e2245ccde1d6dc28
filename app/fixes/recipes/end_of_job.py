"""``end-of-job``: ``destroy_process_group`` at the normal end of a job whose script does not call it."""

import ast
from collections.abc import Iterator

from ...review.patches.torch_names import distributed_module
from ...review.rule_context import Script
from ...training_script.edits import Edit
from ...training_script.syntax import LOOPS, Function, is_main_block, nodes_of_body
from ..facts import CaseFacts
from .types import RecipeResult

DESTROY, INIT = "destroy_process_group", "init_process_group"
DEPTH = 3  # of functions around the call that makes the group


def end_of_job(facts: CaseFacts) -> RecipeResult:
    """Return the patch that ends the group where the job ends, if the script does not end it anywhere."""
    if next(facts.calls([DESTROY]), None):
        return RecipeResult()
    for file in facts.files:
        if not file.calls([INIT]):
            continue
        script = Script(file.text, file.path)
        for made in _calls_of_init(script):
            if edits := _at_the_end(script, made):
                return RecipeResult(patches=[file.patched(edits)], places=[file.place(made, "the group is made here")])
    return RecipeResult()


def _calls_of_init(script: Script) -> Iterator[ast.Call]:
    for node in script.names.scope_of:
        if isinstance(node, ast.Call) and script.names.qualified(node.func).endswith(f".{INIT}"):
            yield node


def _at_the_end(script: Script, made: ast.Call) -> list[Edit]:
    """Return the edits behind the last statement of the function, or of the module, that does the job."""
    node: ast.AST = made
    conditional = False
    for _ in range(DEPTH):
        conditional |= _is_conditional(script, node)
        function = script.names.enclosing_function(node)
        if function is None:
            return _edits_after(script, _main_block(script, node), conditional)
        if _does_the_job(function):
            if block := _block_that_calls(script, function):
                return _edits_after(script, block, conditional or _may_return_early(function))
            return _edits_after(script, function.body, conditional)
        calls = script.names.arguments.get(function, [])
        if len(calls) != 1:
            return []
        node = calls[0][0]
    return []


def _block_that_calls(script: Script, function: Function) -> list[ast.stmt]:
    """Return the statements of the module among which is the only call of ``function``; none if there are others.

    Behind them, the function has freed its model: with gloo, a model that is freed after its group can block the exit.
    """
    calls = script.names.arguments.get(function, [])
    if len(calls) != 1:
        return []
    call = calls[0][0]
    block = _main_block(script, call)
    return block if any(isinstance(stmt, ast.Expr) and stmt.value is call for stmt in block) else []


def _may_return_early(function: Function) -> bool:
    return any(isinstance(node, ast.Return) for node in nodes_of_body(function))


def _does_the_job(function: Function) -> bool:
    return function.name == "main" or any(isinstance(node, LOOPS) for node in nodes_of_body(function))


def _is_conditional(script: Script, node: ast.AST) -> bool:
    """Return whether a condition other than that of the main module is around ``node`` in its function."""
    parent = script.source.parents.get(node)
    while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(parent, (ast.If, ast.Try, ast.IfExp)) and not is_main_block(parent):
            return True
        parent = script.source.parents.get(parent)
    return False


def _main_block(script: Script, node: ast.AST) -> list[ast.stmt]:
    """Return the statements of the module that run as the job: those of its ``__main__`` block if ``node`` is there."""
    for stmt in script.source.tree.body:
        if is_main_block(stmt) and node in ast.walk(stmt):
            return stmt.body
    return script.source.tree.body


def _edits_after(script: Script, block: list[ast.stmt], conditional: bool) -> list[Edit]:
    source, dist, last = script.source, distributed_module(script, block[-1]), block[-1]
    leaves = [node for stmt in block for node in (stmt, *nodes_of_body(stmt)) if isinstance(node, ast.Return)]
    if not dist or not source.alone(last) or any(node is not last for node in leaves):
        return []
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Call):
        return []  # it may communicate
    indent = source.indent(last.lineno)
    code = f"{dist}.{DESTROY}()"
    step = source.one_level(indent)
    lines = [f"if {dist}.is_initialized():", step + code] if conditional else [code]
    if isinstance(last, ast.Return):
        return [source.insert_line(last.lineno, line, indent) for line in lines]
    end = last.end_lineno or last.lineno
    if end < len(source.starts):
        return [source.insert_line(end + 1, line, indent) for line in lines]
    at = len(source.text)
    return [Edit(at, at, "".join(f"{source.newline}{indent}{line}" for line in lines))]
