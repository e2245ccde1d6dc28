"""The wait-for graph of the ranks, from the group or peer that each rank passes to the call it is in."""

import ast
from collections.abc import Mapping, Sequence

from ...training_script.collectives import GROUP_PLACE, POINT_TO_POINT, WAITING_CALLS
from ...training_script.frame_scope import FrameScope, RankContext
from ...training_script.line_queries import LineQueries, ScriptFiles
from ...training_script.loop_bounds import loop_bound_conditions
from ...training_script.syntax import called_function_name
from ..rank_activity.rank_state import RankState

WORLD = ""
GROUP_AT = {**GROUP_PLACE, "send": 2, "recv": 2}
GROUP_KEYWORDS = ("group", "process_group", "pg")
PEERS = ("src", "dst", "peer")
DEPTH = 12


def group_of(state: RankState, world_size: int, sources: ScriptFiles) -> str:
    """Return the group of a rank's collective, as an expression with the rank filled in; "" for the world."""
    return _group_named(_argument(state, sources, GROUP_KEYWORDS, GROUP_AT), _rank_context(state, world_size))


def pending_for_group(state: RankState, group: str, world_size: int, sources: ScriptFiles) -> bool:
    """Return whether a rank has yet to call a collective of that group, after the one it waits in.

    Such a call is in one of the functions on its stack, further on or in a loop around its line, and under no condition
    that excludes the rank.
    """
    who = _rank_context(state, world_size)
    for frame, scope in zip(state.frames, sources.scopes(state.frames), strict=True):
        source = sources[frame.path]
        rounds = {id(node) for loop in source.loops(frame.line) for node in ast.walk(loop)}
        for call in ast.walk(scope.function):
            if not isinstance(call, ast.Call) or called_function_name(call) not in WAITING_CALLS - POINT_TO_POINT:
                continue
            ahead = call.lineno > frame.line or (id(call) in rounds and call.lineno != frame.line)
            given = _passed_argument(call, called_function_name(call), scope, GROUP_KEYWORDS, GROUP_AT)
            if ahead and _group_named(given, who) == group and _may_reach(source, call.lineno, scope, who):
                return True
    return False


def _may_reach(source: LineQueries, line: int, scope: FrameScope, who: RankContext) -> bool:
    """Return whether no condition around a line excludes a rank."""
    guards = [guard for guard in source.guards(line, scope) if not guard.exits]
    return not any(guard.scope.condition(guard.test, who) == (not guard.needs) for guard in guards)


def _group_named(found: tuple[ast.expr, FrameScope] | None, who: RankContext) -> str:
    if found is None:
        return WORLD
    text = _resolved_text(found[0], found[1], who, DEPTH)
    return (
        WORLD
        if text in ("None", "dist.group.WORLD", "group.WORLD") or text.endswith("distributed.group.WORLD")
        else text
    )


def members_of(state: RankState, world_size: int, sources: ScriptFiles) -> set[int] | None:
    """Return the ranks in the group of a rank's collective, or None if the source does not show them."""
    found = _argument(state, sources, GROUP_KEYWORDS, GROUP_AT)
    if found is None:
        return set(range(world_size))
    who = _rank_context(state, world_size)
    call = _resolve(found[0], found[1], who, DEPTH)
    match call:
        case (ast.Call(func=ast.Attribute(attr="new_group") | ast.Name(id="new_group")) as made, scope):
            listed = [*made.args[:1], *(k.value for k in made.keywords if k.arg == "ranks")]
            items = getattr(listed[0], "elts", None) if listed else None
            ranks = [scope.integer(item, who) for item in items] if items else []
            return {rank for rank in ranks if rank is not None} if ranks and None not in ranks else None
    return None


