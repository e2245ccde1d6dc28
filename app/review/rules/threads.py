"""DW448: collectives of the group of all ranks in a thread, while the program makes others."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Event
from ...training_script.nodes import nodes_below, nodes_of_kinds, walk
from ...training_script.syntax import contains_line
from ..rule_context import Script, Violation
from ..types import RelatedPlace


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the threads whose function makes a collective in the group that the rest of the program uses."""
    if not run.distributed or run.function is not None or not script.mentions("Thread"):
        return
    functions = nodes_of_kinds(script.source.tree, ast.FunctionDef)
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Call) or script.names.qualified(node.func) != "threading.Thread":
            continue
        target = next((each.value for each in node.keywords if each.arg == "target"), None)
        started = [each for each in functions if isinstance(target, ast.Name) and each.name == target.id]
        for function in started:
            inner = next((each for each in walk(function) if _communicates(script, each)), None)
            others = [each for each in run.reached if "backward" in each.name and each.several]
            others = others or _meanwhile(script, run, node, function)
            if isinstance(inner, ast.Call) and others:
                yield Violation(
                    line=node.lineno,
                    column_bytes=node.col_offset + 1,
                    end_line=node.end_lineno or node.lineno,
                    message=f"this thread makes collectives (line {inner.lineno}) while the program makes others in "
                    "the same group: each rank begins them in an order of its own",
                    confidence=0.8,
                    related=[RelatedPlace(path=script.source.path, line=inner.lineno, message="a collective there")],
                )


def _meanwhile(script: Script, run: Run, start: ast.Call, function: ast.FunctionDef) -> list[Reach]:
    """Return the collectives that the function which makes a thread calls before it waits for the end of one."""
    around = script.names.enclosing_function(start) or script.source.tree
    joins = (node for node in walk(around) if isinstance(node, ast.Attribute) and node.attr == "join")
    last = max(getattr(node, "end_lineno", 0) or 0 for node in walk(around))
    end = min((node.lineno for node in joins if node.lineno > start.lineno), default=last + 1)
    between = range(start.lineno + 1, end)
    return [
        each
        for each in run.reached
        if isinstance(each.fact, Event)
        and each.several
        and not contains_line(function, each.fact.site.line)
        and any(site.path == script.source.path and site.line in between for site in (*each.calls, each.fact.site))
    ]


def _communicates(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and collective_name(node, script.names) is not None
