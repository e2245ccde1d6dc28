"""DW101: a CUDA device chosen by the global rank.

Only if the script shows that the number is the global rank (RANK, ``dist.get_rank()``, ``process_index``), or its name
says so (``global_rank``). Silent in scripts for one node: there both numbers are the same.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ...launchers.rank_variables import LOCAL_RANK_OF, RANK_SCOPES
from ...training_script.edits import Edit
from ...training_script.model.keys import UNTIL_KNOWN, rank_in
from ...training_script.model.noted_calls import INIT
from ...training_script.model.signatures import place_of
from ...training_script.name_resolution import Names
from ...training_script.nodes import CompletedCall, nodes_below
from ...training_script.scopes import Scope
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from ..one_node import is_for_one_node
from ..patches.os_import import os_module
from ..rule_context import Patch, Script, Violation, no_patch

FIX = "use-local-rank"
WHY_UNSAFE = "other code may rely on the device having the number of the global rank"
DEVICE_NAMES = {"device", "device_id", "current_device", "cuda_device", "device_index", "gpu_id"}
NUMBER_OF_DEVICE = ("torch.cuda.set_device", "torch.cuda.device")
OF_ALL = re.compile(r"_?(?:global|world)_rank")
OF_ACCELERATOR = ("set_device", "device_name", "device")  # of DeepSpeed's get_accelerator(), by a number
OF_DEVICE = re.compile(r"cuda|device|DataParallel|\.to\(")
OF_RANK = re.compile(rf"""["'](?:{"|".join(name for name, scope in RANK_SCOPES.items() if scope == "global")})["']""")
# What a script computes the global rank from by itself: that of a process on its node.
OF_NODE = re.compile(rf"""spawn|start_processes|Process\b|["'](?:{"|".join(RANK_SCOPES)})["']""")
NAMING_DEVICE = {ast.Call, CompletedCall, ast.JoinedStr, ast.BinOp, ast.Assign}
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")


class Rank(NamedTuple):
    """A rank whose origin the script shows: its ``kind``, and the variable or function that it is read from."""

    kind: str
    source: str


def check(script: Script) -> list[Violation]:
    """Return one finding for each function that uses the global rank as a device."""
    text = script.source.text
    if not OF_DEVICE.search(text) or not (script.has_ranks or OF_RANK.search(text)):
        return []
    named = any(map(script.mentions, ("global_rank", "world_rank")))
    if not named and not (script.reads_rank or script.mentions(OF_NODE)):
        return []
    if not (script.has_ranks and script.is_of_several) and not any(device_places(script)):
        return []  # no other rule needs the evaluation
    if not named and "global" not in script.evaluated.keys.kinds_read:
        return []
    if not any(isinstance(node, ast.expr) and _is_global(script, node) for node in nodes_below(script.source.tree)):
        return []
    by_scope: dict[Scope, list[tuple[ast.expr, Rank]]] = defaultdict(list)
    for place in device_places(script):
        rank = _rank(script, place)
        found = by_scope[script.names.scope_of[place]]
        if rank and rank.kind == "global" and place not in [each for each, _ in found]:
            found.append((place, rank))
    if not any(by_scope.values()) or is_for_one_node(script):
        return []
    return [_finding(script, places) for places in by_scope.values() if places]


def _finding(script: Script, places: list[tuple[ast.expr, Rank]]) -> Violation:
    places = sorted(places, key=lambda item: (item[0].lineno, item[0].col_offset))
    first = places[0][0]
    lines = sorted({place.lineno for place, _ in places})
    also = f" (also line {', '.join(map(str, lines[1:]))})" if lines[1:] else ""
    return Violation(
        line=first.lineno,
        column_bytes=first.col_offset + 1,
        end_line=first.end_lineno or first.lineno,
        message=f"`{ast.unparse(first)}` is the global rank and is used as the number of a GPU{also}",
        confidence=0.9,
        patch=lambda: _patch(script, places),
    )


# ---- places that name a device


def device_places(script: Script) -> Iterator[ast.expr]:
    """Yield every expression that is used as the number of a CUDA device."""
    names = script.names
    for node in [each for each in names.scope_of if type(each) in NAMING_DEVICE]:
        match node:
            case ast.Call():
                yield from _in_call(names, node)
            case ast.JoinedStr(values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=value)]):
                yield value
            case ast.BinOp(
                left=ast.Constant(value="cuda:"), op=ast.Add(), right=ast.Call(func=ast.Name(id="str"), args=[value])
            ):
                yield value
            case ast.BinOp(left=ast.Constant(value="cuda:%d" | "cuda:%s"), op=ast.Mod(), right=value):
                yield value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if _device_name(target):
                yield from (choice for choice in _choices(value) if not _device_name(choice))


