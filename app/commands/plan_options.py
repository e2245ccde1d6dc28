"""Options of ``ddpwizard plan``, and their groups in its help."""

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from ..errors import UserError
from ..plan import spec
from ..plan.tables import read_table, words_of

F = TypeVar("F", bound=Callable[..., Any])

VALUE_NAMES = {"--spec": "given", "--batch": "batch_from"}  # in the code, where they differ from the option's


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups; those of all commands are under General."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; a word without an option is refused with the option that may be meant."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            option = "--script" if rest[0].endswith(".py") else "--model"
            raise UserError(
                f"{rest[0]}: without an option",
                f"ddpwizard plan {shlex.join([option, rest[0]])} reads the model from it",
            )
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (*OPTIONS, "General")}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                group = next((title for title, options in OPTIONS.items() if parameter.opts[0] in options), "General")
                groups[group].append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _number(
    parse: Callable[[str], float], form: str
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Return a callback that parses a number with a unit; ``form`` is an example for the message."""

    def parse_option(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise UserError(f"{parameter.opts[0]} is {value[:40] or 'empty'}", f"give it as {form}") from error

    return parse_option


def _rank(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and not 0 < value < 100_000:
        raise UserError(f"--lora is {value}", "give the rank of the adapters, such as 16")
    return value


TAKES = {
    "text": {"type": str},
    "whole": {"type": int},
    "number": {"type": float},
    "flag": {"is_flag": True},
    "count": {"type": str, "callback": _number(spec.parse_count, "7B, 350M or 7e9")},
    "tokens": {"type": str, "callback": _number(spec.parse_whole_number, "4096 or 4k")},
    "rank": {"type": int, "callback": _rank},
}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option: its help, and what it takes, or the words to choose from."""

    help: str
    takes: str = "text"
    words: list[str] = []
    metavar: str | None = None

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings of click."""
        words = words_of(name.removeprefix("--").replace("-", "_"), self.words)
        takes = {"type": click.Choice(words)} if words else TAKES[self.takes]
        return {"help": self.help, "metavar": self.metavar, **takes}


OPTIONS = read_table("options.jsonc", dict[str, dict[str, Option]])  # by group


def plan_options(command: F) -> F:
    """Add all options of the command but those of every command."""
    for options in reversed(OPTIONS.values()):
        for name, option in reversed(options.items()):
            names = (name, VALUE_NAMES[name]) if name in VALUE_NAMES else (name,)
            command = click.option(*names, **option.settings(name))(command)
    return command
