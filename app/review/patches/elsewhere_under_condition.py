"""The text of a script in which a condition on the rank is where its effects are, and not around the collective."""

import ast
from collections.abc import Iterator, Sequence

from ...training_script.edits import Edit
from ...training_script.model.divergence import Divergence
from ...training_script.nodes import node_at
from ...training_script.syntax import contains_line, nodes_of_body
from ..rule_context import Patch, Script
from ..side_effects import is_side_effect
from .apply_edits import apply_edits
from .torch_names import distributed_module
from .work_under_condition import events_in, inverted, only_leaves

FIX = "make-on-every-rank"


def undecorated(script: Script, found: Divergence, leaving: ast.If) -> tuple[str, int]:
    """Return the script with the condition of a decorator in the function itself, and its line; "" if not possible.

    The decorator's function leaves under the condition and else calls the function that it is given.
    """
    source = script.source
    wrapper, event = script.names.enclosing_function(leaving), found.first.site
    decorator = script.names.enclosing_function(wrapper) if wrapper else None
    if not isinstance(decorator, ast.FunctionDef) or wrapper is None or event.path != source.path:
        return "", 0
    function = next(
        (each for each in _functions(script) if contains_line(each, event.line) and _by(each, decorator)), None
    )
    if function is None or leaving not in wrapper.body or len(leaving.body) != 1 or not only_leaves(leaving.body[0]):
        return "", 0
    if len(wrapper.body) != 2 or not _is_at_top(script, leaving.test) or not all(map(source.alone, function.body)):
        return "", 0
    if any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in nodes_of_body(function)):
        return "", 0
    line, first = function.decorator_list[0].lineno, function.body[0]
    removed = source.remove_lines(line, function.decorator_list[0].end_lineno or line)
    header = source.insert_line(first.lineno, f"if {inverted(script, leaving.test)}:", source.indent(first.lineno))
    moved = [edit for stmt in function.body for edit in source.indented(stmt)]
    joined = Edit(header.start, header.end, header.text + moved[0].text)
    return apply_edits(source.text, [removed, joined, *moved[1:]]), first.lineno - 1


def make_on_every_rank(script: Script, found: Divergence, guard: ast.If, *, by_first: bool) -> Patch | None:
    """Return the patch that makes on every rank an object whose method communicates; its output stays under the test.

    None if the statements under the test, or what the method does, cannot be separated so.
    """
    source, event = script.source, found.first.site
    function = next((each for each in _functions(script) if contains_line(each, event.line)), None)
    simple = all(isinstance(stmt, ast.Expr | ast.Assign) and source.alone(stmt) for stmt in guard.body)
    if function is None or event.path != source.path or guard.orelse or not simple:
        return None
    if any(site.path == source.path and contains_line(guard, site.line) for site in (*found.calls, event)):
        return None  # the call itself is under the test
    module = distributed_module(script, function)
    if by_first and module:
        test = f"not {module}.is_initialized() or {module}.get_rank() == 0"
    elif _is_at_top(script, guard.test):
        test = source.one_line(guard.test)
    else:
        return None
    effects = [stmt for stmt in nodes_of_body(function) if isinstance(stmt, ast.Expr) and _is_effect(script, stmt)]
    if any(not source.alone(stmt) for stmt in effects):
        return None
    edits = [source.remove_lines(guard.lineno, source.header_end(guard))]
    edits += [edit for stmt in guard.body for edit in _moved_out(script, guard, stmt)]
    for stmt in effects:
        edits += source.put_below(stmt, f"if {test}:")
    why = "every rank makes the object then, and comes to what its method does, the output left out"
    return Patch(id=FIX, safety="unsafe", why_unsafe=why, edits=edits)


def _functions(script: Script) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a script, the inner ones first."""
    found = [node for node in script.source.parents if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    yield from sorted(found, key=lambda node: -node.lineno)


def _by(function: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.FunctionDef) -> bool:
    """Return whether a function has one decorator, and which."""
    match function.decorator_list:
        case [ast.Name(id=name)]:
            return name == decorator.name
        case _:
            return False


def _is_at_top(script: Script, test: ast.expr) -> bool:
    """Return whether all names of a condition are those of the module."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return names <= script.names.module.bindings.keys()


def _is_effect(script: Script, stmt: ast.Expr) -> bool:
    """Return whether a statement only prints, logs or writes."""
    return isinstance(stmt.value, ast.Call) and is_side_effect(stmt.value) and not events_in(script, stmt)


def _moved_out(script: Script, guard: ast.If, stmt: ast.stmt) -> Sequence[Edit]:
    """Return the edits that move the lines of a statement one level out."""
    source = script.source
    extra = len(source.indent(stmt.lineno)) - len(source.indent(guard.lineno))
    lines = range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
    starts = [source.starts[line - 1] for line in lines if line not in source.inside_strings]
    return [Edit(start, start + extra, "") for start in starts]


def exit_at(script: Script, found: Divergence) -> ast.If | None:
    """Return the ``if`` statement of the script at which ranks part."""
    at = found.decided
    return node_at(script.source.tree, at.line, at.column, ast.If) if at.path == script.source.path else None
