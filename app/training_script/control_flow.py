"""Conditions under which a line is reached: those around it, and early exits before it."""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .frame_scope import LOCAL_RANK, RANK, FrameScope
from .rank_names import FIRST_IN, one_rank_decorator
from .syntax import Function, called_function_name, contains_line, last_name

LEAVING_CALLS = ("exit", "_exit", "quit", "abort")


class Guard(NamedTuple):
    """A condition that decides whether a line is reached: ``test`` must be ``needs``.

    ``exits``: not an enclosing ``if``, but an earlier one that leaves the function or loop; ``how`` is then "continue",
    "leave" (return, break), "exit" (of the process) or "raise".
    """

    line: int
    test: ast.expr
    needs: bool
    exits: bool
    scope: FrameScope
    how: str = ""


def enclosing_conditions(line: int, scope: FrameScope) -> list[Guard]:
    """Return the conditions under which the line is reached within its function, innermost first."""
    found: list[Guard] = []
    body = getattr(scope.function, "body", [])
    while isinstance(body, list):
        body = _descend(body, line, scope, found)
    return found[::-1]


def early_exit_conditions(loop: ast.AST, scope: FrameScope) -> list[Guard]:
    """Return the conditions inside a loop under which an iteration, the loop or its function ends early."""
    found = [
        Guard(node.lineno, node.test, leaves, True, scope, way_out(block))
        for node in ast.walk(loop)
        if isinstance(node, ast.If)
        for block, leaves in ((node.body, True), (node.orelse, False))
        if way_out(block)
    ]
    for match in (node for node in ast.walk(loop) if isinstance(node, ast.Match)):
        tests = case_tests(match)
        found += [
            Guard(case.pattern.lineno, test, True, True, scope, way_out(case.body))
            for case, test in zip(match.cases, tests, strict=True)
            if way_out(case.body)
        ]
    return found


def break_conditions(loop: ast.AST) -> list[int]:
    """Return the lines of the conditions under which a whole loop, not only one iteration, ends early."""
    return [
        node.lineno
        for node in ast.walk(loop)
        if isinstance(node, ast.If)
        for block in (node.body, node.orelse)
        if way_out(block) in ("leave", "exit") and not isinstance(block[-1], ast.Continue)
    ]


def decorator_conditions(scope: FrameScope) -> list[Guard]:
    """Return the decorators that let only one rank into a function, as conditions."""
    found: list[Guard] = []
    for node in getattr(scope.function, "decorator_list", []):
        name = called_function_name(node) if isinstance(node, ast.Call) else last_name(node)
        # The frame of a decorator of the file is in the stack.
        own = any(isinstance(f, Function) and f.name == name for f in ast.walk(scope.module))
        if not own and (one_rank_decorator(name) or name == "on_process"):
            found.append(Guard(node.lineno, _one_rank_test(name, node), True, False, scope))
    return found


def _descend(body: Sequence[ast.stmt], line: int, scope: FrameScope, found: list[Guard]) -> object:
    """Record the conditions for ``line`` in one block; return the inner block to continue with, or None."""
    for statement in body:
        if not contains_line(statement, line):
            if statement.lineno < line:
                found += _early_exit(statement, scope)
            continue
        if isinstance(statement, (ast.If, ast.While)):
            if line < statement.body[0].lineno and not _one_line(statement):
                return None  # in the condition itself
            inside = line <= (statement.body[-1].end_lineno or 0)
            found.append(Guard(statement.lineno, statement.test, inside, False, scope))
            return statement.body if inside else statement.orelse
        if isinstance(statement, ast.Match):
            for case, test in zip(statement.cases, case_tests(statement), strict=True):
                if any(contains_line(s, line) for s in case.body):
                    found.append(Guard(case.pattern.lineno, test, True, False, scope))
        if isinstance(statement, (ast.With, ast.AsyncWith)) and line >= statement.body[0].lineno:
            names = [last_name(i.context_expr) for i in statement.items]
            if any(FIRST_IN.search(name) for name in names):
                local = "local" in " ".join(names)
                found.append(Guard(statement.lineno, _first_rank(local), True, False, scope))
        found += _within_expression(statement, line, scope)
        return next((block for block in _blocks(statement) if any(contains_line(s, line) for s in block)), None)
    return None


