"""Why two ranks stand at different places: the condition on the rank that parted them, or a loop one of them left."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...training_script.control_flow import Guard, break_conditions, decorator_conditions, early_exit_conditions
from ...training_script.frame import StackFrame
from ...training_script.line_queries import Loop, ScriptFiles
from ...training_script.loop_bounds import loop_bound_conditions
from ...training_script.rank_conditions import RankContext, depends_on_rank, evaluate_condition
from ..rank_activity.rank_state import RankState


class Branch(NamedTuple):
    """The condition at ``where`` (path:line) that parted the ranks. ``taken_by`` are those it sent its own way: into
    the block, or out of the function or loop. ``sure``: read for each rank, it parts exactly these. ``both_sides``: the
    others are in its other block. ``how``: by what it left, where it did ("raise" for an error)."""

    where: str
    taken_by: list[int]
    sure: bool
    both_sides: bool = False
    how: str = ""


def first_divergence(one: Sequence[StackFrame], other: Sequence[StackFrame]) -> int:
    """Where two stacks (outermost first) part: the index of the first frame that differs."""
    index = 0
    while index < min(len(one), len(other)) and one[index] == other[index]:
        index += 1
    return index


def deciding_condition(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """The rank test that has ``ones`` where they are and ``others`` where they are, the surest first.

    The frames of both are walked from where they part inwards: an enclosing condition, one before the line that leaves
    the function, or one that leaves the loop in which the others still are.
    """
    found = _branches(ones, others, world_size, sources)
    if not found:
        return None
    best = next((branch for branch in found if branch.sure), found[0])
    return best._replace(both_sides=_has_both_sides(best, found))


def diverging_branch(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """The rank test that has ``ones`` in one of its blocks and ``others`` in the other."""
    found = _branches(ones, others, world_size, sources)
    return next((branch for branch in found if branch.sure and _has_both_sides(branch, found)), None)


def _has_both_sides(one: Branch, found: Sequence[Branch]) -> bool:
    return any(other.where == one.where and other.taken_by != one.taken_by for other in found)


def _branches(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> list[Branch]:
    """Every rank test that may have parted them."""
    frames, other_frames = ones[0].frames, others[0].frames
    start = first_divergence(frames, other_frames)
    found = [
        branch
        for mine, theirs, stack, first in (
            (ones, others, frames, start),
            (others, ones, other_frames, start),
        )
        for path, guard in _guards_from(stack, first, sources)
        if (branch := _parts(guard, path, mine, theirs, world_size))
    ]
    found += _loop_exits(ones, others, start, world_size, sources)
    found += _loop_exits(others, ones, start, world_size, sources)
    if not found:
        found += _made_by_rank(ones, others, start, world_size, sources)
        found += _made_by_rank(others, ones, start, world_size, sources)
    return found


def exited_loop(gone: RankState, inside: RankState, sources: ScriptFiles) -> tuple[str, str | None] | None:
    """``path:line`` of the loop that ``inside`` is still in and that ``gone`` has left behind, or None; and of the only
    condition that can have ended it, where it did not just run out."""
    start = first_divergence(gone.frames, inside.frames)
    if start >= min(len(gone.frames), len(inside.frames)):
        return None
    after, within = gone.frames[start], inside.frames[start]
    if (after.path, after.function) != (within.path, within.function):
        return None
    source = sources[within.path]
    if source.function_at(after.line) is not source.function_at(within.line):
        return None
    loops = source.loops(within.line)
    for index, loop in enumerate(loops):
        if after.line > (loop.end_lineno or loop.lineno):
            return _ended(within.path, loop)
        if after.line < loop.lineno and any(outer.lineno < after.line for outer in loops[index + 1 :]):
            return _ended(within.path, loop)  # it is in the next round of a loop around this one
    around = any(loop.lineno < after.line for loop in loops)
    if after.line == within.line or (after.line < within.line and not around):
        return None
    for frame in inside.frames[start + 1 :]:  # past the call in which the other still is
        if inner := sources[frame.path].loops(frame.line):
            return _ended(frame.path, inner[-1])
    return None


def rank_dependent_bound(
    gone: Sequence[RankState], inside: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """The rank test that gives ``gone`` another number of rounds of the loop in which ``inside`` still are."""
    frames = inside[0].frames
    start = first_divergence(gone[0].frames, frames)
    paths = {id(sources[path].module): path for path in sources.paths}
    for frame, scope in list(zip(frames, sources.scopes(frames), strict=True))[start:]:
        for loop in sources[frame.path].loops(frame.line):
            for choice, held in loop_bound_conditions(loop, scope):
                path = paths.get(id(held.module), frame.path)
                for needs in (True, False):
                    guard = Guard(choice.test.lineno, choice.test, needs, False, held)
                    branch = _parts(guard, path, gone, inside, world_size)
                    if branch and branch.sure:
                        return branch
    return None


def _ended(path: str, loop: Loop) -> tuple[str, str | None]:
    where = f"{path}:{loop.lineno}"
    runs_out = isinstance(loop, (ast.For, ast.AsyncFor)) and not _counts(loop.iter)
    if runs_out or not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        return where, None
    ends = break_conditions(loop)
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
        ends.append(loop.lineno)
    return where, f"{path}:{ends[0]}" if len(ends) == 1 else None


def _counts(iterated: ast.expr) -> bool:
    """Whether a loop goes over plain numbers: it takes as many rounds on every rank unless something ends it."""
    match iterated:
        case ast.Call(func=ast.Name(id="range" | "count") | ast.Attribute(attr="count")):
            return not any(isinstance(inner, ast.Call) for arg in iterated.args for inner in ast.walk(arg))
        case ast.Call(func=ast.Name(id="tqdm" | "trange" | "enumerate"), args=[inner, *_]):
            return _counts(inner)
    return False


def skipping_condition(gone: RankState, inside: RankState, sources: ScriptFiles) -> tuple[str, bool] | None:
    """``path:line`` of what lets ``gone`` skip the place where ``inside`` is: a handler that catches an error (True),
    or the only condition that cuts a round of their loop short (False)."""
    start = first_divergence(gone.frames, inside.frames)
    for frame in inside.frames[start:]:
        source = sources[frame.path]
        beyond = {f.line for f in gone.frames if f.path == frame.path}
        for handler in source.handlers(frame.line):
            if not any(handler.lineno <= line <= (handler.end_lineno or 0) for line in beyond):
                return f"{frame.path}:{handler.lineno}", True
    if start >= min(len(gone.frames), len(inside.frames)):
        return None
    frame = inside.frames[start]
    source = sources[frame.path]
    scope = sources.scopes(inside.frames[: start + 1])[-1]
    for loop in source.loops(frame.line):
        before = [
            guard for guard in early_exit_conditions(loop, scope) if guard.line < frame.line and guard.how == "continue"
        ]
        if len({guard.line for guard in before}) == 1 and not depends_on_rank(before[0].test, scope):
            return f"{frame.path}:{before[0].line}", False
    return None


def early_exits(inside: RankState, sources: ScriptFiles) -> list[str]:
    """``path:line`` of the conditions before the place where ``inside`` stands that leave its functions or the process
    without an error, and that test no rank themselves, but data (which the rank may have chosen)."""
    return [
        f"{path}:{guard.line}"
        for path, guard in _guards_from(inside.frames, 0, sources)
        if guard.exits and guard.how in ("leave", "exit") and not depends_on_rank(guard.test, guard.scope, 1)
    ]


def _guards_from(stack: Sequence[StackFrame], start: int, sources: ScriptFiles) -> Iterable[tuple[str, Guard]]:
    """The guards of each frame from ``start`` inwards, the innermost frame's first."""
    scopes = sources.scopes(stack)
    for index in range(len(stack) - 1, start - 1, -1):
        frame, scope = stack[index], scopes[index]
        for guard in sources[frame.path].guards(frame.line, scope):
            yield frame.path, guard
        if index > start:
            for guard in decorator_conditions(scope):
                yield frame.path, guard


