"""Processes are ended with all their descendants, also those that ignore SIGTERM or start meanwhile."""

import subprocess
import sys
from pathlib import Path

from ddpwizard.app.system.procfs import process_of
from ddpwizard.app.system.supervisor import descendants
from ddpwizard.app.system.terminate import terminate_processes
from helpers.jobs import wait_for

LAUNCHER = """
import os, signal, subprocess, sys, time
IGNORES = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
def on_term(number, frame):
    subprocess.Popen(IGNORES, start_new_session=True)
    time.sleep(1)
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
subprocess.Popen(IGNORES, start_new_session=True)
open(sys.argv[1], "w").close()
while True:
    time.sleep(600)
"""


def test_descendants_are_ended_with_a_process(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(ready)])
    wait_for(ready.exists, "the launcher")
    (below,) = wait_for(lambda: descendants(child.pid), "its process")
    ended = terminate_processes([child.pid], grace_s=5)
    assert ended == (3, [])
    assert not (proc := process_of(below)) or proc.state == "Z"
    assert child.wait() == 0


def test_a_process_that_has_ended_is_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert terminate_processes([child.pid]) == (0, [])
