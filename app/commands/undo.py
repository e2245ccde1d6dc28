"""``ddpwizard undo [ID]``: revert the last applied fix, or a named one."""

import time

import click

from ..exit_codes import ExitCode
from ..fixes.apply import undo_fix
from ..options import Options
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line
from .common import common_options


@click.command(name="undo")
@click.argument("id_", metavar="[ID]", required=False)
@common_options
def command(id_: str | None, options: Options) -> int:
    """Revert the last applied fix, or the one with this ID (or a prefix of it).

    Refused if a file has changed since, so that none of your changes is lost.
    """
    taken = undo_fix(id_)
    if options.json:
        print_json(public_document("undo", None, taken))
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(taken.at))
        print_line(f"Reverted {taken.fix}, applied {when}, id {taken.id}")
        for path in taken.paths:
            print_line(f"  {path}")
    return ExitCode.OK
