"""DW436: running totals that each call, or each round of a loop, sums up over the ranks again."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, contains_line, dotted_name, nodes_of_body
from ..epoch_loops import loop_around
from ..rule_context import Script, Violation
from ..types import RelatedPlace

SUM, RESET = "all_reduce", "self.reset"


def check(script: Script) -> list[Violation]:
    """DW436: return the attributes and names that are added to, summed over the ranks and kept for the next time."""
    if not script.mentions(SUM) or not script.mentions("+="):
        return []
    tree = script.source.tree
    added = [node.lineno for node in nodes_of_kinds(tree, ast.AugAssign) if isinstance(node.op, ast.Add)]
    functions = [node for node in nodes_of_kinds(tree, *FUNCTIONS) if any(contains_line(node, at) for at in added)]
    return [violation for scope in (tree, *functions) for violation in _in_scope(script, scope) if added]


def _in_scope(script: Script, scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    nodes = [*nodes_of_body(scope)]
    sums = [node for node in nodes if isinstance(node, ast.Call) and is_sum(script, node)]
    if not sums:
        return
    set_at = {(dotted_name(target), target.lineno): value for target, value in _assigned(nodes)}
    for node in nodes:
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
            continue
        total = dotted_name(node.target)
        emptied = any(
            isinstance(each, ast.Call) and dotted_name(each.func) in (f"{total}.zero_", RESET) for each in nodes
        )
        round_ = loop_around(script, node)
        is_local = not total.startswith("self.")
        if emptied or (is_local and round_ is None):
            continue
        for call in sums:
            if call.lineno < node.lineno:
                continue
            summed, repeated = dotted_name(call.args[0]), loop_around(script, call)
            if not summed or repeated not in _loops_around(script, node) or (is_local and repeated is None):
                continue
            since = repeated.lineno if is_local and repeated else 0
            if any(name == total and since <= line < node.lineno for name, line in set_at):
                continue  # it starts again in each call, or in each round
            made = next(
                (value for (name, line), value in set_at.items() if name == summed and line < call.lineno), None
            )
            of_total = summed == total or (made is not None and mentions(made, total))
            kept = [value for (name, line), value in set_at.items() if name == total and line >= call.lineno]
            if of_total and ((summed == total and not kept) or any(mentions(value, summed) for value in kept)):
                yield Violation(
                    line=call.lineno,
                    column_bytes=call.col_offset + 1,
                    end_line=call.end_lineno or call.lineno,
                    message=f"`{total}` has the sum of all ranks after one {'round' if is_local else 'call'}: "
                    "the next one sums it up again",
                    confidence=0.8,
                    related=[RelatedPlace(path=script.source.path, line=node.lineno, message="it is added to here")],
                )


def _loops_around(script: Script, node: ast.AST) -> list[ast.AST | None]:
    """Return the loops around a node in its function, innermost first; None at the end for no loop of a method."""
    found: list[ast.AST | None] = []
    at = loop_around(script, node)
    while at is not None:
        found.append(at)
        at = loop_around(script, at)
    return found or [None]


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of assignments, those in a tuple one by one, with the value that each gets."""
    pending: list[tuple[ast.expr, ast.expr]] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                pending += [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                pending.append((target, value))
            case _:
                pass
    while pending:
        target, value = pending.pop()
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            fits = len(parts) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in target.elts)
            pending += zip(target.elts, parts if fits else [value] * len(target.elts), strict=True)
        else:
            yield (target.value if isinstance(target, ast.Starred) else target), value


def is_sum(script: Script, call: ast.Call) -> bool:
    """Return whether a call sums up its first argument over the ranks."""
    op = next((dotted_name(each.value) for each in call.keywords if each.arg == "op"), "SUM")
    op = dotted_name(call.args[1]) if len(call.args) > 1 else op
    return bool(call.args) and collective_name(call, script.names) == SUM and op.endswith("SUM")


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name | ast.Attribute) and dotted_name(each) == name for each in walk(node))
