"""Find regular expressions whose search may take time that doubles with each letter of a line.

Python's engine tries every way to divide a text between a repeat and a repeat inside it. That is exponential where the
inner one can take what another round of the outer one could: ``(a+)+``, ``(a|a)*``, ``(\\w+\\s*)+``.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants
    from re import _parser as sre_parse
else:
    import sre_constants
    import sre_parse

REPEATS = (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT)
MANY = 20  # repeats of at most so many rounds are cheap


def has_nested_repeat(pattern: str) -> bool:
    """Return whether a repeat holds another one, with nothing around it that every round must match.

    Raises:
        re.error: The pattern is invalid.
    """
    return any(_is_ambiguous(body) for body in _repeated(sre_parse.parse(pattern).data))


def _repeated(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the bodies of all repeats without a small limit, outer ones first."""
    for operation, argument in items:
        if operation in REPEATS and argument[1] > MANY:
            yield list(argument[2])
        for part in _parts(operation, argument):
            yield from _repeated(part)


def _parts(operation: Any, argument: Any) -> Iterator[Sequence[Any]]:
    if operation in REPEATS:
        yield list(argument[2])
    elif operation is sre_constants.SUBPATTERN:
        yield list(argument[-1])
    elif operation is sre_constants.BRANCH:
        yield from (list(part) for part in argument[1])


def _is_ambiguous(body: Sequence[Any]) -> bool:
    """Return whether one item of a repeated sequence is a repeat, and all others may match nothing."""
    for at, item in enumerate(body):
        if not all(_may_be_empty(other) for other in (*body[:at], *body[at + 1 :])):
            continue
        inside = () if item[0] in REPEATS else _parts(*item)
        if _is_repeat(item) or any(map(_is_ambiguous, inside)):
            return True
    return False


def _is_repeat(item: Any) -> bool:
    return item[0] in REPEATS and item[1][1] > MANY


def _may_be_empty(item: Any) -> bool:
    operation, argument = item
    if operation in REPEATS:
        return argument[0] == 0 or all(map(_may_be_empty, argument[2]))
    if operation is sre_constants.SUBPATTERN:
        return all(map(_may_be_empty, argument[-1]))
    if operation is sre_constants.BRANCH:
        return any(all(map(_may_be_empty, part)) for part in argument[1])
    return operation in (sre_constants.AT, sre_constants.ASSERT, sre_constants.ASSERT_NOT)
