"""Who waits for whom: the group or peer each rank names in the call it stands in, and the knot that ties them."""

import ast
from collections.abc import Mapping, Sequence

from ...training_script.collectives import GROUP_PLACE, POINT_TO_POINT, WAITING_CALLS
from ...training_script.frame_scope import FrameScope
from ...training_script.line_queries import LineQueries, ScriptFiles
from ...training_script.loop_bounds import loop_bound_conditions
from ...training_script.rank_conditions import RankContext, depends_on_rank, evaluate_condition, evaluate_integer
from ...training_script.syntax import called_function_name
from ..rank_activity.rank_state import RankState

WORLD = ""
GROUP_AT = {**GROUP_PLACE, "send": 2, "recv": 2}
GROUP_KEYWORDS = ("group", "process_group", "pg")
PEERS = ("src", "dst", "peer")
DEPTH = 12


def group_of(stand: RankState, world_size: int, sources: ScriptFiles) -> str:
    """The group a rank's collective is called on, as an expression with the rank filled in; the world: empty."""
    return _group_named(_argument(stand, sources, GROUP_KEYWORDS, GROUP_AT), _who(stand, world_size))


def pending_for_group(stand: RankState, group: str, world_size: int, sources: ScriptFiles) -> bool:
    """Whether a rank has a collective of that group before it, past the one it waits in: in one of the functions it is
    in, or further on in a loop around it, and under no condition that keeps it out."""
    who = _who(stand, world_size)
    for frame, scope in zip(stand.frames, sources.scopes(stand.frames), strict=True):
        source = sources[frame.path]
        rounds = {id(node) for loop in source.loops(frame.line) for node in ast.walk(loop)}
        for call in ast.walk(scope.function):
            if not isinstance(call, ast.Call) or called_function_name(call) not in WAITING_CALLS - POINT_TO_POINT:
                continue
            ahead = call.lineno > frame.line or (id(call) in rounds and call.lineno != frame.line)
            given = _given(call, called_function_name(call), scope, GROUP_KEYWORDS, GROUP_AT)
            if ahead and _group_named(given, who) == group and _may_reach(source, call.lineno, scope, who):
                return True
    return False


def _may_reach(source: LineQueries, line: int, scope: FrameScope, who: RankContext) -> bool:
    """Whether no condition around a line keeps a rank from it."""
    guards = [guard for guard in source.guards(line, scope) if not guard.exits]
    return not any(evaluate_condition(guard.test, who, guard.scope) == (not guard.needs) for guard in guards)


def _group_named(found: tuple[ast.expr, FrameScope] | None, who: RankContext) -> str:
    if found is None:
        return WORLD
    text = _resolved(found[0], found[1], who, DEPTH)
    return (
        WORLD
        if text in ("None", "dist.group.WORLD", "group.WORLD") or text.endswith("distributed.group.WORLD")
        else text
    )


def members_of(stand: RankState, world_size: int, sources: ScriptFiles) -> set[int] | None:
    """The ranks of the group a rank's collective is called on, where the text tells them."""
    found = _argument(stand, sources, GROUP_KEYWORDS, GROUP_AT)
    if found is None:
        return set(range(world_size))
    who = _who(stand, world_size)
    call = _followed(found[0], found[1], who, DEPTH)
    match call:
        case (ast.Call(func=ast.Attribute(attr="new_group") | ast.Name(id="new_group")) as made, scope):
            listed = [*made.args[:1], *(k.value for k in made.keywords if k.arg == "ranks")]
            items = getattr(listed[0], "elts", None) if listed else None
            ranks = [evaluate_integer(item, who, scope) for item in items] if items else []
            return {rank for rank in ranks if rank is not None} if ranks and None not in ranks else None
    return None


def order_by_rank(stand: RankState, sources: ScriptFiles) -> tuple[str, bool] | None:
    """``path:line`` of what lets the rank decide in which order a loop goes through the groups that a collective is
    called on (each rank may be at another one): a choice by rank (True), else the loop itself (False)."""
    found = _argument(stand, sources, GROUP_KEYWORDS, GROUP_AT)
    if found is None:
        return None
    group, scope = found
    names = {node.id for node in ast.walk(group) if isinstance(node, ast.Name)}
    for node in ast.walk(scope.function):
        if isinstance(node, ast.For) and names & {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            for choice, held in loop_bound_conditions(node, scope):
                if depends_on_rank(choice.test, held):
                    paths = [path for path in sources.paths if sources[path].module is held.module]
                    return f"{(paths or [stand.frames[-1].path])[0]}:{choice.test.lineno}", True
            here = f"{stand.frames[-1].path}:{node.lineno}"
            return (here, False) if _mentions_rank(node.iter, scope) else None
    return None


def _mentions_rank(node: ast.AST, scope: FrameScope, depth: int = 3) -> bool:
    if isinstance(node, ast.expr) and depends_on_rank(node, scope):
        return True
    if depth == 0:
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr) and inner is not node and depends_on_rank(inner, scope, 2):
            return True
        called = scope.function_called(inner) if isinstance(inner, ast.Call) else None
        if called and any(_mentions_rank(s, FrameScope(scope.module, called), depth - 1) for s in called.body):
            return True
    return False


def peer_of(stand: RankState, world_size: int, sources: ScriptFiles) -> int | None:
    """The rank that a send goes to or a receive waits for, where the text tells it."""
    positions = dict.fromkeys(POINT_TO_POINT, 1)
    found = _argument(stand, sources, PEERS, positions)
    return evaluate_integer(found[0], _who(stand, world_size), found[1]) if found else None


