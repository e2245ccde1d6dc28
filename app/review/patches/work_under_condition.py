"""The patch for ranks that leave before a collective: they go on, and what one rank does is put under the condition."""

import ast
from collections.abc import Iterator, Sequence

from ...training_script.edits import Edit
from ...training_script.model.sequences import Event
from ...training_script.syntax import called_function_name, dotted_name, nodes_of_body
from ..rule_context import Patch, Script, no_patch

FIX = "work-under-condition"
EXITS = {"exit", "_exit", "quit"}
INVERTED = {ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.Gt: "<=", ast.LtE: ">"}


def work_under_condition(script: Script, leaving: ast.If) -> Patch:
    """Return the patch for a condition under which some ranks leave the function, or the program."""
    source = script.source
    parent = source.parents[leaving]
    body = getattr(parent, "body", [])
    if not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module) or leaving not in body:
        return no_patch(FIX, "it leaves out of another block: put the work under the condition by hand")
    if leaving.orelse or len(leaving.body) != 1 or not only_leaves(leaving.body[0]) or not source.alone(leaving):
        return no_patch(FIX, "it does more than leave: put the work under the condition, and let every rank go on")
    rest: Sequence[ast.stmt] = body[body.index(leaving) + 1 :]
    together = [stmt for stmt in rest if events_in(script, stmt)]
    if not together:
        return no_patch(FIX, "the collective is called in another function: put the work there under the condition")
    work = [stmt for stmt in rest if stmt not in together]
    if any(not _is_collective(script, stmt) for stmt in together):
        return no_patch(FIX, "more than a collective needs every rank behind it: put the work under the condition")
    if _bound(work) & {name for stmt in together for name in _names(stmt)}:
        return no_patch(FIX, "the collective needs what only some ranks compute: compute it on every rank")
    if _names(leaving.test) & _given(together) - _imported(script):
        return no_patch(FIX, "the collective needs what the condition asks for: give every rank a value for it")
    if any(_gives_value(stmt) for stmt in rest) or not all(source.alone(stmt) for stmt in rest):
        return no_patch(FIX, "the code behind it returns a value: put the work under the condition by hand")
    edits = [source.remove_lines(leaving.lineno, leaving.end_lineno or leaving.lineno)]
    for run in _runs(rest, together):
        edits += _under(script, run, inverted(script, leaving.test))
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="the ranks that left go on to the end of the function, and wait there for the others",
        edits=edits,
    )


def only_leaves(stmt: ast.stmt) -> bool:
    """Return whether a statement leaves the function without a value, or the program without an error."""
    match stmt:
        case ast.Return(value=None) | ast.Return(value=ast.Constant(value=None)):
            return True
        case ast.Expr(value=ast.Call() as call):
            code = call.args[0] if call.args else None
            normal = code is None or (isinstance(code, ast.Constant) and code.value in (0, None))
            return called_function_name(call) in EXITS and normal and not call.keywords
    return False


def events_in(script: Script, stmt: ast.stmt) -> list[Event]:
    """Return the calls of a statement, or below it, that need other ranks."""
    lines = range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
    return [
        each.fact
        for run in script.runs
        for each in run.reached
        if isinstance(each.fact, Event)
        and any(site.path == script.source.path and site.line in lines for site in (*each.calls, each.fact.site))
    ]


def _is_collective(script: Script, stmt: ast.stmt) -> bool:
    """Return whether a statement is the call of a collective and nothing else."""
    call = getattr(stmt, "value", None)
    return isinstance(stmt, ast.Expr | ast.Assign) and all(
        isinstance(call, ast.Call)
        and not event.implied
        and event.site[:3] == (script.source.path, call.lineno, call.col_offset + 1)
        for event in events_in(script, stmt)
    )


def _bound(stmts: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements bind or change."""
    return {
        dotted_name(node).partition(".")[0]
        for stmt in stmts
        for node in ast.walk(stmt)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    }


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _given(collectives: Sequence[ast.stmt]) -> set[str]:
    """Return the names in the arguments of collectives."""
    calls = (node for stmt in collectives for node in ast.walk(stmt) if isinstance(node, ast.Call))
    return {name for call in calls for given in (*call.args, *call.keywords) for name in _names(given)}


def _imported(script: Script) -> set[str]:
    return {
        name for name, bindings in script.names.module.bindings.items() if all(b.kind == "import" for b in bindings)
    }


def _gives_value(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom) or any(
        isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal)
        for node in (stmt, *nodes_of_body(stmt))
    )


def _runs(rest: Sequence[ast.stmt], together: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the statements between those that every rank runs."""
    run: list[ast.stmt] = []
    for stmt in rest:
        if stmt in together:
            if run:
                yield run
            run = []
        else:
            run.append(stmt)
    if run:
        yield run


def _under(script: Script, run: Sequence[ast.stmt], test: str) -> Iterator[Edit]:
    source, first = script.source, run[0].lineno
    indent = source.indent(first)
    header = source.insert_line(first, f"if {test}:", indent)
    moved = [edit for stmt in run for edit in source.indented(stmt)]
    # Both are inserted at the start of the first line: one edit, in this order.
    yield Edit(header.start, header.end, header.text + moved[0].text)
    yield from moved[1:]


def inverted(script: Script, test: ast.expr) -> str:
    """Return the code of the opposite of a condition."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values) if not any(isinstance(each, ast.BoolOp) for each in values):
            return " and ".join(inverted(script, each) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return script.source.one_line(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in INVERTED:
            source = script.source
            return f"{source.one_line(left)} {INVERTED[type(op)]} {source.one_line(right)}"
        case ast.Name() | ast.Attribute() | ast.Call():
            return f"not {script.source.one_line(test)}"
    return f"not ({script.source.one_line(test)})"
