"""Run the real ``ddpwizard`` command in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def ddpwizard(
    *arguments: str,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit_s: float = 180,
) -> subprocess.CompletedProcess[str]:
    """The finished command: its exit code, stdout and stderr as text."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "ddpwizard", *arguments],
        input=given,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=limit_s,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


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
