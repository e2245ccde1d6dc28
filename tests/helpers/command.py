"""Run the real ``ddpwizard`` command in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.command_server import can_fork, run_forked


def ddpwizard(
    *arguments: str,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit_s: float = 180,
) -> subprocess.CompletedProcess[str]:
    """The finished command: its exit code, stdout and stderr as text."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    command = [sys.executable, "-m", "ddpwizard", *arguments]
    environ = {**os.environ, **(env or {})}
    if can_fork(arguments, environ):
        code, output, error = run_forked(arguments, given, environ, cwd or Path.cwd(), limit_s)
    else:
        done = subprocess.run(
            command, input=given, capture_output=True, env=environ, cwd=cwd, timeout=limit_s, check=False
        )
        code, output, error = done.returncode, done.stdout, done.stderr
    return subprocess.CompletedProcess(command, code, output.decode(errors="replace"), error.decode(errors="replace"))


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Assert that a command was refused with one line and no traceback, and return that line."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("ddpwizard:")]
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    return lines[0]


def loaded_modules(code: str) -> set[str]:
    """The modules a fresh interpreter has loaded after running ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json\nsys.stderr.write(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    names: list[Any] = json.loads(done.stderr.splitlines()[-1])
    return set(names)
