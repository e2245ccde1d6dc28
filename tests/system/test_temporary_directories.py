"""A killed wizard's temporary directory is removed by the next one; that of a living one is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.system import temporary_directories
from ddpwizard.app.system.temporary_directories import UNLOCKED_S, make_temporary_directory

MAKE = """
from ddpwizard.app.system.temporary_directories import make_temporary_directory
print(make_temporary_directory("test-"), flush=True)
input()
"""


def test_abandoned_directory_is_removed_and_a_living_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(temporary_directories, "TEMP", str(tmp_path))
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        abandoned, living = [Path(maker.stdout.readline().strip()) for maker in makers if maker.stdout]
        makers[0].kill()
        makers[0].wait()
        for path in (abandoned, living):
            (path / "file").touch()
            os.utime(path, (0, path.stat().st_mtime - 2 * UNLOCKED_S))
        own = make_temporary_directory("test-")
        assert set(tmp_path.iterdir()) == {living, own}
        assert (living / "file").exists()
    finally:
        for maker in makers:
            maker.kill()
            maker.communicate()
