"""The process that copies the standard error of the ranks of one run (``app/agents/copy_errors.py``)."""

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "agents" / "copy_errors.py"
SOCKET_NAME = "errors.sock"  # in the directory of the run; the hook of the ranks connects to it
LIMIT_S = 2.0  # for passing on what is written, and for the end


class ErrorCopier:
    """The process, and a connection to it. Without one (it cannot be started), the ranks keep their standard error."""

    def __init__(self, private: Path) -> None:
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._place = private / SOCKET_NAME
        with suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._place))
            listener.listen()
            ours, its = socket.socketpair()
            with its:
                self._process = subprocess.Popen(
                    [sys.executable, "-IS", str(SCRIPT), str(private), str(listener.fileno()), str(its.fileno())],
                    pass_fds=[listener.fileno(), its.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a signal at the terminal is for the job
                )
            ours.settimeout(LIMIT_S)
            self._control = ours

    def wait_for_output(self) -> None:
        """Wait until what the ranks have written so far is passed on."""
        if self._control:
            with suppress(OSError):
                self._control.send(b"1")
                self._control.recv(1)

    def close(self) -> None:
        """Let it end with the last rank."""
        self._place.unlink(missing_ok=True)
        if self._control and self._process:
            self._control.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LIMIT_S)
