"""Why two ranks are at different places: a condition on the rank, or a loop that one of them has left."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...training_script.control_flow import Guard, break_conditions, decorator_conditions, early_exit_conditions
from ...training_script.equal_rounds import has_equal_rounds
from ...training_script.frame import StackFrame
from ...training_script.frame_scope import RankContext
from ...training_script.line_queries import Loop, ScriptFiles
from ...training_script.loop_bounds import iterates_over_data, loop_bound_conditions, runs_alike_on_all_ranks
from ..rank_activity.rank_state import RankState


class Branch(NamedTuple):
    """The condition at ``where`` (path:line) that separated the ranks.

    ``taken_by`` are the ranks that took the branch: into the block, or out of the function or loop. ``sure``: evaluated
    for each rank, it separates exactly these. ``both_sides``: the others are in its other block. ``how``: how an early
    exit leaves ("raise" for an error).
    """

    where: str
    taken_by: list[int]
    sure: bool
    both_sides: bool = False
    how: str = ""


def first_divergence(one: Sequence[StackFrame], other: Sequence[StackFrame]) -> int:
    """Return the index of the first frame that differs between two stacks (outermost first)."""
    index = 0
    while index < min(len(one), len(other)) and one[index] == other[index]:
        index += 1
    return index


def deciding_condition(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """Return the condition that separates ``ones`` from ``others``, or None; a sure one is preferred.

    The frames of both are walked inwards from the first difference: an enclosing condition, an earlier one that leaves
    the function, or one that leaves the loop in which the others still are.
    """
    inner = (ones[0], others[0])
    found = [
        branch
        for branch in _branches(ones, others, world_size, sources)
        if branch.sure or not any(data_ends(branch.where, state, sources) for state in inner)
    ]
    if not found:
        return None
    best = next((branch for branch in found if branch.sure), found[0])
    return best._replace(both_sides=_has_both_sides(best, found))


def diverging_branch(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """Return the condition that has ``ones`` in one of its blocks and ``others`` in the other, or None."""
    found = _branches(ones, others, world_size, sources)
    return next((branch for branch in found if branch.sure and _has_both_sides(branch, found)), None)


def _has_both_sides(one: Branch, found: Sequence[Branch]) -> bool:
    return any(other.where == one.where and other.taken_by != one.taken_by for other in found)


def _branches(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> list[Branch]:
    """Return every condition on the rank that may have separated them."""
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
    """Return ``path:line`` of the loop that ``inside`` is still in and ``gone`` has left, or None.

    The second value is ``path:line`` of the only condition that can have ended it early, or None.
    """
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
            left_too = any(after.line > (outer.end_lineno or outer.lineno) for outer in loops[index + 1 :])
            if left_too and not break_conditions(loop) and has_equal_rounds(source, loop):
                continue
            return _ended(within.path, loop)
        if after.line < loop.lineno and any(outer.lineno < after.line for outer in loops[index + 1 :]):
            return _ended(within.path, loop)  # it is in the next iteration of an outer loop
    around = any(loop.lineno < after.line for loop in loops)
    if after.line == within.line or (after.line < within.line and not around):
        return None
    for frame in inside.frames[start + 1 :]:  # past the call that the other is still in
        if inner := sources[frame.path].loops(frame.line):
            return _ended(frame.path, inner[-1])
    return None


def rank_dependent_bound(
    gone: Sequence[RankState], inside: Sequence[RankState], world_size: int, sources: ScriptFiles
) -> Branch | None:
    """Return the condition by which ``gone`` has fewer iterations of the loop that ``inside`` is in, or None."""
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


def is_data_loop(place: str, inside: RankState, sources: ScriptFiles) -> bool:
    """Return whether data ends the loop at ``path:line`` around ``inside``, rather than a number or a condition.

    A collective of DDP or FSDP belongs to a training step, whatever the loop counts.
    """
    return bool(inside.via) or data_ends(place, inside, sources) is not False


def data_ends(place: str, inside: RankState, sources: ScriptFiles) -> bool | None:
    """Return whether data ends the loop at ``path:line`` around ``inside``; None if no loop around it is there."""
    for frame, scope in zip(inside.frames, sources.scopes(inside.frames), strict=True):
        for loop in sources[frame.path].loops(frame.line):
            if f"{frame.path}:{loop.lineno}" == place:
                return iterates_over_data(loop, scope)
    return None


def is_equally_long(place: str, inside: RankState, sources: ScriptFiles) -> bool:
    """Return whether the loop at ``path:line`` around ``inside`` surely has as many rounds on every rank."""
    return any(
        f"{frame.path}:{loop.lineno}" == place
        and not break_conditions(loop)
        and has_equal_rounds(sources[frame.path], loop)
        for frame in inside.frames
        for loop in sources[frame.path].loops(frame.line)
    )


def left_by_error(inside: RankState, sources: ScriptFiles) -> bool:
    """Return whether only an error leads out of the outermost loop around ``inside`` before all ranks have ended it."""
    for frame, scope in zip(inside.frames, sources.scopes(inside.frames), strict=True):
        if loops := sources[frame.path].loops(frame.line):
            return runs_alike_on_all_ranks(loops[-1], scope)
    return False


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
    """Return whether a loop counts plain numbers, so that the number of iterations is the same on every rank."""
    match iterated:
        case ast.Call(func=ast.Name(id="range" | "count") | ast.Attribute(attr="count")):
            return not any(isinstance(inner, ast.Call) for arg in iterated.args for inner in ast.walk(arg))
        case ast.Call(func=ast.Name(id="tqdm" | "trange" | "enumerate"), args=[inner, *_]):
            return _counts(inner)
    return False


def skipping_condition(gone: RankState, inside: RankState, sources: ScriptFiles) -> tuple[str, bool] | None:
    """Return ``path:line`` of what let ``gone`` skip the place where ``inside`` is, or None.

    This is an exception handler (True) or the only condition that cuts an iteration of their loop short (False).
    """
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
        if len({guard.line for guard in before}) == 1 and not scope.depends_on_rank(before[0].test):
            return f"{frame.path}:{before[0].line}", False
    return None


def early_exits(inside: RankState, sources: ScriptFiles) -> list[str]:
    """Return ``path:line`` of earlier conditions that leave the functions of ``inside`` or the process normally.

    Only conditions on data, not on the rank itself (the rank may have chosen the data).
    """
    return [
        f"{path}:{guard.line}"
        for path, guard in _guards_from(inside.frames, 0, sources)
        if guard.exits and guard.how in ("leave", "exit") and not guard.scope.names_rank(guard.test)
    ]


def _guards_from(stack: Sequence[StackFrame], start: int, sources: ScriptFiles) -> Iterable[tuple[str, Guard]]:
    """Yield the guards of each frame from ``start`` inwards, those of the innermost frame first."""
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
    """Return the branch if the guard lets ``inside`` through and not ``outside``, as far as known, else None."""
    if not guard.scope.depends_on_rank(guard.test):
        return None
    within = [guard.scope.condition(guard.test, _context(state, world_size)) for state in inside]
    without = [guard.scope.condition(guard.test, _context(state, world_size)) for state in outside]
    if any(value == (not guard.needs) for value in within) or any(value == guard.needs for value in without):
        return None
    taken_by = [state.rank for state in (outside if guard.exits else inside)]
    sure = None not in within or None not in without
    return Branch(f"{path}:{guard.line}", taken_by, sure, how=guard.how)


def _made_by_rank(
    inside: Sequence[RankState], outside: Sequence[RankState], start: int, world_size: int, sources: ScriptFiles
) -> list[Branch]:
    """Return conditions under which the object that ``inside`` is in was created (``hooks.append(Summary())``)."""
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
    """Return conditions on the rank by which ``gone`` may have left (or cut short) a loop that ``staying`` is in."""
    frames = staying[0].frames
    scopes = sources.scopes(frames)
    found: list[Branch] = []
    for frame, scope in list(zip(frames, scopes, strict=True))[start:]:
        for loop in sources[frame.path].loops(frame.line):
            for guard in early_exit_conditions(loop, scope):
                branch = _parts(guard, frame.path, gone, staying, world_size)
                by_data = not guard.scope.names_rank(guard.test)  # which the rank may have chosen
                if branch and (branch.sure or not by_data):
                    found.append(branch._replace(taken_by=[state.rank for state in gone]))
    return found


def _context(state: RankState, world_size: int) -> RankContext:
    return RankContext(state.rank, state.row.local_rank, world_size)