def _in_call(names: Names, call: ast.Call) -> Iterator[ast.expr]:
    full = names.qualified(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    last = full.rpartition(".")[2]
    given: list[ast.expr | None] = []
    if full in NUMBER_OF_DEVICE:
        given = [call_argument(call, "device", 0)]
    elif full == "torch.device":
        given = [call_argument(call, "index", 1)] if len(call.args) > 1 or call.keywords else call.args[:1]  # type: ignore[assignment]
    elif last in WRAPPERS or (not full and method in WRAPPERS):
        listed = call_argument(call, "device_ids")
        given = [call_argument(call, "output_device"), call_argument(call, "device_id")]
        given += _elements(names, listed) if listed else []
    elif full.endswith("distributed.init_process_group"):
        given = [call_argument(call, "device_id")]
    elif method in OF_ACCELERATOR and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        of_library = names.qualified(call.func.value.func).endswith("accelerator.get_accelerator")
        given = call.args[:1] if of_library else []  # type: ignore[assignment]
    elif method in ("to", "cuda") and not full:
        given = [call_argument(call, "device", 0)]
    elif method == "format" and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant):
        given = call.args[:1] if call.func.value.value in ("cuda:{}", "cuda:{0}") else []  # type: ignore[assignment]
    elif full.startswith("torch."):
        given = [call_argument(call, "device")]
    for value in (choice for each in given if each is not None for choice in _choices(each)):
        # A variable named like a device is checked where it is assigned.
        if not _device_name(value):
            yield value


