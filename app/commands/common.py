"""What all commands share: their common options, how they print, and how a JSON document is made."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..options import Options

if TYPE_CHECKING:
    pass


F = TypeVar("F", bound=Callable[..., Any])


class ScreenRequested(Exception):
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
            from ..text.ascii import ascii_output

            ascii_output()
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
