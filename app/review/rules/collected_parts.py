"""DW492: results that a loop collects of one rank's part of the data, in a list or a mapping, and one rank reports."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.noted_calls import REPORT
from ...training_script.model.reach import Reach, Run
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .partial_reports import SAVES, is_shared_out, loaders_of_parts

TRAINS = {"backward", "step", "zero_grad"}
ADDS = {"append", "extend"}
# What may get the values of the other ranks, by the names of functions, and of what reports of its own rank.
OF_ALL = re.compile(
    r"(?![A-Z]|is_|init|setup|cleanup|destroy).*"
    r"(?:gather|reduce|sync|broadcast|distributed_|dist_|collect|merge|aggregat|all_|pad_across)"
)
# What makes a number of what was collected, rather than to show some of it.
MEASURES = re.compile(
    r"sum|mean|average|median|score|accuracy|auc|f1|precision|recall|ms[el]|mae|iou|dice|metric|comput|calc|matrix"
    r"|corr|error|bleu|rouge|psnr|ssim|classification_report",
    re.IGNORECASE,
)


class _Collected(NamedTuple):
    """A loop that fills lists or mappings, the function around it, and the names that hold them or follow from them.

    ``summed``: numbers are added up, which needs no further function.
    """

    loop: ast.For
    function: ast.AST
    names: set[str]
    summed: bool


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loops over a rank's part of a test set whose collected results one rank reports as those of all."""
    if not run.distributed:
        return
    reports = [
        (reach, fact)
        for reach, fact in run.of(REPORT, *SAVES)
        if reach.ranks.bit_count() == 1 and not reach.unsure and script.is_here(reach)
    ]
    loaders = loaders_of_parts(run) if reports else set[Key]()
    shares = bool(loaders) or (bool(reports) and any(run.of(".prepare")))
    for loop in nodes_of_kinds(script.source.tree, ast.For) if shares else ():
        key = script.evaluated.value(loop.iter)
        if key is None or not (is_shared_out(key) or not loaders.isdisjoint(parts(key))):
            continue
        collected = _collected(script, loop)
        report = next((each for each in reports if collected and _shows(script, collected, each[1])), None)
        if collected and report:
            yield _violation(script, collected, report)


def _collected(script: Script, loop: ast.For) -> _Collected | None:
    """Return what a loop collects that trains nothing, in a function that asks no other rank for anything."""
    function = script.names.enclosing_function(loop) or script.source.tree
    calls = {last_name(node.func) for node in walk(function) if isinstance(node, ast.Call)}
    inside = {last_name(node.func) for node in walk(loop) if isinstance(node, ast.Call)}
    if inside & TRAINS or any(map(OF_ALL.match, calls)):
        return None
    filled = {name for node in walk(loop) if (name := _filled(node))}
    counted = {
        node.target.id for node in walk(loop) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    if not filled or counted - filled:
        return None  # totals that it counts up as well are found as such
    bound = {node.id for node in walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    filled -= bound - counted
    summed = any(isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript) for node in walk(loop))
    return _Collected(loop, function, _following(function, loop, filled), summed) if filled else None


def _filled(node: ast.AST) -> str:
    """Return the name of the list or mapping that a statement adds something of the batch to."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=[given]) if method in ADDS:
            return name if _is_of_batch(given) else ""
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name)), value=given):
            return name if _is_of_batch(given) else ""
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Call(func=func)):
            return name if last_name(func) in ("tolist", "list") else ""
        case _:
            return ""


def _is_of_batch(given: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) for each in walk(given))


def _following(function: ast.AST, loop: ast.For, names: set[str]) -> set[str]:
    """Return names with those that are set behind a loop from one of them."""
    found = set(names)
    later = [each for each in walk(function) if isinstance(each, ast.Assign) and each.lineno > (loop.end_lineno or 0)]
    for stmt in sorted(later, key=lambda each: each.lineno):
        if _reads(stmt.value, found):
            found |= {each.id for target in stmt.targets for each in walk(target) if isinstance(each, ast.Name)}
    return found


def _reads(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in walk(node))


def _shows(script: Script, collected: _Collected, report: Noted) -> bool:
    """Return whether a report shows what follows from the collected results, here or where they are returned to."""
    call = report.node
    around = script.names.enclosing_function(call) or script.source.tree
    given = [*call.args, *(each.value for each in call.keywords)]
    behind = call.lineno > (collected.loop.end_lineno or 0)
    measured = collected.summed or _measures(collected.function, collected.names)
    if around is collected.function:
        return measured and behind and any(_reads(each, collected.names) for each in given)
    if not isinstance(collected.function, FUNCTIONS) or not _returns(collected):
        return False
    name, received = collected.function.name, set[str]()
    for stmt in sorted((each for each in walk(around) if isinstance(each, ast.Assign)), key=lambda each: each.lineno):
        made = any(isinstance(each, ast.Call) and last_name(each.func) == name for each in walk(stmt.value))
        if stmt.lineno < call.lineno and not _asks_others(stmt.value) and (made or _reads(stmt.value, received)):
            received |= {each.id for target in stmt.targets for each in walk(target) if isinstance(each, ast.Name)}
    asked = any(isinstance(each, ast.Call) and _asks_others(each) and _reads(each, received) for each in walk(around))
    measured = measured or _measures(around, received)
    return measured and not asked and any(_reads(each, received) for each in given)


def _asks_others(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and OF_ALL.match(last_name(each.func)) for each in walk(node))


def _measures(function: ast.AST, names: set[str]) -> bool:
    """Return whether a function of a measure gets what one of these names holds, by itself or as its own method."""
    return any(
        isinstance(node, ast.Call) and MEASURES.search(last_name(node.func)) is not None and _reads(node, names)
        for node in walk(function)
    )


def _returns(collected: _Collected) -> bool:
    returns = [each.value for each in walk(collected.function) if isinstance(each, ast.Return) and each.value]
    return any(_reads(each, collected.names) for each in returns)


def _violation(script: Script, collected: _Collected, report: tuple[Reach, Noted]) -> Violation:
    end, place = collected.loop.end_lineno or 0, report[1].site
    reads = [
        each
        for each in walk(collected.function)
        if isinstance(each, ast.Name) and each.id in collected.names and each.lineno > end
    ]
    first = min(reads, key=lambda each: (each.lineno, each.col_offset), default=collected.loop.iter)
    return violation_at_node(
        first,
        f"`{dotted_name(first) or 'this'}` follows from this rank's part of the data only (loop in line "
        f"{collected.loop.lineno}), and one rank reports it (line {place.line}): nothing gathers the other parts",
        0.7,
        related=[RelatedPlace(path=place.path, line=place.line, message="reported here")],
    )