def _choices(expr: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions that one chooses between, or itself."""
    match expr:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _choices(body)
            yield from _choices(orelse)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _choices(value)
        case _:
            yield expr


def _elements(names: Names, listed: ast.expr) -> Iterator[ast.expr]:
    """Yield the elements of a list, of each list that is chosen between, and of one that a variable holds."""
    values = [listed]
    if isinstance(listed, ast.Name):
        values = [binding.value for binding in names.bindings(listed) if binding.kind == "assign" and binding.value]
    for value in (choice for each in values for choice in _choices(each)):
        if isinstance(value, ast.List | ast.Tuple):
            yield from value.elts


def _device_name(expr: ast.expr) -> bool:
    name = dotted_name(expr.func if isinstance(expr, ast.Call) else expr).rpartition(".")[2]
    return name in DEVICE_NAMES or (isinstance(expr, ast.Call) and "device" in name)


# ---- the patch


def _patch(script: Script, places: list[tuple[ast.expr, Rank]]) -> Patch:
    edits: list[Edit] = []
    for place, rank in places:
        if isinstance(place, ast.Attribute) and place.attr == "process_index":
            edits.append(script.source.replace(place, f"{script.source.code(place.value)}.local_process_index"))
            continue
        local = local_rank_at(script, place)
        if local is None:
            variable = LOCAL_RANK_OF.get(_variable(rank) or _variable_of_group(script))
            if script.names.spawned or variable is None:
                return no_patch(
                    FIX, "no known launcher sets LOCAL_RANK here: pass the index of the process on its node"
                )
            local, edit = _read_like(script, place, rank, variable)
            edits += [edit] if edit else []
        edits.append(script.source.replace(place, local))
    for edit, (place, _) in zip([e for e in edits if e.start != e.end], places, strict=False):
        if ast.unparse(place).replace('"', "'") != script.source.text[edit.start : edit.end].replace('"', "'"):
            return no_patch(FIX, f"the form of the expression at line {place.lineno} is not supported by the patch")
    return Patch(id=FIX, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=edits)


def _variable_of_group(script: Script) -> str:
    """Return the variable that the rank of the process group is read from: RANK, unless the script passes a rank."""
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Call) and script.names.qualified(node.func).endswith("init_process_group"):
            given = call_argument(node, "rank", place_of(INIT, "rank"))
            if given is not None:
                rank = _rank(script, given)
                return _variable(rank) if rank else ""
    return "RANK"


def _read_like(script: Script, place: ast.expr, rank: Rank, variable: str) -> tuple[str, Edit | None]:
    """Return code that reads ``variable`` as the script reads its rank, with the same default, and a missing import."""
    values = [place, *(binding.value for binding in script.names.bindings(place) if binding.value)]
    quote = "'" if _inside_f_string(script, place) == '"' else '"'
    for value in values:
        if key := _key_of_read(value, _variable(rank)):
            code = script.source.code(value)
            at = script.source.start(key) - script.source.start(value)
            local = f"{code[:at]}{quote}{variable}{quote}{code[at + len(script.source.code(key)) :]}"
            other = '"' if quote == "'" else "'"
            return local.replace(other, quote), None
    os_, edit = os_module(script)
    before = script.source.one_line(place)  # what a launcher without this variable has used so far
    if quote in before:
        return f"int({os_}.environ[{quote}{variable}{quote}])", edit
    return f"int({os_}.environ.get({quote}{variable}{quote}, {before}))", edit


def _key_of_read(value: ast.expr, variable: str) -> ast.expr | None:
    """Return the name of the variable in ``int(os.environ.get("RANK", 0))`` and its like, or None."""
    match value:
        case ast.Call(func=ast.Name(id="int" | "str"), args=[inner], keywords=[]):
            return _key_of_read(inner, variable)
        case (
            ast.Call(
                func=ast.Attribute(attr="get" | "getenv") | ast.Name(id="getenv"),
                args=[ast.Constant(value=name) as key, *_],
            )
            | ast.Subscript(slice=ast.Constant(value=name) as key)
        ) if variable and name == variable:
            return key
    return None


def _inside_f_string(script: Script, place: ast.expr) -> str:
    """Return the quote of the f-string around ``place``, or ""."""
    parent = script.source.parents[place]
    while isinstance(parent, (ast.expr, ast.FormattedValue)) and not isinstance(parent, ast.JoinedStr):
        parent = script.source.parents[parent]
    if not isinstance(parent, ast.JoinedStr):
        return ""
    return '"' if '"' in script.source.code(parent)[:4] else "'"


def local_rank_at(script: Script, place: ast.expr) -> str | None:
    """Return a variable that certainly holds the local rank at ``place``, preferring one read from LOCAL_RANK."""
    names = script.names
    scope: Scope | None = names.scope_of[place]
    while scope:
        best: list[tuple[bool, str]] = []
        for name, bindings in scope.bindings.items():
            if len(bindings) != 1:
                continue
            at = bindings[0].at
            found = names.lookup(name, names.scope_of[place])
            if not found or found[0] is not bindings:
                continue  # shadowed
            value = bindings[0].value
            rank = _spawn_index(script, at) if isinstance(at, ast.arg) else _rank(script, value) if value else None
            if rank and rank.kind == "local" and _holds_at(script, at, place, scope):
                best.append((rank.source != "LOCAL_RANK", name))
        if best:
            return min(best)[1]
        scope = scope.parent
    return None


def _spawn_index(script: Script, at: ast.arg) -> Rank | None:
    function = script.source.parents[script.source.parents[at]]
    if isinstance(function, FUNCTIONS) and function in script.names.spawned and function.args.args[:1] == [at]:
        return Rank("local", "spawn")
    return None


def _rank(script: Script, expr: ast.expr) -> Rank | None:
    """Return the rank that an expression is, if the script shows where it comes from; that of a spawn is local.

    A name that says of all nodes, such as ``global_rank``, is enough.
    """
    value = script.evaluated.value(expr)
    rank = rank_in(value) if value else None
    if rank is None or rank.args[1] == UNTIL_KNOWN or not (rank.args[1] or OF_ALL.fullmatch(last_name(expr))):
        return None
    kind, source = rank.args
    return Rank("local" if kind == "spawned" else kind, source)


def _is_global(script: Script, expr: ast.expr) -> bool:
    """Return whether an expression is the global rank."""
    rank = _rank(script, expr)
    return rank is not None and rank.kind == "global"


def _variable(rank: Rank) -> str:
    """Return the environment variable that a rank is read from, or an empty string."""
    return rank.source if rank.source.isupper() else ""


def _holds_at(script: Script, at: ast.AST, place: ast.expr, scope: Scope) -> bool:
    """Return whether the binding ``at`` exists whenever ``place`` runs.

    This holds for parameters and for earlier statements of a block around ``place`` (inside a function, for every
    statement at module level).
    """
    if isinstance(at, ast.arg):
        return True
    parents = script.source.parents
    block = parents.get(at)
    above: list[ast.AST] = []
    node: ast.AST | None = place
    while node is not None:
        above.append(node)
        node = parents.get(node)
    if block not in above or not isinstance(at, ast.stmt):
        return False
    inside_function = scope.node is script.source.tree and script.names.enclosing_function(place) is not None
    return inside_function or (at.end_lineno or at.lineno) < place.lineno
