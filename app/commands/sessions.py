"""``ddpwizard sessions``: list, resume and export sessions."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..diagnosis.session_subject import subject_text
from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options, knowledge_for
from ..session import Session, all_sessions, proof_outcome
from ..system.files import check_result_file, write_result
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_progress
from .common import ScreenRequested, common_options, force_option
from .completed_ids import completed_by, session_ids
from .suggesting_group import SuggestingGroup


@click.group(invoke_without_command=True, cls=SuggestingGroup)
@click.pass_context
def command(ctx: click.Context) -> int | None:
    """List, resume or export sessions. The wizard saves every step immediately."""
    if ctx.invoked_subcommand is None:
        return ctx.invoke(list_sessions)
    return None


@command.command("list")
@common_options
def list_sessions(options: Options) -> int:
    """List the sessions, newest first."""
    rows: list[dict[str, Any]] = []
    for session in all_sessions():
        rows.append(_row(session))
        if session.damage:
            print_progress(session.damage)
    if options.json:
        print_json(public_document("sessions", None, {"sessions": rows}))
        return ExitCode.OK
    if not rows:
        print_progress("no sessions yet: start one with ddpwizard")
    for row in rows:
        state = "" if row["open"] else "  closed"
        print_line(f"{row['id']}  {_ago(row['updated_at'])}  {row['steps']:>3} steps{state}  {row['about']}")
    return ExitCode.OK


@command.command("resume")
@click.argument("id_", metavar="[ID]", default="last", shell_complete=completed_by(session_ids))
@partial(common_options, json_help="")
def resume(id_: str, options: Options) -> int:
    """Resume a session. ID may be a prefix; without an ID the newest is resumed."""
    if options.json:
        raise UserError("sessions resume is interactive and has no --json", "sessions export ID")
    session = _load(id_)
    raise ScreenRequested("resume", options, id=session.id)


@command.command("export")
@click.argument("id_", metavar="[ID]", default="last", shell_complete=completed_by(session_ids))
@click.option("--format", "form", type=click.Choice(["md", "html"]), default="md", help="Markdown or one HTML page.")
@click.option("--public", is_flag=True, help="Rename hosts, addresses, user names and paths.")
@click.option("--output", type=click.Path(path_type=Path), help="Write here instead of to stdout.")
@force_option("--output")
@common_options
def export(id_: str, form: str, public: bool, output: Path | None, force: bool, options: Options) -> int:
    """Export a session as a page without secrets. ID may be a prefix; without an ID the newest is exported."""
    from .. import report

    if output:
        check_result_file(output, "--output", force=force)
    session = _load(id_)
    write = report.report_as_html if form == "html" else report.report_as_markdown
    text = write(session, public, knowledge_for(options))
    if output:
        write_result(output, text.encode(), "--output", force=force)
        print_progress(f"written: {output.absolute()}")
    if options.json:
        body = {"id": session.id, "format": form, "public": public, "path": str(output.absolute()) if output else None}
        print_json(public_document("export", None, body | ({} if output else {"text": text})))
    elif not output:
        click.echo(text, nl=False)
    return ExitCode.OK


def _load(id_: str) -> Session:
    session = Session.load(id_)
    if session.damage:
        print_progress(session.damage)
    return session


def _row(session: Session) -> dict[str, Any]:
    events, proof = session.events, session.last("proof")
    return {
        "id": session.id,
        "path": str(session.path),
        "begun_at": events[0].at if events else 0.0,
        "updated_at": events[-1].at if events else 0.0,
        "steps": len(events),
        "open": session.last("closed") is None,
        "outcome": proof_outcome(proof) if proof else None,
        "about": subject_text(session),
    }


def _ago(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
