"""``run-always``: layers that a rank calls only where it has samples for them are called without samples too."""

import ast
from collections.abc import Sequence

from ...training_script.edits import Edit
from ...training_script.syntax import FUNCTIONS, Function, dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult

CAUSE = "data-dependent-forward"
ADDS = ("index_add", "index_copy", "scatter_add")  # by places: none, nothing


def run_always(facts: CaseFacts) -> RecipeResult:
    """Return the patch of conditions on the number of samples in forward passes, if the ranks of the job part there."""
    report = facts.context.report
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files if report and report.verdict.cause == CAUSE else []:
        edits: list[Edit] = []
        for node in ast.walk(file.source.tree):
            if isinstance(node, FUNCTIONS) and node.name == "forward" and facts.file_as_started(file.path):
                for condition in (each for each in ast.walk(node) if isinstance(each, ast.If)):
                    made = _without_condition(file, node, condition)
                    edits += made
                    places += [file.place(condition, "without samples the layer is left out")] if made else []
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _without_condition(file: UserFile, forward: Function, node: ast.If) -> list[Edit]:
    """Return the edits that take away a condition, if what it decides changes nothing without samples."""
    source, block = file.source, file.source.block_of(node)
    parent = source.parents.get(node)
    is_elif = isinstance(parent, ast.If) and node in parent.orelse
    if node.orelse or is_elif or not source.alone(node) or node.body[0].lineno == node.lineno:
        return []
    if isinstance(node.body[0], ast.Continue) and isinstance(parent, ast.For) and node in parent.body:
        rest = block[block.index(node) + 1 :]
        leaves_out = _changes_only(forward, rest, _asked_for(node.test, empty=True))
        return [source.remove_lines(node.lineno, node.end_lineno or node.lineno)] if leaves_out else []
    last = node.end_lineno or node.lineno
    inside = range(node.body[0].lineno, last + 1)
    if not _changes_only(forward, node.body, _asked_for(node.test, empty=False)):
        return []
    if source.inside_strings.intersection(inside):
        return []
    outer, inner = source.indent(node.lineno), source.indent(node.body[0].lineno)
    edits = [source.remove_lines(node.lineno, source.header_end(node))]
    for line in range(source.header_end(node) + 1, last + 1):
        if source.line(line).startswith(inner):
            at = source.starts[line - 1]
            edits.append(Edit(at, at + len(inner), outer))
    return edits


def _changes_only(forward: Function, statements: Sequence[ast.stmt], chosen: str) -> bool:
    """Return whether statements call something with the chosen samples, and change only their places in a tensor.

    They may also set names that nothing else in the function reads.
    """
    inside = {node for each in statements for node in ast.walk(each)}
    others = {node.id for node in ast.walk(forward) if isinstance(node, ast.Name) and node not in inside}
    given = [each for node in inside if isinstance(node, ast.Call) for each in node.args]
    if not chosen or not any(isinstance(each, ast.Subscript) and _is_part(each, chosen) for each in given):
        return False
    for each in statements:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)]) if name not in others:
                pass
            case _ if not _changes_chosen_places(each, chosen):
                return False
            case _:
                pass
    return any(_changes_chosen_places(each, chosen) for each in statements)


def _asked_for(test: ast.expr, *, empty: bool) -> str:
    """Return the code of the places of which a condition asks if there are any, or if there are none; or ""."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=count) if empty:
            return _counted(count)
        case ast.Compare(left=count, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if empty:
            return _counted(count)
        case ast.Compare(left=count, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)]) if not empty:
            return _counted(count)
        case _:
            return "" if empty else _counted(test)


def _counted(count: ast.expr) -> str:
    match count:
        case ast.Call(func=ast.Name(id="len"), args=[held], keywords=[]):
            return dotted_name(held)
        case ast.Call(func=ast.Attribute(value=held, attr="numel" | "any" | "sum"), args=[], keywords=[]):
            return dotted_name(held)
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
            return _counted(inner)
        case ast.Subscript(value=ast.Attribute(value=held, attr="shape"), slice=ast.Constant(value=0)):
            return dotted_name(held)
        case _:
            return ""


def _is_part(part: ast.Subscript, chosen: str) -> bool:
    return dotted_name(part.slice) == chosen


def _changes_chosen_places(statement: ast.stmt, chosen: str) -> bool:
    """Return whether a statement only changes the chosen places of a tensor."""
    match statement:
        case ast.Assign(targets=[ast.Subscript() as part]) | ast.AugAssign(target=ast.Subscript() as part):
            return _is_part(part, chosen)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=0), places, *_])):
            return attr.endswith("_") and attr[:-1] in ADDS and dotted_name(places) == chosen
        case ast.Assign(
            targets=[target],
            value=ast.Call(func=ast.Attribute(value=held, attr=attr), args=[ast.Constant(value=0), places, *_]),
        ):
            same = bool(dotted_name(held)) and dotted_name(target) == dotted_name(held)
            return same and attr in ADDS and dotted_name(places) == chosen
        case _:
            return False
