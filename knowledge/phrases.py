"""Named groups of phrases (``phrases.yaml``): ``$name`` in a term means any phrase of the group."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from .schema import Cause, Question

GROUP = re.compile(r"\$([\w-]+)")

Groups = Mapping[str, Sequence[str]]


def unknown_group(terms: Iterable[str], groups: Groups) -> str:
    """Return the first group in the terms that is not defined, or ""."""
    return next((name for term in terms for name in GROUP.findall(term) if name not in groups), "")


def expand_cause(cause: Cause, groups: Groups) -> Cause:
    """Return the cause with the phrases of the groups in its clues."""
    clues = [msgspec.structs.replace(clue, all=list(_expanded(clue.all, groups))) for clue in cause.clues]
    return msgspec.structs.replace(cause, clues=clues)


def expand_question(question: Question, groups: Groups) -> Question:
    """Return the question with the phrases of the groups in what answers it."""
    heard = {answer: [list(_expanded(terms, groups)) for terms in ways] for answer, ways in question.heard.items()}
    return msgspec.structs.replace(question, heard=heard)


def _expanded(terms: Iterable[str], groups: Groups) -> Iterator[str]:
    for term in terms:
        yield "|".join(phrase for part in term.split("|") for phrase in _phrases(part, groups))


def _phrases(part: str, groups: Groups) -> Iterator[str]:
    """Yield a phrase with each phrase of the groups that it names: ``$a of $b`` has all pairs."""
    found = GROUP.search(part)
    if not found:
        yield part
        return
    for phrase in groups[found[1]]:
        yield from _phrases(part[: found.start()] + phrase + part[found.end() :], groups)
