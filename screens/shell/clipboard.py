"""The clipboard. A terminal does not confirm a copy, so the text is saved to a file too."""

import os
from typing import Any

from textual.app import App

from ...app.errors import UserError
from ...app.system import paths
from ...app.system.files import write_new_file
from ...app.system.subprocesses import run_process

TMUX_LIMIT_S = 2.0


async def copy_to_clipboard(app: App[Any], name: str, content: str) -> str:
    """Copy ``content`` to the clipboard and save it to a file; return a line that reports both.

    Raises:
        UserError: The state directory cannot be written.
    """
    directory = paths.state_dir() / "copied"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}", "set XDG_STATE_HOME") from error
    path = write_new_file(name, content, directory, 0o600)
    if os.environ.get("TMUX"):
        outcome = await run_process(["tmux", "load-buffer", "-w", str(path)], limit_s=TMUX_LIMIT_S)
        how = "Sent to tmux's clipboard" if outcome.status == "ok" else "tmux did not take it"
    else:
        app.copy_to_clipboard(content)
        how = "Sent to the terminal's clipboard (OSC 52)"
    return f"{how}; also saved as {path}"
