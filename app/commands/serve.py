"""``ddpwizard serve``: the full screen in a browser of this machine."""

import sys

import click

from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_progress
from .common import common_options


@click.command(name="serve")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Port on 127.0.0.1 [default: a free one]."
)
@common_options
def command(port: int, options: Options) -> int:
    """Show the wizard in a browser, until you press ctrl+c.

    Only this machine can connect, and only with the printed address, which has a token. From another machine:

    \b
      ssh -L 8000:127.0.0.1:8000 node
      ddpwizard serve --port 8000         (on that node)
    """
    try:
        from .web_server import WebServer
    except ModuleNotFoundError as error:
        raise UserError(f"serve needs {error.name}", 'pip install "ddpwizard[serve]"') from error

    server = WebServer(options, port)

    def announce() -> None:
        if options.json:
            print_json(public_document("serve", None, {"url": server.url}))
            return
        print_line(server.url)
        sys.stdout.flush()
        print_progress("Open this address in a browser. Whoever has it acts as you here. ctrl+c ends the server.")

    server.run(announce)
    return ExitCode.OK
