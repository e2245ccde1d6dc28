"""What all commands share: their common options, how they print, and how a JSON document is made."""

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import msgspec

from ... import __version__
from ..errors import UserError
from ..files import expanded

if TYPE_CHECKING:
    from ...knowledge.schema import Knowledge

# As knowledge.schema.Intrusiveness; that module is only loaded with the knowledge itself, after the first frame.
Level = Literal["reads", "connects", "allocates", "perturbs"]

F = TypeVar("F", bound=Callable[..., Any])
# Colours, titles, the cursor's ways.
SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options every command takes."""

    json: bool = False
    python: str | None = None
    knowledge: tuple[Path, ...] = ()
    allow: Level | None = None
    ascii: bool = False
    no_mouse: bool = False
    plain: bool = False


class OpenScreen(Exception):
    """A command that has nothing to work on asks for a screen instead; ``cli`` opens it."""

    def __init__(self, screen: str, options: Options, **arguments: Any) -> None:
        super().__init__(screen)
        self.screen, self.options, self.arguments = screen, options, arguments


def common_options(command: F) -> F:
    """Add the options all commands take; the command gets them as one ``options`` argument."""

    @functools.wraps(command)
    def with_options(*args: Any, **kwargs: Any) -> Any:
        names = Options.__struct_fields__
        given = {name: kwargs.pop(name) for name in names}
        given["ascii"] = given["ascii"] or not _unicode_output()
        if given["ascii"]:
            from ..ascii import only_ascii_out

            only_ascii_out()
        return command(*args, options=Options(**given), **kwargs)

    for decorate in reversed(
        [
            click.option("--json", is_flag=True, help="One JSON document on stdout, nothing else."),
            click.option("--python", metavar="PATH", help="The interpreter with the torch to look at."),
            click.option(
                "--knowledge",
                metavar="DIR",
                multiple=True,
                type=click.Path(path_type=Path),
                help="Further knowledge entries.",
            ),
            click.option(
                "--allow",
                type=click.Choice(["reads", "connects", "allocates", "perturbs"]),
                help="How far probes may go (default: reads; allocates where no job runs).",
            ),
            click.option("--plain", is_flag=True, help="Numbered questions instead of the full screen."),
            click.option("--ascii", is_flag=True, help="Only ASCII characters."),
            click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal."),
        ]
    ):
        with_options = decorate(with_options)
    return with_options  # type: ignore[return-value]


def _unicode_output() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") in (
        "utf8",
        "utf16",
        "utf32",
    )


def knowledge_for(options: Options) -> "Knowledge":
    """The knowledge base with a person's own entries and the given directories laid over it.

    Raises:
        UserError: An entry does not hold together; the message names file and line.
    """
    from ..knowing import knowledge_with

    return knowledge_with(*options.knowledge)


def target_python(options: Options) -> str:
    """The interpreter of the user: ``--python``, else the active environment's, else our own.

    Raises:
        UserError: ``--python`` is no program that can be run.
    """
    if options.python:
        path = expanded(options.python)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise UserError(f"--python {options.python}: no such program", "give the path of a Python interpreter")
        return str(path.absolute())
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        candidate = Path(os.environ.get(variable, "/nowhere"), "bin", "python")
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return sys.executable


def document(kind: str, knowledge: "Knowledge | None", body: Any) -> dict[str, Any]:
    """A JSON document of the public face: schema, versions, then the body; secrets taken out."""
    from .. import redact

    head = {
        "schema": f"ddpwizard.{kind}/1",
        "ddpwizard_version": __version__,
        "knowledge_version": knowledge.version if knowledge else "",
    }
    return head | redact.record(msgspec.to_builtins(body))


def json_bytes(doc: dict[str, Any]) -> bytes:
    """A JSON document as it is printed and saved, in UTF-8 whatever the terminal takes (JSON knows no other)."""
    return msgspec.json.format(msgspec.json.encode(doc), indent=2) + b"\n"


def print_json(doc: dict[str, Any]) -> None:
    """One document on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_bytes(doc))
    sys.stdout.buffer.flush()


def say(line: str = "") -> None:
    """A line of the result, on stdout; control characters stay out.

    Not click.echo: it takes an ASCII stream for a mistake and writes UTF-8 all the same.
    """
    sys.stdout.write(clean(line) + "\n")


def tell(line: str) -> None:
    """A line of progress or advice, on stderr."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


def clean(text: str) -> str:
    """``text`` without terminal control sequences (a log may hold any)."""
    if text.isprintable():
        return text
    text = SEQUENCE.sub("", text)
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() or c == "\u00a0"))


def glyph(status: str, ascii_only: bool) -> str:
    """The sign of a status: every state has one besides its colour."""
    signs = {"ok": ("✓", "OK"), "warn": ("!", "WARN"), "fail": ("✗", "FAIL"), "unknown": ("?", "UNK")}
    signs |= {"skip": ("–", "SKIP"), "running": ("●", "RUN")}
    return signs[status][ascii_only]