def _parts(
    guard: Guard, path: str, inside: Sequence[RankState], outside: Sequence[RankState], world_size: int
) -> Branch | None:
    """The branch, where the guard lets ``inside`` through and not ``outside``, as far as it can be told."""
    if not depends_on_rank(guard.test, guard.scope):
        return None
    within = [evaluate_condition(guard.test, _who(stand, world_size), guard.scope) for stand in inside]
    without = [evaluate_condition(guard.test, _who(stand, world_size), guard.scope) for stand in outside]
    if any(value == (not guard.needs) for value in within) or any(value == guard.needs for value in without):
        return None
    taken_by = [stand.rank for stand in (outside if guard.exits else inside)]
    sure = None not in within or None not in without
    return Branch(f"{path}:{guard.line}", taken_by, sure, how=guard.how)


def _made_by_rank(
    inside: Sequence[RankState], outside: Sequence[RankState], start: int, world_size: int, sources: ScriptFiles
) -> list[Branch]:
    """Rank tests under which what ``inside`` stand in was made or handed on: ``hooks.append(Summary())``."""
    found: list[Branch] = []
    for frame in inside[0].frames[start + 1 :]:
        names = sources[frame.path].names_around(frame.line)
        for path in sources.paths:
            source = sources[path]
            for line in source.mentions(names):
                for guard in source.guards(line, source.scope(line, "")):
                    branch = _parts(guard, path, inside, outside, world_size)
                    if branch and branch.sure:
                        found.append(branch)
    return found


def _loop_exits(
    gone: Sequence[RankState], staying: Sequence[RankState], start: int, world_size: int, sources: ScriptFiles
) -> list[Branch]:
    """Rank tests by which ``gone`` may have left (or cut short) a loop in which ``staying`` stand."""
    frames = staying[0].frames
    scopes = sources.scopes(frames)
    found: list[Branch] = []
    for frame, scope in list(zip(frames, scopes, strict=True))[start:]:
        for loop in sources[frame.path].loops(frame.line):
            for guard in early_exit_conditions(loop, scope):
                branch = _parts(guard, frame.path, gone, staying, world_size)
                if branch:
                    found.append(branch._replace(taken_by=[stand.rank for stand in gone]))
    return found


def _who(stand: RankState, world_size: int) -> RankContext:
    return RankContext(stand.rank, stand.row.local_rank, world_size)
