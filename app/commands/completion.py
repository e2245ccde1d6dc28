"""``ddpwizard completion SHELL``: print the script by which a shell completes commands, options and ids."""

import click
from click.shell_completion import get_completion_class

from ..exit_codes import ExitCode
from ..options import Options
from ..text.json_output import print_json, public_document
from .common import common_options

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "ddpwizard"
VARIABLE = "_DDPWIZARD_COMPLETE"  # as click names it for this program


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
@common_options
@click.pass_context
def command(ctx: click.Context, shell: str, options: Options) -> int:
    """Print the completion of commands, options and ids for a shell.

    \b
    Examples:
      ddpwizard completion bash > ~/.local/share/bash-completion/completions/ddpwizard
      ddpwizard completion zsh > ~/.zfunc/_ddpwizard        (with fpath+=~/.zfunc before compinit)
      ddpwizard completion fish > ~/.config/fish/completions/ddpwizard.fish
    """
    of_shell = get_completion_class(shell)
    assert of_shell
    script = of_shell(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    if options.json:
        print_json(public_document("completion", None, {"shell": shell, "script": script}))
    else:
        click.echo(script)
    return ExitCode.OK
