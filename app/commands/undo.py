"""``ddpwizard undo [ID]``: revert the last applied fix, or a named one."""

import sys
import time

import click

from ..errors import UserError
from ..exit_codes import ExitCode
from ..fixes.records import AppliedFix
from ..fixes.undo import applied_fixes, preview_undo, undo_fix
from ..options import Options
from ..text.json_output import print_json, public_document
from ..text.terminal import Verbatim, print_line, print_patch, print_progress
from .common import common_options
from .completed_ids import applied_fix_ids, completed_by


@click.command(name="undo")
@click.argument("id_", metavar="[ID]", required=False, shell_complete=completed_by(applied_fix_ids))
@click.option("--list", "listed", is_flag=True, help="List the applied fixes, newest first; revert nothing.")
@click.option("--diff", is_flag=True, help="Print the change as a patch; revert nothing.")
@click.option("--yes", is_flag=True, help="Revert without a question; needed without a terminal.")
@common_options
def command(id_: str | None, listed: bool, diff: bool, yes: bool, options: Options) -> int:
    """Revert the last applied fix, or the one with this ID (or a prefix of it).

    Shows the change and asks first. Refused if a file has changed since, so that none of your changes is lost.
    """
    _check(id_, listed, diff, yes, options)
    if listed:
        return _list(options)
    preview = preview_undo(id_)
    if diff:
        print_patch(preview.diff)
        return ExitCode.OK
    if not options.json:
        print_progress(f"Reverts {_name(preview.applied)}, applied {_time(preview.applied)}:")
        for line in [*map(_indented, preview.applied.paths), *map(Verbatim, preview.diff.splitlines())]:
            print_progress(line)
    if not yes:
        _ask(preview.applied, options)
    reverted = undo_fix(preview.applied.id)
    if options.json:
        print_json(public_document("undo", None, reverted))
    else:
        print_line(f"Reverted {_name(reverted)}, applied {_time(reverted)}, id {reverted.id}")
        for path in reverted.paths:
            print_line(_indented(path))
    return ExitCode.OK


def _check(id_: str | None, listed: bool, diff: bool, yes: bool, options: Options) -> None:
    if listed and id_ is not None:
        raise UserError("--list reverts nothing", "leave out the ID")
    if sum((listed, diff, yes)) > 1:
        raise UserError("--list and --diff revert nothing and --yes reverts", "give one of them")
    if diff and options.json:
        raise UserError("--json and --diff each fill standard output", "give one of them")


def _ask(applied: AppliedFix, options: Options) -> None:
    """Return if the user wants the fix reverted.

    Raises:
        UserError: The user does not, or cannot be asked.
    """
    if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        reason = "--json asks no question" if options.json else "there is no terminal to ask in"
        raise UserError(f"nothing was reverted: {reason}", f"ddpwizard undo {applied.id} --yes reverts this fix")
    if not click.confirm("Revert it?", err=True):
        raise UserError("nothing was reverted", "ddpwizard undo --list shows other fixes and their ids")


def _list(options: Options) -> int:
    fixes = applied_fixes()
    if options.json:
        print_json(public_document("undo-list", None, {"fixes": fixes}))
        return ExitCode.OK
    if not fixes:
        print_progress("no fix was applied yet: ddpwizard review --fix applies fixes")
    for each in fixes:
        name = f"{_time(each.applied)}  {_name(each.applied)}" if each.applied else "its record cannot be read"
        print_line(f"{each.id}  {each.state:<13}  {name}")
        for path in each.applied.paths if each.applied else []:
            print_line(_indented(path))
    return ExitCode.OK


def _name(applied: AppliedFix) -> str:
    return f"{applied.fix} ({applied.title})" if applied.title else applied.fix


def _time(applied: AppliedFix) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(applied.at))


def _indented(path: str) -> str:
    return f"  {path}"
