"""The place of the value by which each rank decides for itself, where that is to be made one of all ranks."""

import ast

from ...training_script.model.amounts import UNCERTAIN
from ...training_script.model.collective_effects import OF_ONE_RANK
from ...training_script.model.keys import LOCAL, OF_BRANCHES, Key, parts
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import FUNCTIONS
from ..rule_context import Script


def where_made(script: Script, decided: Site) -> Site | None:
    """Return the place of what a condition asks for, if it is to be made alike on all ranks there."""
    if decided.path != script.source.path:
        return None
    return _reduction_to_one(script, decided) or _answer_about_loss(script, decided)


def _reduction_to_one(script: Script, decided: Site) -> Site | None:
    """Return the reduction that gives its result to one rank, if a condition of all ranks asks for nothing else.

    What an object keeps of earlier results is better kept, and decided by, on one rank.
    """
    branch = script.branches.get(decided)
    loop = node_at(script.source.tree, decided.line, decided.column, ast.While)
    test = branch.test if branch else script.evaluated.value(loop.test) if loop else None
    local = [part for part in parts(test) if part.differs_by & LOCAL] if test else []
    sources = [each for each in local if not any(isinstance(arg, Key) and arg.differs_by & LOCAL for arg in each.args)]
    if (
        not sources
        or any(each.op in (*OF_BRANCHES, *UNCERTAIN) for each in local)
        or any(each.op != "local" or each.args[0] != OF_ONE_RANK for each in sources)
    ):
        return None
    path, line, column, *_ = sources[0].args[1:]
    return Site(path, line, column, line) if path == script.source.path else None


def _answer_about_loss(script: Script, decided: Site) -> Site | None:
    """Return what a function answers about a loss: that is each rank's own, and the answer is to be one of all."""
    node = node_at(script.source.tree, decided.line, decided.column, ast.If)
    test = node.test if node else None
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    match test:
        case ast.Call(func=ast.Name(id=called), args=[ast.Name(id=loss)]) if _is_trained_with(script, test, loss):
            pass
        case _:
            return None
    for function in nodes_below(script.source.tree):
        if not isinstance(function, FUNCTIONS) or function.name != called:
            continue
        body = function.body[1:] if ast.get_docstring(function) else function.body
        if len(body) == 1 and isinstance(body[0], ast.Return):
            stmt = body[0]
            return Site(script.source.path, stmt.lineno, stmt.col_offset + 1, stmt.end_lineno or stmt.lineno)
    return None


def _is_trained_with(script: Script, near: ast.expr, name: str) -> bool:
    """Return whether a function runs the backward pass of a value that it knows by a name."""
    around = script.names.enclosing_function(near) or script.source.tree
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "backward"
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in nodes_below(around)
    )
