"""What people hand in, as a part of their case: logs are understood, short texts are listened to as well."""

from collections.abc import Sequence

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import ONE_PROCESS, Evidence, shows_unrelated
from ..logs.analyse import Progress, analyse_logs
from ..logs.free_text import match_free_text, mentions_multiple_ranks
from ..logs.read import LogInput
from ..logs.types import LogAnalysis, Timeline
from .case import Case
from .draft_entry import MOST_LINES, error_lines

WORDS_CHARACTERS = 400  # of a description that a session keeps


class IntakeResult(msgspec.Struct, frozen=True):
    """What a reading brought: the evidence, the timeline of the ranks where there are several, and whether any of it is
    about distributed training. By origin: the short ``texts``, whole, and the ``errors`` as (where, line)."""

    evidence: list[Evidence]
    timeline: Timeline | None
    in_scope: bool
    texts: dict[str, str]
    errors: dict[str, list[tuple[str, str]]]


def read_sources(sources: Sequence[LogInput], knowledge: Knowledge, progress: Progress | None = None) -> IntakeResult:
    """Understand the sources, and listen to the short ones.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        CouldNotLook: A pipe did not come to its end.
    """
    understood = analyse_logs(sources, knowledge, progress)
    heard = [item for origin, text in understood.prose for item in match_free_text(text, origin, knowledge)]
    several = any(mentions_multiple_ranks(text, knowledge) for _, text in understood.prose)
    if understood.prose and not several:
        what = "nothing in it speaks of several ranks, GPUs or machines"
        heard.append(Evidence(ONE_PROCESS, "description", what, where=understood.prose[0][0]))
    return IntakeResult(
        [*understood.evidence, *heard],
        understood.timeline,
        several or (understood.in_scope and not shows_unrelated(knowledge, understood.evidence)),
        dict(understood.prose),
        {source.origin: _errors(source.origin, understood) for source in sources},
    )


def add_to_case(case: Case, sources: Sequence[LogInput], progress: Progress | None = None) -> IntakeResult:
    """As ``read``, and into the case; its session keeps descriptions, error lines (for ``kb new``) and the timeline.

    Raises:
        UserError, CouldNotLook: As ``read``.
    """
    found = read_sources(sources, case.knowledge, progress)
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


def _errors(origin: str, understood: LogAnalysis) -> list[tuple[str, str]]:
    """The error lines of a short text; the exceptions of a long one."""
    short = dict(understood.prose).get(origin)
    if short is not None:
        return error_lines(short, origin)
    return [found for found in understood.errors if found[0].startswith(f"{origin}:")][:MOST_LINES]


def _words(text: str, errors: list[tuple[str, str]]) -> str:
    """A description, as it stands; nothing of what is a log."""
    return text.strip() if len(text) <= WORDS_CHARACTERS and not errors else ""
