"""Turn logs and free-text descriptions into evidence of a case."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from ...knowledge.schema import Knowledge
from ...knowledge.text_model import built_in_classifier
from ..evidence import (
    ONE_PROCESS,
    OTHER_PROGRAM,
    OTHER_SUBJECT,
    SCRIPT_ERROR,
    Evidence,
    shows_several_ranks,
    shows_unrelated,
)
from ..logs.analyse import Progress, analyse_logs
from ..logs.free_text import match_free_text, mentions_multiple_ranks, quoted_causes
from ..logs.programs import other_program_in
from ..logs.read import LogInput
from ..logs.script_error import script_error_findings
from ..logs.types import LogAnalysis, Timeline
from .case import Case
from .draft_entry import MOST_LINES, error_lines

WORDS_CHARACTERS = 400  # of a description that a session keeps


class IntakeResult(msgspec.Struct, frozen=True):
    """Result of reading logs and texts: the evidence, the timeline of the ranks if there are several, and whether any
    of it is about distributed training. By origin: the complete short ``texts``, and ``errors`` as (where, line)."""

    evidence: list[Evidence]
    timeline: Timeline | None
    in_scope: bool
    texts: dict[str, str]
    errors: dict[str, list[tuple[str, str]]]

    @property
    def logs(self) -> list[str]:
        """The origins of what is no description: the files, and pasted logs."""
        return [
            origin
            for origin, errors in self.errors.items()
            if origin.startswith("/") or not _words(self.texts.get(origin, ""), errors)
        ]


def read_sources(
    sources: Sequence[LogInput], knowledge: Knowledge, progress: Progress | None = None, *, of_job: bool = False
) -> IntakeResult:
    """Analyse the sources; match short ones as descriptions as well.

    ``of_job``: they are known to be the output of a distributed job, even if they do not show it.

    Raises:
        UserError: A source is missing, unreadable or binary, or everything is empty.
        InspectionError: A pipe did not end.
    """
    analysis = analyse_logs(sources, knowledge, progress)
    described = [item for origin, text in analysis.prose for item in match_free_text(text, origin, knowledge)]
    quoted = any(quoted_causes(text, knowledge) for _, text in analysis.prose)
    if analysis.of_other_programs and not (of_job or quoted or _matches_entry_of_team(analysis.evidence, knowledge)):
        what = "programs that train nothing have written it: no line is one of a training job"
        described.append(Evidence(OTHER_PROGRAM, "log", what, where=sources[0].origin))
        evidence = [*analysis.evidence, *described]
        return IntakeResult(evidence, analysis.timeline, False, dict(analysis.prose), _errors(sources, analysis))
    described += _about_other_programs(analysis.prose, knowledge)
    if quoted:
        described = [item for item in described if item.id != OTHER_SUBJECT]
    several = (
        quoted
        or any(mentions_multiple_ranks(text, knowledge) for _, text in analysis.prose)
        or any(shows_several_ranks(item.id, knowledge) for item in analysis.evidence)
    )
    is_of_job = of_job or several
    if analysis.prose and not is_of_job:
        what = "it does not mention several ranks, GPUs or machines"
        described.append(Evidence(ONE_PROCESS, "description", what, where=analysis.prose[0][0]))
    if is_of_job and analysis.timeline and not any(item.id == SCRIPT_ERROR for item in analysis.evidence):
        described += script_error_findings(analysis.timeline, of_job=True)
    return IntakeResult(
        [*analysis.evidence, *described],
        analysis.timeline,
        is_of_job or (analysis.in_scope and not shows_unrelated(knowledge, analysis.evidence)),
        dict(analysis.prose),
        _errors(sources, analysis),
    )


def _about_other_programs(prose: Iterable[tuple[str, str]], knowledge: Knowledge) -> list[Evidence]:
    """Return the evidence of descriptions that name a program that trains nothing, without a word of training."""
    named = [(origin, name) for origin, text in prose if (name := other_program_in(text, knowledge))]
    what = "it names “{}”, and has no word of a training job"
    return [Evidence(OTHER_SUBJECT, "description", what.format(name), where=origin) for origin, name in named]


def _matches_entry_of_team(evidence: Iterable[Evidence], knowledge: Knowledge) -> bool:
    """Return whether a signature of a team's entry was found: it may be that of a launcher of their own."""
    own = knowledge.causes.keys() - built_in_classifier().labels
    return any(item.id.startswith(f"log:{cause}/") for item in evidence for cause in own)


def add_to_case(
    case: Case, sources: Sequence[LogInput], progress: Progress | None = None, *, of_job: bool = False
) -> IntakeResult:
    """Read the sources into the case; its session keeps descriptions, error lines (for ``kb new``) and the timeline.

    ``of_job``: as in ``read_sources``.

    Raises:
        UserError, InspectionError: As ``read_sources``.
    """
    found = read_sources(sources, case.knowledge, progress, of_job=of_job)
    take_result(case, found)
    return found


def take_result(case: Case, found: IntakeResult) -> None:
    """Add what was read to the case, and to its session."""
    case.add(found.evidence)
    if case.session:
        rows = [
            {"origin": origin, "words": _words(found.texts.get(origin, ""), errors), "errors": errors}
            for origin, errors in found.errors.items()
        ]
        case.session.append_all("text", rows)
        if found.timeline:
            case.session.append("timeline", **msgspec.to_builtins(found.timeline))


def _errors(sources: Sequence[LogInput], analysis: LogAnalysis) -> dict[str, list[tuple[str, str]]]:
    """Return by origin the exceptions of a text, and of a short one its other error lines too, in their order."""
    short = dict(analysis.prose)
    raised: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for where, line in analysis.errors:
        raised[where.rpartition(":")[0]].append((where, line))
    for origin, text in short.items():
        rows = dict(raised[origin]) | dict(error_lines(text, origin))
        raised[origin] = sorted(rows.items(), key=lambda row: int(row[0].rpartition(":")[2]))
    return {source.origin: raised[source.origin][:MOST_LINES] for source in sources}


def _words(text: str, errors: list[tuple[str, str]]) -> str:
    """Return the description, or "" for a log."""
    return text.strip() if len(text) <= WORDS_CHARACTERS and not errors else ""
