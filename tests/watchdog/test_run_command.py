"""``ddpwizard run`` with commands that are no distributed jobs: descriptors, signals, warnings, what it prints."""

import os
import subprocess
import sys
from pathlib import Path

from helpers.jobs import wait_for
from helpers.pseudo_terminal import Terminal, marked

RUN = [sys.executable, "-m", "ddpwizard", "run", "--"]
WAIT = "import signal; print('ready', flush=True); signal.pause()"


def test_closed_terminal_ends_the_job_where_the_wizard_is_session_leader() -> None:
    with Terminal([*RUN, sys.executable, "-c", WAIT]) as terminal:
        terminal.wait_for("ready")
        terminal.close()
        wait_for(lambda: not marked(terminal.mark), "wizard and job have ended", 30)


def test_inherited_descriptors_reach_the_job_and_ours_do_not(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"through the pipe")
    os.close(write)
    show = (
        "import os, sys; print(os.read(int(sys.argv[1]), 100).decode(), sorted(map(int, os.listdir('/proc/self/fd'))))"
    )
    done = subprocess.run(
        [*RUN, sys.executable, "-c", show, str(read)], capture_output=True, text=True, pass_fds=[read], check=False
    )
    os.close(read)
    listing = read + 1 if read == 3 else 3  # of os.listdir itself
    assert done.stdout == f"through the pipe {sorted([0, 1, 2, listing, read])}\n", done.stderr


def test_messages_at_a_terminal_are_wrapped_below_their_first_line() -> None:
    with Terminal([*RUN, "true"], columns=60) as terminal:
        assert terminal.wait_exit(30) == 0
        lines = [line for line in terminal.text.splitlines() if line]
    assert lines[0].startswith("ddpwizard: watching; diagnoses after 5 min without")
    assert lines[1].startswith("  ") and "kill -USR1" in " ".join(lines)
