"""The command line that starts a lab, as it is typed in a shell."""

import re
import shlex

from ..errors import UserError

VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.ASCII | re.DOTALL)


def parse_start(line: str, example: str) -> tuple[str, dict[str, str]]:
    """Return a command line, and the variables that are set before it.

    Raises:
        UserError: It is no command line.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"no command line: {error}", "close the quotes") from error
    environ: dict[str, str] = {}
    while words and (found := VARIABLE.fullmatch(words[0])):
        environ[found["name"]] = found["value"]
        del words[0]
    if not words:
        raise UserError("no command line: it starts no program", f"for example: {example}")
    return shlex.join(words), environ
