"""``ddpwizard kb``: check, list and draw the knowledge base."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...knowledge.loader import CAUSE_ID, KnowledgeError, load
from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..files import write_whole
from .common import Options, common_options, document, knowledge_for, print_json, say, tell

if TYPE_CHECKING:
    from ..newentry import Draft


@click.group(name="kb")
def command() -> None:
    """Check, list or draw the knowledge base."""


@command.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@common_options
def check(directory: Path | None, options: Options) -> int:
    """Check all entries, those of DIRECTORY too: keys, types, ids, links and patterns. Exit 1 when one is wrong."""
    extra = [*options.knowledge, *([directory] if directory else [])]
    if missing := next((path for path in extra if not path.is_dir()), None):
        raise UserError(f"{missing}: no such directory", "give a directory with knowledge entries")
    try:
        knowledge = load(*extra, thorough=True)
    except KnowledgeError as error:
        if options.json:
            problem = {"path": str(error.path), "line": error.line, "problem": error.problem}
            print_json(document("kb-check", None, {"ok": False, "problems": [problem]}))
        else:
            say(str(error))
        return 1
    if options.json:
        print_json(document("kb-check", knowledge, {"ok": True, "problems": []}))
    else:
        counts = f"{len(knowledge.causes)} causes, {len(knowledge.questions)} questions, {len(knowledge.rules)} rules"
        say(f"All entries hold together: {counts}, {len(knowledge.findings())} findings.")
    return 0


@command.command(name="list")
@common_options
def list_causes(options: Options) -> int:
    """All causes, by family."""
    knowledge = knowledge_for(options)
    causes = sorted(knowledge.causes.values(), key=lambda c: (c.family, c.id))
    if options.json:
        rows = [{"id": c.id, "family": c.family, "title": c.title, "summary": c.summary} for c in causes]
        print_json(document("kb-list", knowledge, {"causes": rows}))
        return 0
    for cause in causes:
        say(f"{cause.family:<12} {cause.id:<28} {cause.title}")
    return 0


@command.command()
@common_options
def graph(options: Options) -> int:
    """The decision graph: in Graphviz's language, or with --json as nodes and edges."""
    from ..graph.build import as_dot, as_json, build

    knowledge = knowledge_for(options)
    built = build(knowledge)
    if options.json:
        print_json(document("kb-graph", knowledge, as_json(built)))
    else:
        say(as_dot(built))
    return 0


@command.command()
@click.option("--write", metavar="FILE", type=click.Path(path_type=Path), help="Write the table to this file.")
@common_options
def coverage(write: Path | None, options: Options) -> int:
    """Which entries answer which topic, as a Markdown table. Exit 1 when a topic has none."""
    from .. import coverage as table

    knowledge = knowledge_for(options)
    covered = table.covered(knowledge)
    if write:
        write_whole(write, table.markdown(knowledge).encode(), "--write")
        tell(f"written: {write.absolute()}")
    if options.json:
        rows = [{"topic": topic, "title": knowledge.topics[topic], "entries": ids} for topic, ids in covered.items()]
        print_json(document("kb-coverage", knowledge, {"topics": rows}))
    elif not write:
        say(table.markdown(knowledge).rstrip("\n"))
    return 0 if all(covered.values()) else 1


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--session", "session_id", metavar="SESSION", help="The session it was met in (default: the newest).")
@click.option("--log", "logs", metavar="PATH", multiple=True, help="Take the error lines from here instead.")
@click.option("--into", metavar="DIR", type=click.Path(path_type=Path), help="The directory (default: this one).")
@common_options
def new(id_: str, session_id: str | None, logs: Sequence[str], into: Path | None, options: Options) -> int:
    """Draft an entry ID from a session or a log: its error lines become signatures, for you to finish.

    \b
    Examples:
      ddpwizard kb new our-storage-stall --session last
      ddpwizard kb new our-storage-stall --log train.log --into team/knowledge
    """
    from .. import locations
    from ..newentry import entry

    knowledge = knowledge_for(options)
    if not CAUSE_ID.fullmatch(id_):
        raise UserError(f"bad id {id_!r}", "lower-case words joined by hyphens, such as our-storage-stall")
    if id_ in knowledge.causes:
        raise UserError(f"there is a cause {id_!r} already", f"ddpwizard explain {id_}")
    draft = (
        _draft_from_logs(id_, logs, knowledge) if logs else _draft_from_session(id_, session_id or "last", knowledge)
    )
    text = entry(draft, knowledge)
    directory = into or Path()
    path = directory / f"{id_}.yaml"
    if path.exists():
        raise UserError(f"{path} is there already", "give another ID, or edit that file")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {directory}: {error.strerror}", "name another directory with --into") from error
    write_whole(path, text.encode(), "--into")
    if options.json:
        print_json(document("kb-new", knowledge, {"id": id_, "path": str(path.absolute()), "text": text}))
    else:
        say(str(path.absolute()))
        if "signatures:" not in text:
            tell("No error line that nobody knows was found: add a signature by hand, or give clues.")
        tell(
            f"Finish what it marks and ask ddpwizard kb check DIR; entries in {locations.team_knowledge_dir()} are used"
        )
    return 0


def _draft_from_logs(id_: str, logs: Sequence[str], knowledge: Knowledge) -> "Draft":
    from ..logs.read import sources
    from ..newentry import draft_of
    from ..reading import read

    found = read(sources(logs), knowledge)
    return draft_of(id_, ", ".join(logs), [], [line for lines in found.errors.values() for line in lines], [])


def _draft_from_session(id_: str, session_id: str, knowledge: Knowledge) -> "Draft":
    from ..newentry import draft_of
    from ..session import Session
    from ..wizard import Case

    session = Session.load(session_id)
    words = [event.data["words"] for event in session.events if event.kind == "text" and event.data.get("words")]
    lines = [(where, line) for event in session.events if event.kind == "text" for where, line in event.data["errors"]]
    return draft_of(id_, f"session {session.id}", words, lines, Case(knowledge, session).evidence)