def _early_exit(statement: ast.stmt, scope: FrameScope) -> list[Guard]:
    if not isinstance(statement, ast.If):
        return []
    body, orelse = way_out(statement.body), way_out(statement.orelse)
    if bool(body) == bool(orelse):
        return []
    return [Guard(statement.lineno, statement.test, bool(orelse), True, scope, body or orelse)]


def _within_expression(statement: ast.stmt, line: int, scope: FrameScope) -> list[Guard]:
    """Return the conditions in ``x() if test else None`` and ``test and x()`` at the line."""
    if next(_blocks(statement), None):
        return []
    found: list[Guard] = []
    for node in ast.walk(statement):
        if not isinstance(node, ast.expr) or not contains_line(node, line):
            continue
        if isinstance(node, ast.IfExp) and _calls(node.body) != _calls(node.orelse):
            found.append(Guard(node.test.lineno, node.test, _calls(node.body), False, scope))
        if isinstance(node, ast.BoolOp) and _calls(node.values[-1]):
            found.append(Guard(node.lineno, node.values[0], isinstance(node.op, ast.And), False, scope))
    return found


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list) and block:
            yield block
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def way_out(block: Sequence[ast.stmt]) -> str:
    """Return how the end of a block leaves the function, loop or process (see ``Guard.how``); empty if it does not."""
    if not block:
        return ""
    match block[-1]:
        case ast.Continue():
            return "continue"
        case ast.Return() | ast.Break():
            return "leave"
        case ast.Raise():
            return "raise"
        case ast.Expr(value=ast.Call() as call) if called_function_name(call) in LEAVING_CALLS:
            return (
                "raise" if called_function_name(call) == "abort" or any(_is_failure(a) for a in call.args) else "exit"
            )
        case ast.Expr(value=ast.Call() as call) if called_function_name(call) == "kill":
            return "raise"
        case ast.If(body=body, orelse=orelse):
            return way_out(body) and way_out(orelse)
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return way_out(body)
    return ""


def _is_failure(code: ast.expr) -> bool:
    """Return whether a process that ends with this exit code has failed."""
    return not (isinstance(code, ast.Constant) and code.value in (0, None))


def case_tests(match: ast.Match) -> list[ast.expr]:
    """Return each case of a ``match`` as the condition under which it is taken."""
    tests: list[ast.expr] = []
    for case in match.cases:
        test = _pattern_test(case.pattern, match.subject)
        parts = [ast.UnaryOp(op=ast.Not(), operand=earlier) for earlier in tests] + ([test] if test else [])
        parts += [case.guard] if case.guard else []
        tests.append(ast.BoolOp(op=ast.And(), values=parts) if parts else ast.Constant(value=True))
    return tests


def _pattern_test(pattern: ast.pattern, subject: ast.expr) -> ast.expr | None:
    """Return the condition of a pattern, or None if it matches everything."""
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(left=subject, ops=[ast.Eq()], comparators=[value])
        case ast.MatchSingleton(value=value):
            return ast.Compare(left=subject, ops=[ast.Is()], comparators=[ast.Constant(value=value)])
        case ast.MatchOr(patterns=patterns):
            tests = [_pattern_test(each, subject) for each in patterns]
            return ast.BoolOp(op=ast.Or(), values=[test for test in tests if test]) if all(tests) else None
        case ast.MatchAs(pattern=inner):
            return _pattern_test(inner, subject) if inner else None
    return subject  # the text does not determine whether a structure matches


def _is_rank(rank: ast.expr, number: ast.expr) -> ast.expr:
    return ast.Compare(left=rank, ops=[ast.Eq()], comparators=[number])


def _first_rank(local: bool) -> ast.expr:
    return _is_rank(LOCAL_RANK if local else RANK, ast.Constant(value=0))


def _one_rank_test(name: str, node: ast.expr) -> ast.expr:
    """Return the condition that a decorator of that name imposes."""
    if name == "on_process" and isinstance(node, ast.Call):
        wanted = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "process_index")]
        if wanted:
            return _is_rank(RANK, wanted[0])
    which = one_rank_decorator(name)
    if which == "last":
        return ast.Name(id="is_last_process", ctx=ast.Load())
    return _first_rank(which == "first local")


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _one_line(statement: ast.If | ast.While) -> bool:
    return statement.lineno == statement.body[0].lineno
