"""Open a file of the user's at a line, in the user's editor, while the wizard waits."""

import subprocess

from textual.app import App, SuspendNotSupported

from ...app.errors import UserError
from ...app.fixes.types import Place
from ...app.system.editor import editor_command


def open_in_editor(app: "App[int]", place: Place) -> None:
    """Give the terminal to the editor until it ends.

    Raises:
        UserError: No editor is known, it cannot be started, or this terminal cannot be given to it.
    """
    command = editor_command(place.path, place.line)
    try:
        with app.suspend():
            subprocess.run(command, check=False)
    except SuspendNotSupported as error:
        raise UserError("the editor cannot be started from here", " ".join(command)) from error
    except OSError as error:
        raise UserError(f"cannot start {command[0]}: {error.strerror}", "set EDITOR") from error
