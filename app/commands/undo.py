"""``ddpwizard undo [ID]``: take back the last applied fix, or a named one."""

import time

import click

from ..fixes.apply import undo
from .common import Options, common_options, document, print_json, say


@click.command(name="undo")
@click.argument("id_", metavar="[ID]", required=False)
@common_options
def command(id_: str | None, options: Options) -> int:
    """Take back the last applied fix, or the one with this ID (or its first letters).

    Refused when a file changed since, so nothing you wrote is lost.
    """
    taken = undo(id_)
    if options.json:
        print_json(document("undo", None, taken))
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(taken.at))
        say(f"Took back {taken.fix}, applied {when}, id {taken.id}")
        for path in taken.paths:
            say(f"  {path}")
    return 0
