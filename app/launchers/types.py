"""Types of the generators of launch lines and files."""

import msgspec


class GeneratedFix(msgspec.Struct, frozen=True, kw_only=True):
    """Text, lines to run and new files of a generator. Text alone if it lacked something it needs.

    ``environ``: the variables that the files set.
    """

    text: str
    commands: list[str] = []
    files: dict[str, str] = {}
    environ: dict[str, str] = {}
