"""What people hand in, as a part of their case: logs are understood, short texts are listened to as well."""

from collections.abc import Sequence

import msgspec

from ..knowledge.schema import Knowledge
from .evidence import Evidence
from .graph.rank import ONE_PROCESS, shows_unrelated
from .logs.read import Source
from .logs.types import Timeline, Understood
from .logs.understand import Progress, understand
from .logs.words import hear, speaks_of_several
from .newentry import MOST_LINES, error_lines
from .wizard import Case

WORDS_CHARACTERS = 400  # of a description that a session keeps


class Read(msgspec.Struct, frozen=True):
    """What a reading brought: the evidence, the timeline of the ranks where there are several, and whether any of it is
    about distributed training. By origin: the short ``texts``, whole, and the ``errors`` as (where, line)."""

    evidence: list[Evidence]
    timeline: Timeline | None
    in_scope: bool
    texts: dict[str, str]
    errors: dict[str, list[tuple[str, str]]]


def read(sources: Sequence[Source], knowledge: Knowledge, progress: Progress | None = None) -> Read:
    """Understand the sources, and listen to the short ones.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        CouldNotLook: A pipe did not come to its end.
    """
    understood = understand(sources, knowledge, progress)
    heard = [item for origin, text in understood.prose for item in hear(text, origin, knowledge)]
    several = any(speaks_of_several(text, knowledge) for _, text in understood.prose)
    if understood.prose and not several:
        what = "nothing in it speaks of several ranks, GPUs or machines"
        heard.append(Evidence(ONE_PROCESS, "description", what, where=understood.prose[0][0]))
    return Read(
        [*understood.evidence, *heard],
        understood.timeline,
        several or (understood.in_scope and not shows_unrelated(knowledge, understood.evidence)),
        dict(understood.prose),
        {source.origin: _errors(source.origin, understood) for source in sources},
    )


def read_into(case: Case, sources: Sequence[Source], progress: Progress | None = None) -> Read:
    """As ``read``, and into the case; its session keeps descriptions, error lines (for ``kb new``) and the timeline.

    Raises:
        UserError, CouldNotLook: As ``read``.
    """
    found = read(sources, case.knowledge, progress)
    case.add(found.evidence)
    if case.session:
        rows = [
            {"origin": origin, "words": _words(found.texts.get(origin, ""), errors), "errors": errors}
            for origin, errors in found.errors.items()
        ]
        case.session.append_all("text", rows)
        if found.timeline:
            case.session.append("timeline", **msgspec.to_builtins(found.timeline))
    return found


def _errors(origin: str, understood: Understood) -> list[tuple[str, str]]:
    """The error lines of a short text; the exceptions of a long one."""
    short = dict(understood.prose).get(origin)
    if short is not None:
        return error_lines(short, origin)
    return [found for found in understood.errors if found[0].startswith(f"{origin}:")][:MOST_LINES]


def _words(text: str, errors: list[tuple[str, str]]) -> str:
    """A description, as it stands; nothing of what is a log."""
    return text.strip() if len(text) <= WORDS_CHARACTERS and not errors else ""
