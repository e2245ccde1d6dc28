"""A rank that an error led out of a ``try`` in which other ranks still are, and that is blocked after it."""

from typing import NamedTuple

import msgspec

from ...training_script.try_blocks import LeftTry, left_try
from .. import phrases
from ..printed_errors import PrintedError, printed_error
from ..rank_activity.rank_state import RankState
from ..types import Verdict
from .collective_mismatch import COMPARED_PLACES, different_collectives
from .context import JobContext, groups_by, make_verdict, rank_numbers, waiting_sentence
from .divergence import first_divergence

CONFIDENCE = 0.9
UNPRINTED = 0.85  # in a handler, with an error that the rank has not printed


class FailedRanks(NamedTuple):
    """Ranks at one place after an error, and the ranks that are still in the ``try``; ``path`` of the statement."""

    ranks: list[RankState]
    inside: list[RankState]
    path: str
    left: LeftTry


def blocked_after_error(context: JobContext) -> Verdict | None:
    """A rank is in an ``except`` block, or with a printed error in a ``finally`` block, and others wait in the body."""
    failed = _failed_ranks(context)
    if failed is None:
        return None
    error = printed_error(context.observed, failed.ranks[0].rank)
    if failed.left.block == "finally" and error is None:
        return _with_possible_error(context)
    text = f"{_error_sentence(failed, error)} {waiting_sentence(failed.inside)}."
    works_on = any(state.has_progressed for state in failed.ranks)
    return make_verdict(
        "progressing" if works_on else "hung",
        text,
        CONFIDENCE if error else UNPRINTED,
        ["job.rank-after-error"],
        cause="script-error",
        culprits=failed.ranks,
        waiting=failed.inside,
    )


def _with_possible_error(context: JobContext) -> Verdict | None:
    """Return the verdict on ranks that have left a loop, which an error may have ended: it is not printed yet."""
    verdict = None if context.progressing else different_collectives(context)
    if verdict is None or "job.loop-ended-early" not in verdict.findings:
        return None
    text = (
        f"{verdict.why} An error may have led to the `finally` block too: Python prints it after the block has ended."
    )
    return msgspec.structs.replace(verdict, why=text)


def _failed_ranks(context: JobContext) -> FailedRanks | None:
    groups = groups_by([state for state in context.alive if state.frames], lambda state: tuple(state.frames))
    waiting = [group for group in groups if group[0].is_waiting and not group[0].is_exiting][:COMPARED_PLACES]
    for ranks in groups[::-1][:COMPARED_PLACES]:
        for inside in waiting:
            if inside is ranks:
                continue
            at = first_divergence(ranks[0].frames, inside[0].frames)
            if at >= min(len(ranks[0].frames), len(inside[0].frames)):
                continue
            after, within = ranks[0].frames[at], inside[0].frames[at]
            if (after.path, after.function) != (within.path, within.function):
                continue
            left = left_try(context.sources[after.path], after.line, within.line)
            if left and not left.retries:
                return FailedRanks(ranks, inside, after.path, left)
    return None


def _error_sentence(failed: FailedRanks, error: PrintedError | None) -> str:
    first, left = failed.ranks[0], failed.left
    numbers = rank_numbers(failed.ranks)
    wait = "waits" if len(numbers) == 1 else "wait"
    raised = f" (raised at {phrases.short_place(error.where)})" if error and error.where else ""
    quoted = f": {error.exception}{f': {error.message}' if error.message else ''}" if error else ""
    block = phrases.short_place(f"{failed.path}:{left.line}")
    if left.block == "finally" and error:
        named = f"{error.exception}{f' ({phrases.short_place(error.where)})' if error.where else ''}"
        message = f" The error: {error.message}." if error.message else ""
        place = phrases.place_text(first) if first.collective else f"at {phrases.short_place(first.row.where)}"
        where = f"in {place}" if first.collective else place
        return f"{phrases.ranks_phrase(numbers)} raised {named} and {wait} in the `finally` block, {where}.{message}"
    who = phrases.ranks_phrase(numbers, "are")
    doing = f", where {'it' if len(numbers) == 1 else 'they'} {wait} in {phrases.place_text(first)}"
    what = doing if first.collective else ""
    return f"{who} in the `except` block at {block} after an error{what}{quoted}{raised}."