def mutual_waiters(stands: Sequence[RankState], world_size: int, sources: ScriptFiles) -> list[RankState]:
    """Of some waiting ranks those that wait for each other, and for nobody else: the others only wait because of them.
    All of them, where that cannot be told."""
    calls = {stand.rank: _call(stand, world_size, sources) for stand in stands}
    waits: dict[object, set[object]] = {}
    for stand in stands:
        call = calls[stand.rank]
        if call not in waits:
            waits[call] = {calls[rank] for rank in _waits_for(stand, calls, world_size, sources)} - {call}
    reach = {call: _reached(call, waits) for call in waits}
    tied = {call for call in waits if waits[call] and all(call in reach[other] for other in reach[call])}
    return [stand for stand in stands if calls[stand.rank] in tied] or list(stands)


def _call(stand: RankState, world_size: int, sources: ScriptFiles) -> object:
    """What ranks that are in one call have in common; each send or receive is by itself."""
    if stand.collective in POINT_TO_POINT:
        return stand.rank
    return stand.collective, group_of(stand, world_size, sources)


def _waits_for(stand: RankState, calls: Mapping[int, object], world_size: int, sources: ScriptFiles) -> set[int]:
    """The ranks that must come before this one can go on."""
    if stand.collective in POINT_TO_POINT:
        peer = peer_of(stand, world_size, sources)
        return {peer} & calls.keys() if peer is not None else set()
    members = members_of(stand, world_size, sources)
    return {rank for rank in (calls if members is None else members & calls.keys()) if calls[rank] != calls[stand.rank]}


def _reached(start: object, waits: Mapping[object, set[object]]) -> set[object]:
    seen: set[object] = set()
    queue = [start]
    while queue:
        for call in waits[queue.pop()] - seen:
            seen.add(call)
            queue.append(call)
    return seen


def _argument(
    stand: RankState, sources: ScriptFiles, keywords: Sequence[str], positions: Mapping[str, int]
) -> tuple[ast.expr, FrameScope] | None:
    """What the user's call of the collective passes for one of the keywords, with the scope to read it in."""
    if not stand.frames or not stand.collective or stand.via:
        return None
    frame = stand.frames[-1]
    source: LineQueries = sources[frame.path]
    call = source.collective_call(frame.line, stand.collective)
    return _given(call, stand.collective, sources.scopes(stand.frames)[-1], keywords, positions) if call else None


def _given(
    call: ast.Call, collective: str, scope: FrameScope, keywords: Sequence[str], positions: Mapping[str, int]
) -> tuple[ast.expr, FrameScope] | None:
    """What a call passes for one of the keywords, with the scope to read it in."""
    given = next((k.value for k in call.keywords if k.arg in keywords), None)
    at = positions.get(collective)
    if (
        given is None
        and at is not None
        and at < len(call.args)
        and not any(isinstance(a, ast.Starred) for a in call.args)
    ):
        given = call.args[at]
    return (given, scope) if given is not None else None


def _followed(node: ast.expr, scope: FrameScope, who: RankContext, depth: int) -> tuple[ast.expr, FrameScope] | None:
    """The expression behind names, choices, lists and dictionaries, as far as the text tells."""
    if depth == 0:
        return None

    def behind(inner: ast.expr, where: FrameScope = scope) -> tuple[ast.expr, FrameScope] | None:
        return _followed(inner, where, who, depth - 1)

    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            value = evaluate_condition(test, who, scope)
            return None if value is None else behind(body if value else orelse)
        case ast.BoolOp(op=ast.Or(), values=[first, *rest]):
            found = behind(first)
            if found and isinstance(found[0], ast.Constant) and not found[0].value:
                return behind(rest[0] if len(rest) == 1 else ast.BoolOp(op=ast.Or(), values=rest))
            return found
        case ast.Name(id=name) if known := scope.lookup(name):
            return behind(*known)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if known := scope.attribute(name):
            return behind(*known)
        case ast.Subscript(value=container, slice=index):
            return _item(behind(container), evaluate_integer(index, who, scope), who, depth) or (node, scope)
        case ast.Call(func=ast.Attribute(value=container, attr="get"), args=[index, *default]):
            inner, at = behind(container), evaluate_integer(index, who, scope)
            if inner and isinstance(inner[0], ast.Dict) and at is not None:
                return _item(inner, at, who, depth) or (default[0] if default else ast.Constant(value=None), scope)
    return node, scope


def _item(
    container: tuple[ast.expr, FrameScope] | None, at: int | None, who: RankContext, depth: int
) -> tuple[ast.expr, FrameScope] | None:
    """One item of a list or dictionary that stands in the text."""
    if container is None or at is None:
        return None
    held, scope = container
    if isinstance(held, ast.Dict):
        for key, value in zip(held.keys, held.values, strict=True):
            if key and evaluate_integer(key, who, scope) == at:
                return _followed(value, scope, who, depth - 1)
        return None
    items = getattr(held, "elts", [])
    return _followed(items[at], scope, who, depth - 1) if -len(items) <= at < len(items) else None


def _resolved(node: ast.expr, scope: FrameScope, who: RankContext, depth: int) -> str:
    """The expression as text, with the rank filled in where it chooses."""
    if isinstance(node, ast.Subscript) and (at := evaluate_integer(node.slice, who, scope)) is not None:
        return f"{_resolved(node.value, scope, who, depth - 1)}[{at}]"
    found = _followed(node, scope, who, depth) or (node, scope)
    if isinstance(found[0], ast.Subscript) and found[0] is not node and depth:
        return _resolved(found[0], found[1], who, depth - 1)
    if isinstance(found[0], ast.Call):  # new_group(…), get_group(…): known by the name it was given
        return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ast.unparse(found[0])
    return ast.unparse(found[0])


def _who(stand: RankState, world_size: int) -> RankContext:
    return RankContext(stand.rank, stand.row.local_rank, world_size)
