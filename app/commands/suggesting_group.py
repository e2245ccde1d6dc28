"""A group of commands that suggests the nearest name for a mistyped one."""

import click

from ..errors import UserError
from ..text.suggestions import closest, did_you_mean


class SuggestingGroup(click.Group):
    """A click group whose error about an unknown command names those that are spelled like it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        suggestion = did_you_mean(closest(args[0], names)) if args and args[0] not in names else ""
        if suggestion and not args[0].startswith("-"):
            raise UserError(f"no command {args[0]!r}", f"{suggestion} {ctx.command_path} --help lists the commands")
        return super().resolve_command(ctx, args)
