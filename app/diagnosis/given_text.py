"""The kind of a line or a paste: a script, a log, a question about a term, or a description."""

import re
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

from ..errors import UserError
from ..system.files import expand_user

Kind = Literal["script", "log", "term", "text"]
PATH_CHARACTERS = 500  # of a line with blanks
FILE_ENDINGS = {".log", ".out", ".err", ".txt", ".gz", ".py", ".ipynb", ".sh", ".sbatch", ".slurm"}
PYTHON_HEAD = re.compile(rb"#![^\n]{0,200}python")
NOT_A_LOG = {".sh": "a shell script", ".sbatch": "a batch script", ".slurm": "a batch script"}
TERM = re.compile(
    r"(?:what(?: is|'s| are| does)|explain|define|how does)\s+(?:an? |the )?(?P<term>[\w .+/-]{2,60}?)"
    r"(?: mean| do| work)?\s*\?*",
    re.IGNORECASE,
)


class Given(NamedTuple):
    """The kind of what was given; ``value`` is the path, the term or the text."""

    kind: Kind
    value: str


def classify_given(text: str) -> Given:
    """Return what a text is. A path is one line that names an existing file or cannot be anything else.

    Raises:
        UserError: It is empty, or the path of a file that is neither a log nor a Python script.
    """
    line = text.strip()
    if not line:
        raise UserError("the text is empty", "paste an error or a log, or describe what you see")
    if path := _path(line):
        return Given("script" if is_python_script(Path(path)) else "log", path)
    found = TERM.fullmatch(line)
    return Given("term", found["term"]) if found else Given("text", text)


def is_text(argument: str) -> bool:
    """Return whether an argument of a command is a text: it has several words and names no file."""
    return len(argument.split()) > 1 and not _path(argument.strip())


def _path(line: str) -> str:
    looks_like_one = len(line.split()) == 1 and ("/" in line or PurePath(line).suffix.lower() in FILE_ENDINGS)
    if "\n" in line or (len(line) > PATH_CHARACTERS and not looks_like_one):
        return ""
    try:
        path = expand_user(line)
        return str(path) if looks_like_one or path.exists() else ""
    except UserError:
        if looks_like_one:
            raise
        return ""
    except (OSError, ValueError):
        return ""


def is_python_script(path: Path) -> bool:
    """Return whether a path is that of a Python script, by its ending or its first line.

    Raises:
        UserError: It is another kind of script.
    """
    if path.suffix in (".py", ".pyw", ".ipynb"):
        return True
    if what := NOT_A_LOG.get(path.suffix):
        raise UserError(f"{path} is {what}, not a log", "give a log, or the Python script that it starts")
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return bool(PYTHON_HEAD.match(file.read(256)))
    except OSError:
        return False