def order_by_rank(state: RankState, sources: ScriptFiles) -> tuple[str, bool] | None:
    """Find what makes the order in which a loop visits the groups of a collective depend on the rank.

    Return ``path:line`` of a choice by rank (and True) or else of the loop itself (and False). Each rank may be at
    another group then.
    """
    found = _argument(state, sources, GROUP_KEYWORDS, GROUP_AT)
    if found is None:
        return None
    group, scope = found
    names = {node.id for node in ast.walk(group) if isinstance(node, ast.Name)}
    for node in ast.walk(scope.function):
        if isinstance(node, ast.For) and names & {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:
            for choice, held in loop_bound_conditions(node, scope):
                if held.depends_on_rank(choice.test):
                    paths = [path for path in sources.paths if sources[path].module is held.module]
                    return f"{(paths or [state.frames[-1].path])[0]}:{choice.test.lineno}", True
            here = f"{state.frames[-1].path}:{node.lineno}"
            return (here, False) if _mentions_rank(node.iter, scope) else None
    return None


def _mentions_rank(node: ast.AST, scope: FrameScope, depth: int = 3) -> bool:
    if isinstance(node, ast.expr) and scope.depends_on_rank(node):
        return True
    if depth == 0:
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr) and inner is not node and scope.depends_on_rank(inner):
            return True
        called = scope.function_called(inner) if isinstance(inner, ast.Call) else None
        if called and any(_mentions_rank(s, FrameScope(scope.script, called), depth - 1) for s in called.body):
            return True
    return False


def peer_of(state: RankState, world_size: int, sources: ScriptFiles) -> int | None:
    """Return the rank that a send goes to or a receive waits for, or None if the source does not show it."""
    positions = dict.fromkeys(POINT_TO_POINT, 1)
    found = _argument(state, sources, PEERS, positions)
    return found[1].integer(found[0], _rank_context(state, world_size)) if found else None


def mutual_waiters(states: Sequence[RankState], world_size: int, sources: ScriptFiles) -> list[RankState]:
    """Return the ranks that wait for each other and for no other rank: all others only wait because of them.

    Return all ranks if there are none, or if the source does not show who waits for whom.
    """
    calls = {state.rank: _call(state, world_size, sources) for state in states}
    waits: dict[object, set[object]] = {}
    for state in states:
        call = calls[state.rank]
        if call not in waits:
            waits[call] = {calls[rank] for rank in _waits_for(state, calls, world_size, sources)} - {call}
    if len(waits) < 3 or all(len(awaited) == len(waits) - 1 for awaited in waits.values()):
        return list(states)  # each call waits for all others, or nothing separates them: no graph is needed
    import networkx as nx  # takes 0.4 s to load

    graph = nx.DiGraph((call, other) for call, awaited in waits.items() for other in awaited)
    graph.add_nodes_from(waits)
    cycles = [component for component in nx.attracting_components(graph) if len(component) > 1]
    tied = set[object]().union(*cycles)
    return [state for state in states if calls[state.rank] in tied] or list(states)


def _call(state: RankState, world_size: int, sources: ScriptFiles) -> object:
    """Return a key that ranks in the same call share; each send or receive has its own."""
    if state.collective in POINT_TO_POINT:
        return state.rank
    return state.collective, group_of(state, world_size, sources)


def _waits_for(state: RankState, calls: Mapping[int, object], world_size: int, sources: ScriptFiles) -> set[int]:
    """Return the ranks that this one waits for."""
    if state.collective in POINT_TO_POINT:
        peer = peer_of(state, world_size, sources)
        return {peer} & calls.keys() if peer is not None else set()
    members = members_of(state, world_size, sources)
    return {rank for rank in (calls if members is None else members & calls.keys()) if calls[rank] != calls[state.rank]}


def _argument(
    state: RankState, sources: ScriptFiles, keywords: Sequence[str], positions: Mapping[str, int]
) -> tuple[ast.expr, FrameScope] | None:
    """Return the argument of the user's collective call for one of the keywords, with the scope to evaluate it in."""
    if not state.frames or not state.collective or state.via:
        return None
    frame = state.frames[-1]
    source: LineQueries = sources[frame.path]
    call = source.collective_call(frame.line, state.collective)
    return (
        _passed_argument(call, state.collective, sources.scopes(state.frames)[-1], keywords, positions)
        if call
        else None
    )


