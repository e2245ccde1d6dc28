"""Find a collective that only some ranks call, where all of them wait at one place.

They are at the same line then, but in different calls: since that collective the ones are a call behind the others.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...training_script.collectives import GROUP_PLACE
from ...training_script.frame_scope import FrameScope, RankContext
from ...training_script.line_queries import LineQueries, collectives_in
from ...training_script.syntax import call_argument, called_function_name
from ..rank_activity.rank_state import RankState
from .context import JobContext
from .divergence import Branch

COUNTED = GROUP_PLACE.keys() - {"new_group"}


class UnequalCall(NamedTuple):
    """A collective under a condition on the rank, and the ranks that call it."""

    branch: Branch
    collective: str
    callers: list[RankState]


class _Choice(NamedTuple):
    """A condition on the rank, and the collectives that each rank calls in its blocks."""

    line: int
    calls: dict[int, list[str]]


def unequal_call(context: JobContext) -> UnequalCall | None:
    """Return the first collective that only some ranks call in a function in which all ranks are, or None."""
    states = context.waiting
    frames = states[0].frames
    if any(state.frames != frames for state in states):
        return None
    for frame, scope in zip(frames, context.sources.scopes(frames), strict=True):
        source = context.sources[frame.path]
        choices = list(_choices(source, frame.line, scope, states, context.world_size))
        by_rank = {state.rank: sorted(name for each in choices for name in each.calls[state.rank]) for state in states}
        most = max(by_rank.values(), key=len, default=[])
        callers = [state for state in states if by_rank[state.rank] == most]
        if len(callers) == len(states):
            continue
        for choice in choices:
            others = next(choice.calls[state.rank] for state in states if state not in callers)
            extra = [name for name in choice.calls[callers[0].rank] if name not in others]
            if extra:
                branch = Branch(f"{frame.path}:{choice.line}", [state.rank for state in callers], False)
                return UnequalCall(branch, extra[0], callers)
    return None


def _choices(
    source: LineQueries, line: int, scope: FrameScope, states: Sequence[RankState], world_size: int
) -> Iterator[_Choice]:
    function = source.function_at(line)
    inner: set[ast.AST] = set()  # conditions inside of one that is counted as a whole
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or node in inner or source.function_at(node.lineno) is not function:
            continue
        test = _rank_part(node.test, scope)
        if test is None or not _is_of_all_ranks(node):
            continue
        inner |= {*ast.walk(node)}
        taken = {
            state.rank: scope.condition(test, RankContext(state.rank, state.row.local_rank, world_size))
            for state in states
        }
        if None not in taken.values():
            blocks = {True: _counted(node.body, source), False: _counted(node.orelse, source)}
            yield _Choice(node.lineno, {rank: blocks[bool(value)] for rank, value in taken.items()})


def _rank_part(test: ast.expr, scope: FrameScope) -> ast.expr | None:
    """Return the part of a condition that depends on the rank, as the other terms hold at some time, or None."""
    if not scope.depends_on_rank(test):
        return None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        own = [term for term in test.values if scope.depends_on_rank(term)]
        return own[0] if len(own) == 1 else ast.BoolOp(op=ast.And(), values=own)
    return test


def _is_of_all_ranks(condition: ast.If) -> bool:
    """Return whether no collective under a condition has a group of its own, which only some ranks may have to call."""
    calls = (node for node in ast.walk(condition) if isinstance(node, ast.Call))
    named = ((call, called_function_name(call)) for call in calls)
    return all(call_argument(call, "group", GROUP_PLACE[name]) is None for call, name in named if name in COUNTED)


def _counted(block: Sequence[ast.stmt], source: LineQueries) -> list[str]:
    return [name for name in collectives_in(block, source.module) if name in COUNTED]
