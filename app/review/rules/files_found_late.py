"""DW472: collectives behind a question for a file that one rank writes between the question and the collective."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, LOCAL, Key
from ...training_script.model.library_calls import OF_FILE
from ...training_script.model.reach import ALL, Condition, Reach, Run
from ...training_script.model.sequences import Event, Site
from ...training_script.nodes import node_at, nodes_below
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from .early_reads import written_path

COLLECTIVES = {f"torch.distributed.{name}" for name in GROUP_PLACE}
ASKS = {"exists", "isfile", "is_file", "isdir", "is_dir"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first collective behind each question whose answer a rank changes for those that ask later."""
    asked: set[Site] = set()
    for place, reach in enumerate(run.reached) if run.distributed else ():
        if not isinstance(reach.fact, Event) or not reach.several:
            continue
        for condition in reach.conditions:
            path = _missing(condition.test, condition.truth)
            if path is None or condition.site in asked or condition.site.path != script.source.path:
                continue
            asked.add(condition.site)
            call = _question(script, run, condition.site)
            writer = call and (_written(run.reached[:place], condition, path) or _handed(script, run, call, reach))
            if call is None or writer is None:
                continue
            at = reach.fact.site
            yield violation_at_node(
                call,
                f"a rank that asks for the file after another has written it (line {writer.line}) finds it, and is not "
                f"in {reach.fact.kind} (line {at.line}): the others wait for it",
                0.75,
                branch=condition.site.line,
                related=[
                    RelatedPlace(path=writer.path, line=writer.line, message="one rank writes the file here"),
                    RelatedPlace(path=at.path, line=at.line, message="the others wait here"),
                ],
            )


def _missing(test: Key, truth: bool) -> Key | None:
    """Return the path of a file that is missing where a condition holds, None if it asks for none."""
    match test.op, test.args:
        case "not", (Key() as inner,):
            return _missing(inner, not truth)
        case (("and" | "or"), (Key() as first, Key() as second)):
            return _missing(first, truth) or _missing(second, truth)
        case "call", (str() as name, Key() as path) if not truth and name.rpartition(".")[2] in ASKS:
            return path
        case "local", (why, *_, Key() as path) if not truth and why == OF_FILE:
            return path
        case _:
            return None


def _question(script: Script, run: Run, site: Site) -> ast.Call | None:
    """Return the call that asks for the file, if ranks meet nowhere between it and the branch."""
    branch = node_at(script.source.tree, site.line, site.column, ast.If)
    if branch is None or isinstance(branch.body[-1], ast.Raise):
        return None  # the launcher ends the others with a rank that finds the file and raises
    for node in ast.walk(branch.test):
        if _asks(node):
            return node
        for made in script.names.origins(node) if isinstance(node, ast.Name) else ():
            if _asks(made):
                lines = range(made.lineno, branch.lineno)
                meets = any(isinstance(each.fact, Event) and each.fact.site.line in lines for each in run.reached)
                return None if meets else made
    return None


def _asks(node: ast.AST) -> TypeGuard[ast.Call]:
    """Return whether an expression asks whether a file or a directory is there."""
    return isinstance(node, ast.Call) and last_name(node.func) in ASKS


def _written(before: list[Reach], condition: Condition, path: Key) -> Site | None:
    """Return where some ranks write the file that a condition asks for, once they know that it is missing."""
    for reach in before:
        known = any(each.site == condition.site for each in reach.conditions)
        if known and isinstance(reach.fact, Event):
            return None
        if known and isinstance(reach.fact, Noted) and reach.ranks != ALL and not reach.unsure:
            written = written_path(reach.fact)
            if written is not None and written.key is path:
                return reach.fact.site
    return None


def _handed(script: Script, run: Run, question: ast.Call, reach: Reach) -> Site | None:
    """Return where some ranks pass the path of the file to a function, between the question and a collective.

    None if ranks meet before, in a group of some of them or in a function of another file: they have asked by then.
    """
    around = script.names.enclosing_function(question)
    path = question.args[0] if question.args else getattr(question.func, "value", None)
    meets = _line_of(script, reach)
    if path is None or not meets:
        return None
    text = ast.unparse(path)
    met = [_line_of(script, each) for each in run.reached if isinstance(each.fact, Event) or each.name in COLLECTIVES]
    for node in nodes_below(around or script.source.tree):
        if not isinstance(node, ast.If) or not question.lineno < node.lineno < meets:
            continue
        key = script.evaluated.value(node.test)
        if key is None or not key.differs_by & BY_RANK or key.differs_by & LOCAL:
            continue
        for call in (each for stmt in node.body for each in ast.walk(stmt) if isinstance(each, ast.Call)):
            given = [*call.args, *(each.value for each in call.keywords)]
            if not any(ast.unparse(each) == text for each in given) or _asks(call) or call.lineno >= meets:
                continue
            if not any(question.lineno < line < call.lineno for line in met):
                return Site(script.source.path, call.lineno, call.col_offset + 1, call.end_lineno or call.lineno)
    return None


def _line_of(script: Script, reach: Reach) -> int:
    """Return the line of the script at which a rank comes to a fact, 0 if it does so elsewhere."""
    sites = (reach.fact.site, *reversed(reach.calls))
    return next((each.line for each in sites if each.path == script.source.path), 0)
