"""Options and exceptions that all commands share."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..options import Options

JSON_HELP = "Print one JSON document on stdout, nothing else."
F = TypeVar("F", bound=Callable[..., Any])


class ScreenRequested(Exception):
    """Raised by a command without input to request a screen instead; ``cli`` opens it."""

    def __init__(self, screen: str, options: Options, **arguments: Any) -> None:
        super().__init__(screen)
        self.screen, self.options, self.arguments = screen, options, arguments


def common_options(command: F, json_help: str = JSON_HELP) -> F:
    """Add the common options to a command, which receives them as one ``options`` argument.

    Options before the command count as well; of one that is given twice, the later wins. ``json_help`` describes
    ``--json``; "" hides it.
    """

    @functools.wraps(command)
    def with_options(*args: Any, **kwargs: Any) -> Any:
        given = _merged({name: kwargs.pop(name) for name in Options.__struct_fields__})
        given["ascii"] = given["ascii"] or not can_print_unicode()
        if given["ascii"]:
            from ..text.ascii import ascii_output

            ascii_output()
        return command(*args, options=Options(**given), **kwargs)

    for decorate in reversed(
        [
            click.option("--json", is_flag=True, help=json_help, hidden=not json_help),
            click.option("--python", metavar="PATH", help="Python interpreter of the training environment."),
            click.option(
                "--knowledge",
                metavar="DIR",
                multiple=True,
                type=click.Path(path_type=Path),
                help="Directory with additional knowledge entries.",
            ),
            click.option(
                "--allow",
                type=click.Choice(["reads", "connects", "allocates", "perturbs"]),
                help="What probes may do: only read, also open connections, also start processes and use memory, "
                "or also pause a job [default: reads; allocates if no job runs].",
            ),
            click.option("--plain", is_flag=True, help="Ask numbered questions instead of using the full screen."),
            click.option("--ascii", is_flag=True, help="Print only ASCII characters."),
            click.option("--no-mouse", is_flag=True, help="Do not capture the mouse."),
        ]
    ):
        with_options = decorate(with_options)
    return with_options  # type: ignore[return-value]


def force_option(names: str) -> Callable[[F], F]:
    """Return the option without which an existing file is not overwritten."""
    return click.option("--force", is_flag=True, help=f"Overwrite an existing file with {names}.")


def _merged(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command with those that were given before it; directories of knowledge add up."""
    before: dict[str, Any] = click.get_current_context().obj or {}
    directories = (*map(Path, before.get("knowledge", ())), *given["knowledge"])
    return {name: value or before.get(name, value) for name, value in given.items()} | {"knowledge": directories}


def can_print_unicode() -> bool:
    """Return whether the encoding of standard output has every character."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") in (
        "utf8",
        "utf16",
        "utf32",
    )
