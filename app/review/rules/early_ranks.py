"""DW478: ranks that a program asks for before there is a process group, by a function that answers without one."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import parts
from ...training_script.model.library_effects import DELETES, DOWNLOADS, EXPERIMENTS, MOVES, REPLACES
from ...training_script.model.noted_calls import INIT
from ...training_script.model.rank_values import GET_RANK
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Site
from ...training_script.model.several_ranks import SET_UP
from ...training_script.model.site_functions import function_in_module, innermost_function
from ...training_script.nodes import node_at, nodes_of_kinds
from ...training_script.syntax import Function, dotted_name, last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

GROUP = "is_initialized"
OF_ENVIRONMENT = {"environ", "getenv", "get_rank_from_env"}  # where a rank is known without a group
EFFECTS = {*REPLACES, *DOWNLOADS, *DELETES, *MOVES, *EXPERIMENTS, "torch.save"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the questions for the rank before the process group is made, whose answer decides something."""
    if not any(run.of(INIT)) or not any(run.of(GET_RANK[0])):
        return
    made = next(place for place, each in enumerate(run.reached) if each.name in SET_UP)
    group = run.reached[made]
    if group.name != INIT or group.conditions or _asks_for_group(script, group.fact.site):
        return
    seen: set[Site] = set()
    for reach in run.reached[:made]:
        fact = reach.fact
        if not isinstance(fact, Noted) or fact.name != GET_RANK[0] or reach.started != group.started:
            continue
        if not reach.several or not _answers_without_group(script, fact.site):
            continue
        decided = ((at, _decided(run.reached[:made], at) or _read_later(script, at, group)) for at in reach.calls[::-1])
        call, used = next(((at, used) for at, used in decided if used), (fact.site, None))
        if used is None or call in seen:
            continue
        seen.add(call)
        line = group.fact.site.line
        yield from violation_at(
            script,
            reach._replace(fact=fact._replace(site=call), calls=reach.calls[: reach.calls.index(call)]),
            f"there is no process group yet (it is made in line {line}): every rank takes itself for rank 0 here",
            0.85,
            related=[
                RelatedPlace(path=group.fact.site.path, line=line, message="the process group is made here"),
                RelatedPlace(path=used.path, line=used.line, message="every rank does this as rank 0"),
            ],
        )


def _decided(before: list[Reach], call: Site) -> Site | None:
    """Return what is for rank 0 alone, behind a condition on the rank at a place, before there is a group."""
    for reach in before:
        if reach.name in EFFECTS and any(
            each.site.path == call.path
            and each.site.line <= call.line <= each.site.end_line
            and any(part.op == "rank" and part.args[1] in GET_RANK for part in parts(each.test))
            for each in reach.conditions
        ):
            return reach.fact.site
    return None


def _read_later(script: Script, call: Site, group: Reach) -> Site | None:
    """Return where a name that holds the early answer is read, in the same function behind the process group."""
    node = node_at(script.source.tree, call.line, call.column, ast.Call) if call.path == script.source.path else None
    stmt = script.source.parents.get(node) if node is not None else None
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not (name := dotted_name(stmt.targets[0])):
        return None
    around = script.names.enclosing_function(stmt) or script.source.tree
    first = getattr(around, "lineno", 1)
    last = getattr(around, "end_lineno", None) or len(script.source.text)
    here = [site.line for site in (*group.calls, group.fact.site) if site.path == call.path]
    made = next((line for line in here if call.line < line <= last), None)
    if made is None or not first <= call.line <= last:
        return None
    named = [each for each in nodes_of_kinds(around, ast.Name, ast.Attribute) if dotted_name(each) == name]
    if sum(isinstance(each.ctx, ast.Store) for each in named) > 1:
        return None
    read = next((each for each in named if isinstance(each.ctx, ast.Load) and each.lineno > made), None)
    return Site(call.path, read.lineno, read.col_offset + 1, read.lineno) if read else None


def _answers_without_group(script: Script, asked: Site) -> bool:
    """Return whether the function around a question for the rank answers with a number of its own without a group."""
    function = _function_at(script, asked)
    if function is None:
        return False
    names = {last_name(each) for each in nodes_of_kinds(function, ast.Name, ast.Attribute)}
    numbers = (each.value for each in nodes_of_kinds(function, ast.Constant))
    return GROUP in names and not names & OF_ENVIRONMENT and any(type(each) is int and each == 0 for each in numbers)


def _asks_for_group(script: Script, made: Site) -> bool:
    """Return whether the function that makes the process group first asks whether there is one, or may ask."""
    function = _function_at(script, made) or (script.source.tree if made.path == script.source.path else None)
    if function is None:
        return True
    names = nodes_of_kinds(function, ast.Name, ast.Attribute)
    return any(last_name(each) == GROUP and each.lineno <= made.line for each in names)


def _function_at(script: Script, site: Site) -> Function | None:
    """Return the innermost function around a place, in this script or in a module that it imports."""
    if site.path == script.source.path:
        return innermost_function(script.source.tree, site.line)
    return function_in_module(site)
