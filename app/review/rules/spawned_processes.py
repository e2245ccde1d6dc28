"""DW466: what a new process does not share with the one that starts it: its values, and what runs on import."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.model.signatures import parameters_of
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, is_main_block, match_arguments
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at

SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")
CHANGES = {"append", "extend", "update", "add", "insert", "setdefault"}
AGAIN = 'each new process imports this script, and comes here again: start them below if __name__ == "__main__"'
IN_CELL = (
    "a new process cannot import a function that a cell of a notebook defines: write the function to a module and "
    "import it, or run it as a script under torchrun"
)
MAKES = {"list", "dict", "set", "defaultdict"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW466: yield lists that processes fill for the one that started them, and starts that a new process repeats, or
    for which it does not find the function."""
    for reach, fact in run.of(*SPAWN):
        if not script.is_here(reach):
            continue
        given = match_arguments([each.name for each in parameters_of(fact.name)], fact.node.args, fact.node.keywords)
        method = given.get("start_method")
        forks = isinstance(method, ast.Constant) and method.value == "fork"
        function, args = given.get("fn"), given.get("args")
        is_in_cell = script.evaluated.is_interactive
        if not forks and not is_in_cell and _runs_on_import(script, fact.node):
            yield from violation_at(script, reach, AGAIN, 0.85)
            continue
        made = origins_at(script, function) if isinstance(function, ast.Name) else []
        bound = [each.at for each in script.names.bindings(function)] if isinstance(function, ast.Name) else made
        target = next((each for each in bound if isinstance(each, FUNCTIONS)), None)
        if not forks and is_in_cell and target is not None:
            yield from violation_at(script, reach, IN_CELL, 0.85)
            continue
        if target is None or not isinstance(args, ast.Tuple):
            continue
        names = [each.arg for each in (*target.args.posonlyargs, *target.args.args)][1:]
        for name, passed in zip(names, args.elts, strict=False):
            change = _change(target, name) if isinstance(passed, ast.Name) and _is_plain(script, passed) else None
            if change is not None and isinstance(passed, ast.Name) and _is_read_behind(script, fact.node, passed.id):
                yield from violation_at(
                    script,
                    at_node(script, reach, passed),
                    f"each process fills a copy of `{passed.id}`, and this one reads its own: send results through a "
                    "queue, or a list of multiprocessing.Manager()",
                    0.85,
                    related=[RelatedPlace(path=script.source.path, line=change.lineno, message="filled here")],
                )


def _runs_on_import(script: Script, call: ast.Call) -> bool:
    """Return whether a call is made where a module is imported."""
    at: ast.AST | None = call
    while at is not None:
        if isinstance(at, (*FUNCTIONS, ast.Lambda)) or is_main_block(at):
            return False
        at = script.source.parents.get(at)
    return True


def _is_plain(script: Script, name: ast.Name) -> bool:
    """Return whether a name holds a list, a dict or a set of this process."""
    made = origins_at(script, name)
    return bool(made) and all(
        isinstance(each, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
        or (isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in MAKES)
        or (isinstance(each, ast.BinOp) and isinstance(each.left, ast.List))
        for each in made
    )


def _change(function: "ast.FunctionDef | ast.AsyncFunctionDef", name: str) -> ast.stmt | ast.expr | None:
    """Return what a function puts into a parameter."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=held)]) | ast.AugAssign(target=ast.Subscript(value=held)):
                if dotted_name(held) == name:
                    return node
            case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr in CHANGES and dotted_name(held) == name:
                return node
            case _:
                pass
    return None


def _is_read_behind(script: Script, call: ast.Call, name: str) -> bool:
    around = script.names.enclosing_function(call) or script.source.tree
    end = call.end_lineno or call.lineno
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > end
        for node in nodes_below(around)
    )
