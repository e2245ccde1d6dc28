"""``ddpwizard explain ID``: explain one cause."""

import click

from ..diagnosis.cause_text import cause_lines, fill_fallbacks
from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options, knowledge_for
from ..text.json_output import print_json, public_document
from ..text.suggestions import closest, did_you_mean
from ..text.terminal import print_line
from .common import common_options


@click.command(name="explain")
@click.argument("id_", metavar="ID")
@common_options
def command(id_: str, options: Options) -> int:
    """Explain one cause: what happens, its symptoms, its fixes, and the sources."""
    knowledge = knowledge_for(options)
    cause = knowledge.causes.get(id_)
    if cause is None:
        hint = did_you_mean(closest(id_, knowledge.causes))
        raise UserError(f"no cause {id_!r}", hint or "ddpwizard kb list shows all causes")
    if options.json:
        print_json(public_document("cause", knowledge, fill_fallbacks(cause)))
    else:
        for line in cause_lines(cause, knowledge):
            print_line(line)
    return ExitCode.OK
