"""Run the plain wizard on a recorded machine, in a process of its own: what this machine has does not matter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ddpwizard.app.options import Options
from ddpwizard.screens.plain.wizard import run_plain

from .recorded_state import RecordedMachine

TESTS = Path(__file__).parent.parent
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from helpers.recorded_plain import main; main()"


def plain_wizard(
    screen: str = "home", *, stdin: str | bytes = "", cwd: Path | None = None, id: str = "last", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Return the finished wizard, begun at ``screen`` with these ``Options`` and fed with ``stdin``."""
    request = json.dumps({"screen": screen, "arguments": {"id": id}, "options": options})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(TESTS), request],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=dict(os.environ),
        cwd=cwd,
        timeout=180,
        check=False,
    )
    texts = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def main() -> None:
    """Run the wizard as the last argument asks."""
    request = json.loads(sys.argv[1])
    state = RecordedMachine(Options(plain=True, **request["options"]))
    sys.exit(run_plain(request["screen"], state, request["arguments"]))
