"""``make man``: the manual page ``ddpwizard.1``, made from the help texts of the command line."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from ddpwizard import __version__
from ddpwizard.app.exit_codes import ExitCode
from ddpwizard.app.options import Options
from ddpwizard.cli import group

PAGE = Path(__file__).with_name("ddpwizard.1")
NAME = "ddpwizard"
SUMMARY = "diagnose, repair and plan distributed PyTorch training"
VERBATIM = "\b"  # click's mark of a paragraph whose lines stay as they are
OF_ALL_COMMANDS = set(Options.__struct_fields__)  # described once
EXIT_TEXTS = {
    ExitCode.OK: "Nothing was found.",
    ExitCode.FOUND: "Something was found. Each command describes what counts.",
    ExitCode.USAGE: "The command line is wrong, or its input cannot be read.",
    ExitCode.NOT_INSPECTED: "The machine or the job could not be inspected.",
    ExitCode.INTERRUPTED: "Interrupted.",
    ExitCode.OUTPUT_CLOSED: "The reader of the output has ended, as in a pipe to head.",
}
FILES = {
    "~/.config/ddpwizard/knowledge": "Entries, chapters and labs of a team, used without --knowledge.",
    "~/.local/state/ddpwizard": "Sessions, backups of changed files, copies of the labs, and the log of errors.",
    "~/.cache/ddpwizard": "Data that is computed again when it is missing.",
}
ENVIRONMENT = {
    "NO_COLOR": "Print without colours.",
    "ACCESSIBLE": "If it is not 0: ask numbered questions instead of using the full screen.",
    "VISUAL, EDITOR": "The editor that opens a script.",
    "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME": "Replace ~/.config, ~/.local/state and ~/.cache.",
}


def man_page() -> str:
    """Return the page in the language of ``man``."""
    context = click.Context(group, info_name=NAME, **group.context_settings)
    lines = [
        f'.\\" Made by docs/{Path(__file__).name} from the help texts.',
        f'.TH DDPWIZARD 1 "" "ddpwizard {__version__}" "User Commands"',
        ".SH NAME",
        f"{NAME} \\- {SUMMARY}",
        ".SH SYNOPSIS",
        f".B {NAME}",
        "[OPTIONS] [COMMAND] [ARGUMENTS]",
        ".SH DESCRIPTION",
        *_paragraphs(group.help),
        ".SH OPTIONS",
        "All commands take these options except \\fB\\-\\-demo\\fR and \\fB\\-\\-version\\fR. "
        "They also take \\fB\\-\\-json\\fR: print one JSON document on standard output, nothing else.",
        *_options(group, context),
        ".SH COMMANDS",
        *_commands(group, context),
        ".SH EXIT STATUS",
        *_definitions((str(code.value), text) for code, text in EXIT_TEXTS.items()),
        ".PP",
        "\\fBddpwizard run\\fR ends with the code of the job.",
        ".SH FILES",
        *_definitions(FILES.items()),
        ".SH ENVIRONMENT",
        *_definitions(ENVIRONMENT.items()),
    ]
    return "\n".join(lines) + "\n"


def _commands(parent: click.Group, context: click.Context) -> Iterator[str]:
    """Yield a section for each command, and for each command of a group."""
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        assert command
        own = click.Context(command, info_name=name, parent=context)
        yield f".SS {_escaped(' '.join([own.command_path, *command.collect_usage_pieces(own)]))}"
        yield from _paragraphs(command.help)
        yield from _options(command, own)
        if isinstance(command, click.Group):
            yield from _commands(command, own)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the options of a command, those of all commands only for the program itself."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        shared = context.parent and (parameter.name in OF_ALL_COMMANDS or "--help" in parameter.opts)
        if record and record[1] and not shared:
            yield from _definitions([record])


def _definitions(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield from (".TP", f"\\fB{_escaped(name)}\\fR", _escaped(text))


def _paragraphs(help_text: str | None) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(help_text or "").split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith(VERBATIM):
            yield from (".nf", *map(_escaped, paragraph.removeprefix(VERBATIM).strip("\n").splitlines()), ".fi")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _escaped(text: str) -> str:
    """Return a line of text without requests and escapes of ``man``."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def main() -> None:
    PAGE.write_text(man_page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