def _passed_argument(
    call: ast.Call, collective: str, scope: FrameScope, keywords: Sequence[str], positions: Mapping[str, int]
) -> tuple[ast.expr, FrameScope] | None:
    """Return the argument that a call passes for one of the keywords, with the scope to evaluate it in."""
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


def _resolve(node: ast.expr, scope: FrameScope, who: RankContext, depth: int) -> tuple[ast.expr, FrameScope] | None:
    """Follow names, conditions, lists, dictionaries and helpers to the expression they stand for, if possible."""
    found = _last_step(node, scope, who, depth)
    while found and depth and (known := _definition(*found)):
        depth -= 1
        found = _last_step(*known, who, depth)
    return found


def _definition(node: ast.expr, scope: FrameScope) -> tuple[ast.expr, FrameScope] | None:
    """Return what a name, an attribute of ``self`` or a call of a function of the script refers to, or None."""
    if isinstance(node, ast.Call) and called_function_name(node) == "new_group":
        return None
    return scope.definition(node)


def _last_step(node: ast.expr, scope: FrameScope, who: RankContext, depth: int) -> tuple[ast.expr, FrameScope] | None:
    """Choose between the parts of an expression for one rank; return a name or a call, which is not followed.

    Return None if the choice is not known.
    """
    if depth == 0:
        return None

    def chosen(inner: ast.expr) -> tuple[ast.expr, FrameScope] | None:
        return _last_step(inner, scope, who, depth - 1)

    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            value = scope.condition(test, who)
            return None if value is None else chosen(body if value else orelse)
        case ast.BoolOp(op=ast.Or(), values=[first, *rest]):
            found = _resolve(first, scope, who, depth - 1)
            if found and isinstance(found[0], ast.Constant) and not found[0].value:
                return chosen(rest[0] if len(rest) == 1 else ast.BoolOp(op=ast.Or(), values=rest))
            return chosen(first) if found else None
        case ast.Subscript(value=container, slice=index):
            held = _resolve(container, scope, who, depth - 1)
            return _item(held, scope.integer(index, who), who, depth) or (node, scope)
        case ast.Call(func=ast.Attribute(value=container, attr="get"), args=[index, *default]):
            held, at = _resolve(container, scope, who, depth - 1), scope.integer(index, who)
            if held and isinstance(held[0], ast.Dict) and at is not None:
                return _item(held, at, who, depth) or (default[0] if default else ast.Constant(value=None), scope)
    return node, scope


def _item(
    container: tuple[ast.expr, FrameScope] | None, at: int | None, who: RankContext, depth: int
) -> tuple[ast.expr, FrameScope] | None:
    """Return one item of a list or dictionary display."""
    if container is None or at is None:
        return None
    held, scope = container
    if isinstance(held, ast.Dict):
        for key, value in zip(held.keys, held.values, strict=True):
            if key and scope.integer(key, who) == at:
                return _last_step(value, scope, who, depth - 1)
        return None
    items = getattr(held, "elts", [])
    return _last_step(items[at], scope, who, depth - 1) if -len(items) <= at < len(items) else None


def _resolved_text(node: ast.expr, scope: FrameScope, who: RankContext, depth: int) -> str:
    """Return the expression as text, with the rank filled in as an index.

    A group that a call makes, ``new_group(…)`` or ``get_group(…)``, is identified by the last name it is bound to.
    """
    found = _last_step(node, scope, who, depth) or (node, scope)
    while depth and (known := _definition(*found)):
        depth -= 1
        behind = _last_step(*known, who, depth)
        if behind is None or (isinstance(behind[0], ast.Call) and _definition(*behind) is None):
            found = known if isinstance(known[0], ast.Subscript) else found
            break
        found = behind
    last, where = found
    if isinstance(last, ast.Subscript) and depth and (at := where.integer(last.slice, who)) is not None:
        return f"{_resolved_text(last.value, where, who, depth - 1)}[{at}]"
    return ast.unparse(last)


def _rank_context(state: RankState, world_size: int) -> RankContext:
    return RankContext(state.rank, state.row.local_rank, world_size)
