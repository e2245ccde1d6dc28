"""DW121: the global rank that is passed to a parameter for the local rank."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, Function, last_name, match_arguments
from ..one_node import is_for_one_node
from ..rule_context import Patch, Script, Violation, no_patch
from .device_by_global_rank import DEVICE_NAMES, device_places, local_rank_at

FIX, LOCAL_RANK = "pass-local-rank", "local_rank"
LOCAL = re.compile(r"local_rank|local_process_index|gpu|gpu_id|device_id")
GLOBAL = re.compile(r"(?:global_|world_)?rank|process_index")


def check(script: Script) -> list[Violation]:
    """Return the calls that pass the global rank where the function uses its parameter as the number of a GPU."""
    if not script.mentions("local_rank") or not script.has_ranks:
        return []
    functions = _functions(script)
    used: Mapping[int, set[str]] | None = None
    found: list[Violation] = []
    for call in nodes_of_kinds(script.source.tree, ast.Call):
        function = functions.get(last_name(call.func))
        if function is None:
            continue
        for parameter, given in _passed(function, call):
            is_rank = isinstance(given, ast.Name | ast.Attribute) and GLOBAL.fullmatch(last_name(given))
            if not is_rank or not LOCAL.fullmatch(parameter):
                continue
            used = _used_as_device(script) if used is None else used
            if parameter in DEVICE_NAMES | used[id(function)] and _has_local_rank(script, call):
                found.append(
                    Violation(
                        line=call.lineno,
                        column_bytes=call.col_offset + 1,
                        end_line=given.end_lineno or call.lineno,
                        message=f"`{ast.unparse(given)}` is the global rank, and `{function.name}` uses its parameter "
                        f"`{parameter}` as the number of a GPU: on a second node there is no such GPU",
                        confidence=0.8,
                        patch=partial(_pass_local_rank, script, given),
                    )
                )
    return found if found and not is_for_one_node(script) else []


def _used_as_device(script: Script) -> Mapping[int, set[str]]:
    """Return the names that each function uses as the number of a GPU, by the identity of the function."""
    used = defaultdict[int, set[str]](set)
    for place in device_places(script):
        used[id(script.names.enclosing_function(place))].add(last_name(place))
    return used


def _pass_local_rank(script: Script, given: ast.expr) -> Patch:
    """Return the patch that passes a variable which surely holds the local rank there."""
    around = script.names.enclosing_function(given)
    name = LOCAL_RANK if around is not None and _is_only_parameter(around) else local_rank_at(script, given)
    if name is None:
        return no_patch(FIX, "pass the local rank, such as int(os.environ['LOCAL_RANK'])")
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="the function may use its parameter for something else as well",
        edits=[script.source.replace(given, name)],
    )


def _is_only_parameter(function: Function) -> bool:
    """Return whether a function gets the local rank by this name, and nothing in it gives the name another value."""
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    stored = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return LOCAL_RANK in given and all(node.id != LOCAL_RANK for node in stored)


def _functions(script: Script) -> dict[str, Function]:
    """Return the functions of the script, without those that share a name."""
    found: dict[str, Function | None] = {}
    for node in nodes_of_kinds(script.source.tree, *FUNCTIONS):
        found[node.name] = None if node.name in found else node
    return {name: function for name, function in found.items() if function is not None}


def _passed(function: Function, call: ast.Call) -> Iterable[tuple[str, ast.expr]]:
    """Return what a call gives to each parameter that it names or that has its place before a ``*``."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] == ["self"] and isinstance(call.func, ast.Attribute):
        names = names[1:]
    return match_arguments(names, call.args, call.keywords).items()


def _has_local_rank(script: Script, call: ast.Call) -> bool:
    """Return whether the function around a call has the local rank in another variable."""
    around = script.names.enclosing_function(call) or script.source.tree
    return any(
        isinstance(node, ast.Name | ast.Attribute | ast.arg)
        and (node.arg if isinstance(node, ast.arg) else last_name(node)) == LOCAL_RANK
        for node in ast.walk(around)
    )
