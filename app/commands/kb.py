"""``ddpwizard kb``: check, list and draw the knowledge base."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ...knowledge.chapters import read_valid_chapters
from ...knowledge.labs import DESCRIPTION, LABS, lab_ids, read_valid_labs
from ...knowledge.loader import CAUSE_ID, read_valid_knowledge
from ...knowledge.quiz import read_valid_quiz
from ...knowledge.schema import Knowledge
from ...knowledge.yaml_file import KnowledgeError, line_of
from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options, knowledge_directories, knowledge_for
from ..system.files import write_atomic
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest, did_you_mean
from ..text.terminal import Verbatim, print_line, print_progress
from .common import common_options
from .suggesting_group import SuggestingGroup

if TYPE_CHECKING:
    from ..diagnosis.case import Case
    from ..diagnosis.draft_entry import EntryDraft


@click.group(name="kb", cls=SuggestingGroup)
def command() -> None:
    """Check, list or draw the knowledge base."""


@command.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@common_options
def check(directory: Path | None, options: Options) -> int:
    """Check all entries, also those of the team and of DIRECTORY: keys, types, ids, links, patterns, terms, chapters,
    labs, the quiz.

    The examples of the team's entries must lead to them.

    Exit code 1: an error.
    """
    extra = [*knowledge_directories(options), *([directory] if directory else [])]
    if missing := next((path for path in extra if not path.is_dir()), None):
        raise UserError(f"{missing}: no such directory", "name a directory with knowledge entries")
    if empty := next((path for path in extra if not any(path.rglob("*.yaml"))), None):
        raise UserError(f"{empty}: no .yaml file in it", f"ddpwizard kb new ID --into {empty} drafts an entry there")
    try:
        knowledge, problems = read_valid_knowledge(*extra, thorough=True)
        problems += _problems_of_examples(knowledge, extra) + _problems_of_chapters(knowledge, extra)
        problems += read_valid_labs(knowledge, *extra)[1] + read_valid_quiz(*extra)[1]
    except KnowledgeError as error:  # of a built-in entry
        knowledge, problems = None, [error]
    if options.json:
        rows = [{"path": str(each.path), "line": each.line, "problem": each.problem} for each in problems]
        print_json(public_document("kb-check", knowledge, {"ok": not problems, "problems": rows}))
    else:
        for problem in problems:
            print_line(str(problem))
        if knowledge:
            print_line(_count_text(knowledge, len(problems)))
    return ExitCode.FOUND if problems else ExitCode.OK


def _problems_of_examples(knowledge: Knowledge, directories: Sequence[Path]) -> list[KnowledgeError]:
    """Return the examples of the entries in these directories that do not lead to their cause."""
    from ..diagnosis.examples import read_examples

    own = {path.stem: path for directory in directories for path in sorted(directory.rglob("*.yaml"))}
    causes = [knowledge.causes[id_] for id_ in own if id_ in knowledge.causes]
    return [
        KnowledgeError(path, line_of(path.read_bytes(), ["examples", each.number]), each.problem)
        for each in read_examples(causes, knowledge)
        if each.problem and (path := own[each.cause.id])
    ]


def _problems_of_chapters(knowledge: Knowledge, directories: Sequence[Path]) -> list[KnowledgeError]:
    """Return what is wrong in the chapters, those of these directories among them."""
    chapters, problems = read_valid_chapters(*directories)
    known = knowledge.causes.keys() | lab_ids(*directories)
    return problems + [
        KnowledgeError(chapter.path, line_of(chapter.path.read_bytes(), ["labs", number]), f"no cause or lab {lab!r}")
        for chapter in chapters.values()
        for number, lab in enumerate(chapter.labs)
        if lab not in known
    ]


def _count_text(knowledge: Knowledge, invalid: int) -> str:
    counts = f"{len(knowledge.causes)} causes, {len(knowledge.questions)} questions, {len(knowledge.rules)} rules"
    counts += f", {len(knowledge.findings())} findings"
    return f"{invalid} left out; valid: {counts}." if invalid else f"All entries are valid: {counts}."


@command.command(name="list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@common_options
def list_causes(names: Sequence[str], options: Options) -> int:
    """List all causes by family, or those of a family or with an id."""
    knowledge = knowledge_for(options)
    known = {name for cause in knowledge.causes.values() for name in (cause.family, cause.id)}
    if unknown := next((name for name in names if name not in known), None):
        hint = did_you_mean(closest(unknown, sorted(known)))
        raise UserError(f"no family and no cause {unknown!r}", hint or "ddpwizard kb list shows all")
    chosen = (cause for cause in knowledge.causes.values() if not names or {cause.family, cause.id} & {*names})
    causes = sorted(chosen, key=lambda c: (c.family, c.id))
    if options.json:
        rows = [{"id": c.id, "family": c.family, "title": c.title, "summary": c.summary} for c in causes]
        print_json(public_document("kb-list", knowledge, {"causes": rows}))
        return ExitCode.OK
    for cause in causes:
        print_line(f"{cause.family:<12} {cause.id:<28} {cause.title}")
    return ExitCode.OK


@command.command()
@common_options
def graph(options: Options) -> int:
    """Print the decision graph in DOT, or with --json as nodes and edges."""
    from ..diagnosis.decision_graph import build_graph, graph_as_dot, graph_as_json

    knowledge = knowledge_for(options)
    built = build_graph(knowledge)
    if options.json:
        print_json(public_document("kb-graph", knowledge, graph_as_json(built)))
    else:
        print_line(Verbatim(graph_as_dot(built)))
    return ExitCode.OK


@command.command()
@click.option("--write", metavar="FILE", type=click.Path(path_type=Path), help="Write the table to this file.")
@common_options
def coverage(write: Path | None, options: Options) -> int:
    """Print what there is on each topic as a Markdown table: entries, labs, quiz, rules, checks.

    Exit code 1: a topic has no entry.
    """
    from ..diagnosis import coverage as table

    knowledge = knowledge_for(options)
    directories = knowledge_directories(options)
    labs, _ = read_valid_labs(knowledge, *directories)
    quiz, _ = read_valid_quiz(*directories)
    if write:
        write_atomic(write, table.coverage_table(knowledge, labs, quiz).encode(), "--write")
        print_progress(f"written: {write.absolute()}")
    topics = table.topic_coverage(knowledge, labs, quiz)
    if options.json:
        print_json(public_document("kb-coverage", knowledge, {"topics": topics}))
    elif not write:
        print_line(Verbatim(table.coverage_table(knowledge, labs, quiz).rstrip("\n")))
    return ExitCode.OK if all(each.entries for each in topics) else ExitCode.FOUND


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--session", "session_id", metavar="SESSION", help="The session to use [default: the newest].")
@click.option("--log", "logs", metavar="PATH", multiple=True, help="Take the error lines from this file instead.")
@click.option("--lab", "with_lab", is_flag=True, help="Also draft a lab, a job that shows the failure.")
@click.option("--into", metavar="DIR", type=click.Path(path_type=Path), help="Target directory [default: .].")
@common_options
def new(
    id_: str, session_id: str | None, logs: Sequence[str], with_lab: bool, into: Path | None, options: Options
) -> int:
    """Draft an entry ID from a session or a log: its error lines become signatures, for you to complete.

    With --lab also the lab labs/ID of that entry, or of an existing one: its description, and a script that shows the
    failure.

    \b
    Examples:
      ddpwizard kb new our-storage-stall --session last
      ddpwizard kb new our-storage-stall --log train.log --lab --into team/knowledge
    """
    from ..diagnosis.draft_entry import render_entry
    from ..system import paths

    knowledge = knowledge_for(options)
    if not CAUSE_ID.fullmatch(id_):
        raise UserError(f"bad id {id_!r}", "lower-case words joined by hyphens, such as our-storage-stall")
    if id_ in knowledge.causes and not with_lab:
        raise UserError(f"there is a cause {id_!r} already", f"ddpwizard explain {id_}, or add --lab for a lab of it")
    drafted = (
        _draft_from_logs(id_, logs, knowledge) if logs else _draft_from_session(id_, session_id or "last", knowledge)
    )
    is_named = bool(logs or session_id)
    if not (is_named or drafted.entry.words or drafted.entry.lines or drafted.case.evidence):
        raise UserError(
            f"{drafted.entry.origin}, the newest, has no description, no error line and no finding",
            "name a log with --log FILE, or another session with --session ID",
        )
    directory = into or Path()
    entry = "" if id_ in knowledge.causes else render_entry(drafted.entry, knowledge)
    files = {directory / f"{id_}.yaml": entry} if entry else {}
    if with_lab:
        files |= _lab_files(directory, drafted, knowledge)
    if existing := next((path for path in files if path.exists()), None):
        raise UserError(f"{existing} already exists", "give another ID, or edit that file")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot create {path.parent}: {error.strerror}"
            raise UserError(problem, "name another directory with --into") from error
        write_atomic(path, text.encode(), "--into")
    if options.json:
        rows = [{"path": str(path.absolute()), "text": text} for path, text in files.items()]
        print_json(public_document("kb-new", knowledge, {"id": id_, **rows[0], "files": rows}))
        return ExitCode.OK
    for path in files:
        print_line(str(path.absolute()))
    if entry and "signatures:" not in entry:
        known = "All error lines are already known." if drafted.entry.lines else "There is no error line."
        print_progress(f"{known} Add a signature or clues by hand.")
    print_progress(
        f"Drafted from {drafted.entry.origin}. Complete the marked parts, run ddpwizard kb check DIR; "
        f"entries in {paths.team_knowledge_dir()} are used"
    )
    return ExitCode.OK


class _Drafted(NamedTuple):
    """An entry as drafted, and what a lab needs as well."""

    entry: "EntryDraft"
    case: "Case"
    launch: Sequence[str] = ()
    script: Path | None = None


def _lab_files(directory: Path, drafted: _Drafted, knowledge: Knowledge) -> dict[Path, str]:
    from ..labs.draft_lab import SCRIPT, build_lab_draft, render_lab, script_text

    draft = build_lab_draft(drafted.entry, drafted.case.diagnosis(), drafted.launch, knowledge)
    into = directory / LABS / draft.cause
    return {into / DESCRIPTION: render_lab(draft), into / SCRIPT: script_text(drafted.script)}


def _draft_from_logs(id_: str, logs: Sequence[str], knowledge: Knowledge) -> _Drafted:
    from ..diagnosis.case import Case
    from ..diagnosis.draft_entry import build_draft
    from ..diagnosis.intake import read_sources
    from ..logs.read import find_sources

    found = read_sources(find_sources(logs), knowledge)
    case = Case(knowledge)
    case.add(found.evidence)
    lines = [line for lines in found.errors.values() for line in lines]
    return _Drafted(build_draft(id_, ", ".join(logs), [], lines, []), case)


def _draft_from_session(id_: str, session_id: str, knowledge: Knowledge) -> _Drafted:
    from ..diagnosis.case import Case
    from ..diagnosis.draft_entry import build_draft
    from ..diagnosis.job_evidence import launch_of_session, script_of_session
    from ..session import Session

    session = Session.load(session_id)
    words = [event.data["words"] for event in session.events if event.kind == "text" and event.data.get("words")]
    lines = [(where, line) for event in session.events if event.kind == "text" for where, line in event.data["errors"]]
    case = Case(knowledge, session)
    entry = build_draft(id_, f"session {session.id}", words, lines, case.evidence)
    return _Drafted(entry, case, launch_of_session(session), script_of_session(session))
