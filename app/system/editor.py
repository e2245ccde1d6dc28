"""The user's editor: the command line that opens a file at a line."""

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserError

COMMON = ("nano", "vim", "vi", "emacs")
WITH_GOTO = ("code", "code-insiders", "codium", "cursor", "windsurf")
WITH_COLON = ("hx", "helix", "subl", "zed", "micro", "kak")


def editor_command(path: str, line: int, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command that opens a file at a line, with ``$VISUAL`` or ``$EDITOR`` or else a common editor.

    Raises:
        UserError: No editor is set and none of the common ones is installed, or the file does not exist.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file on this machine", "open it on the machine of the job")
    given = environ.get("VISUAL") or environ.get("EDITOR") or ""
    words = shlex.split(given) if given.strip() else [next((name for name in COMMON if shutil.which(name)), "")]
    if not words[0]:
        raise UserError("no editor is known", f"set EDITOR, or open {path} at line {line}")
    name = Path(words[0]).name
    if name in WITH_GOTO:
        return [*words, "--wait", "--goto", f"{path}:{line}"]
    return [*words, f"{path}:{line}"] if name in WITH_COLON else [*words, f"+{line}", path]
