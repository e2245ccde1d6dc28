"""Common options of every command, and the interpreter and the knowledge that follow from them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from .errors import UserError
from .system.files import expand_user

if TYPE_CHECKING:
    from ..knowledge.chapters import Chapter
    from ..knowledge.schema import Knowledge


# As knowledge.schema.Intrusiveness; that module is only loaded with the knowledge itself, after the first frame.
Level = Literal["reads", "connects", "allocates", "perturbs"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The common options of every command."""

    json: bool = False
    python: str | None = None
    knowledge: tuple[Path, ...] = ()
    allow: Level | None = None
    ascii: bool = False
    no_mouse: bool = False
    plain: bool = False


def knowledge_for(options: Options, *, warn: bool = True) -> "Knowledge":
    """Return the knowledge base with the team's entries and the given directories on top.

    An invalid entry is left out, with a line on standard error unless ``warn`` is False.

    Raises:
        UserError: A directory does not exist or cannot be read.
    """
    from .knowledge_cache import load_knowledge
    from .text.terminal import print_progress

    knowledge = load_knowledge(*options.knowledge)
    for line in left_out_lines(knowledge) if warn else ():
        print_progress(f"ddpwizard: {line}")
    return knowledge


def knowledge_directories(options: Options) -> list[Path]:
    """Return the directories with knowledge of the team: their usual one, then those given."""
    from .knowledge_cache import team_directories

    return [*team_directories(), *options.knowledge]


def chapters_for(options: Options) -> "dict[str, Chapter]":
    """Return the chapters, those of the team among them, in reading order.

    An invalid chapter of the team is left out, with a line on standard error.
    """
    from ..knowledge.chapters import read_valid_chapters
    from .text.terminal import print_progress

    chapters, problems = read_valid_chapters(*knowledge_directories(options))
    for problem in problems:
        print_progress(f"ddpwizard: {left_out_line(str(problem))}")
    return chapters


def left_out_lines(knowledge: "Knowledge") -> list[str]:
    """Return a line for each invalid entry that is not part of the knowledge base."""
    return [left_out_line(problem) for problem in knowledge.left_out]


def left_out_line(problem: str) -> str:
    """Return the line about an invalid file of a team."""
    return f"{problem}; it is left out → ddpwizard kb check"


def target_python(options: Options) -> str:
    """Return the user's interpreter: ``--python``, else that of the active environment, else our own.

    Raises:
        UserError: ``--python`` is not an executable program.
    """
    if options.python:
        path = expand_user(options.python)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise UserError(f"--python {options.python}: no such program", "give the path of a Python interpreter")
        return str(path.absolute())
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        candidate = Path(os.environ.get(variable, "/nowhere"), "bin", "python")
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return sys.executable
