"""Find out why ranks are at different places: a rank test that separates them, or a loop that one of them left."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...training_script.control_flow import Guard, break_conditions, decorator_conditions, early_exit_conditions
from ...training_script.frame import StackFrame
from ...training_script.line_queries import Loop, ParsedFiles
from ...training_script.loop_bounds import loop_bound_conditions
from ...training_script.rank_conditions import RankContext, depends_on_rank, evaluate_condition
from ..rank_activity.rank_state import RankState


class Branch(NamedTuple):
    """The condition at ``where`` (path:line) that separated the ranks.

    ``taken_by`` are the ranks that it led into its block, or out of the function or loop. ``sure``: evaluated for each
    rank, it separates exactly these. ``both_sides``: the others are in its other block. ``how``: the statement by which
    the ranks left, if they did ("raise" for an error).
    """

    where: str
    taken_by: list[int]
    sure: bool
    both_sides: bool = False
    how: str = ""


def first_divergence(one: Sequence[StackFrame], other: Sequence[StackFrame]) -> int:
    """Return the index of the first frame in which two stacks (outermost first) differ."""
    index = 0
    while index < min(len(one), len(other)) and one[index] == other[index]:
        index += 1
    return index


def deciding_condition(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ParsedFiles
) -> Branch | None:
    """Return the rank test that separates ``ones`` from ``others``, preferably a certain one, or None.

    The frames of both are searched from the first difference inwards for an enclosing condition, a condition before the
    line that leaves the function, and one that leaves the loop in which the others still are.
    """
    found = _branches(ones, others, world_size, sources)
    if not found:
        return None
    best = next((branch for branch in found if branch.sure), found[0])
    return best._replace(both_sides=_has_both_sides(best, found))


def diverging_branch(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ParsedFiles
) -> Branch | None:
    """Return the rank test that has ``ones`` in one of its blocks and ``others`` in the other, or None."""
    found = _branches(ones, others, world_size, sources)
    return next((branch for branch in found if branch.sure and _has_both_sides(branch, found)), None)


def _has_both_sides(one: Branch, found: Sequence[Branch]) -> bool:
    return any(other.where == one.where and other.taken_by != one.taken_by for other in found)


def _branches(
    ones: Sequence[RankState], others: Sequence[RankState], world_size: int, sources: ParsedFiles
) -> list[Branch]:
    """Return every rank test that may have separated them."""
    frames, other_frames = ones[0].frames, others[0].frames
    start = first_divergence(frames, other_frames)
    found = [
        branch
        for mine, theirs, stack, first in (
            (ones, others, frames, start),
            (others, ones, other_frames, start),
        )
        for path, guard in _guards_from(stack, first, sources)
        if (branch := _separating_branch(guard, path, mine, theirs, world_size))
    ]
    found += _loop_exits(ones, others, start, world_size, sources)
    found += _loop_exits(others, ones, start, world_size, sources)
    if not found:
        found += _created_by_rank(ones, others, start, world_size, sources)
        found += _created_by_rank(others, ones, start, world_size, sources)
    return found


def exited_loop(exited: RankState, inside: RankState, sources: ParsedFiles) -> tuple[str, str | None] | None:
    """Return the loop that ``exited`` has left and ``inside`` is still in, or None.

    The result is ``path:line`` of the loop, and that of the only condition that can have ended it (None if it may just
    have run out).
    """
    start = first_divergence(exited.frames, inside.frames)
    if start >= min(len(exited.frames), len(inside.frames)):
        return None
    after, within = exited.frames[start], inside.frames[start]
    if (after.path, after.function) != (within.path, within.function):
        return None
    source = sources[within.path]
    if source.function_at(after.line) is not source.function_at(within.line):
        return None
    loops = source.loops(within.line)
    for index, loop in enumerate(loops):
        if after.line > (loop.end_lineno or loop.lineno):
            return _loop_and_end(within.path, loop)
        if after.line < loop.lineno and any(outer.lineno < after.line for outer in loops[index + 1 :]):
            return _loop_and_end(within.path, loop)  # it is in the next iteration of an enclosing loop
    around = any(loop.lineno < after.line for loop in loops)
    if after.line == within.line or (after.line < within.line and not around):
        return None
    for frame in inside.frames[start + 1 :]:  # past the call that the other is still in
        if inner := sources[frame.path].loops(frame.line):
            return _loop_and_end(frame.path, inner[-1])
    return None


def rank_dependent_bound(
    exited: Sequence[RankState], inside: Sequence[RankState], world_size: int, sources: ParsedFiles
) -> Branch | None:
    """Return the rank test that gives ``exited`` another iteration count of the loop ``inside`` is in, or None."""
    frames = inside[0].frames
    start = first_divergence(exited[0].frames, frames)
    paths = {id(sources[path].module): path for path in sources.paths}
    for frame, scope in list(zip(frames, sources.scopes(frames), strict=True))[start:]:
        for loop in sources[frame.path].loops(frame.line):
            for choice, held in loop_bound_conditions(loop, scope):
                path = paths.get(id(held.module), frame.path)
                for needs in (True, False):
                    guard = Guard(choice.test.lineno, choice.test, needs, False, held)
                    branch = _separating_branch(guard, path, exited, inside, world_size)
                    if branch and branch.sure:
                        return branch
    return None


def _loop_and_end(path: str, loop: Loop) -> tuple[str, str | None]:
    where = f"{path}:{loop.lineno}"
    runs_out = isinstance(loop, (ast.For, ast.AsyncFor)) and not _has_fixed_length(loop.iter)
    if runs_out or not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        return where, None
    ends = break_conditions(loop)
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
        ends.append(loop.lineno)
    return where, f"{path}:{ends[0]}" if len(ends) == 1 else None


def _has_fixed_length(iterated: ast.expr) -> bool:
    """Return whether a loop counts plain numbers, so that it has the same length on every rank unless it is ended."""
    match iterated:
        case ast.Call(func=ast.Name(id="range" | "count") | ast.Attribute(attr="count")):
            return not any(isinstance(inner, ast.Call) for arg in iterated.args for inner in ast.walk(arg))
        case ast.Call(func=ast.Name(id="tqdm" | "trange" | "enumerate"), args=[inner, *_]):
            return _has_fixed_length(inner)
    return False


def skipping_condition(exited: RankState, inside: RankState, sources: ParsedFiles) -> tuple[str, bool] | None:
    """Find what lets ``exited`` skip the place where ``inside`` is.

    Return ``path:line`` of an exception handler (and True), or of the only condition that cuts an iteration of their
    loop short (and False).
    """
    start = first_divergence(exited.frames, inside.frames)
    for frame in inside.frames[start:]:
        source = sources[frame.path]
        beyond = {f.line for f in exited.frames if f.path == frame.path}
        for handler in source.handlers(frame.line):
            if not any(handler.lineno <= line <= (handler.end_lineno or 0) for line in beyond):
                return f"{frame.path}:{handler.lineno}", True
    if start >= min(len(exited.frames), len(inside.frames)):
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


def early_exits(inside: RankState, sources: ParsedFiles) -> list[str]:
    """Return ``path:line`` of the conditions that end the functions or the process of ``inside`` without an error.

    Only conditions before the place of ``inside`` that do not test the rank themselves, but data (which may depend on
    the rank).
    """
    return [
        f"{path}:{guard.line}"
        for path, guard in _guards_from(inside.frames, 0, sources)
        if guard.exits and guard.how in ("leave", "exit") and not depends_on_rank(guard.test, guard.scope, 1)
    ]


def _guards_from(stack: Sequence[StackFrame], start: int, sources: ParsedFiles) -> Iterable[tuple[str, Guard]]:
    """Yield the guards of each frame from ``start`` inwards, those of the innermost frame first."""
    scopes = sources.scopes(stack)
    for index in range(len(stack) - 1, start - 1, -1):
        frame, scope = stack[index], scopes[index]
        for guard in sources[frame.path].guards(frame.line, scope):
            yield frame.path, guard
        if index > start:
            for guard in decorator_conditions(scope):
                yield frame.path, guard


def _separating_branch(
    guard: Guard, path: str, inside: Sequence[RankState], outside: Sequence[RankState], world_size: int
) -> Branch | None:
    """Return the branch if the guard lets ``inside`` through and not ``outside``, as far as it can be evaluated."""
    if not depends_on_rank(guard.test, guard.scope):
        return None
    within = [evaluate_condition(guard.test, _rank_context(state, world_size), guard.scope) for state in inside]
    without = [evaluate_condition(guard.test, _rank_context(state, world_size), guard.scope) for state in outside]
    if any(value == (not guard.needs) for value in within) or any(value == guard.needs for value in without):
        return None
    taken_by = [state.rank for state in (outside if guard.exits else inside)]
    sure = None not in within or None not in without
    return Branch(f"{path}:{guard.line}", taken_by, sure, how=guard.how)


def _created_by_rank(
    inside: Sequence[RankState], outside: Sequence[RankState], start: int, world_size: int, sources: ParsedFiles
) -> list[Branch]:
    """Return the rank tests under which an object whose code ``inside`` runs was created or passed on.

    An example is ``hooks.append(Summary())``.
    """
    found: list[Branch] = []
    for frame in inside[0].frames[start + 1 :]:
        names = sources[frame.path].names_around(frame.line)
        for path in sources.paths:
            source = sources[path]
            for line in source.mentions(names):
                for guard in source.guards(line, source.scope(line, "")):
                    branch = _separating_branch(guard, path, inside, outside, world_size)
                    if branch and branch.sure:
                        found.append(branch)
    return found


def _loop_exits(
    exited: Sequence[RankState], inside: Sequence[RankState], start: int, world_size: int, sources: ParsedFiles
) -> list[Branch]:
    """Return the rank tests by which ``exited`` may have left (or cut short) a loop that ``inside`` is in."""
    frames = inside[0].frames
    scopes = sources.scopes(frames)
    found: list[Branch] = []
    for frame, scope in list(zip(frames, scopes, strict=True))[start:]:
        for loop in sources[frame.path].loops(frame.line):
            for guard in early_exit_conditions(loop, scope):
                branch = _separating_branch(guard, frame.path, exited, inside, world_size)
                if branch:
                    found.append(branch._replace(taken_by=[state.rank for state in exited]))
    return found


def _rank_context(state: RankState, world_size: int) -> RankContext:
    return RankContext(state.rank, state.row.local_rank, world_size)
