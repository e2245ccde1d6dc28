"""Source of a process's frames: only files that the process's own user may read are read, even by root."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.system import procfs

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")


@pytest.fixture
def theirs() -> Iterator[int]:
    """Return the pid of a process of another user, in a group of its own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[4711]) as process:
        yield process.pid


@pytest.mark.parametrize(
    ("mode", "owner", "group", "read"),
    [
        (0o600, 0, 0, False),
        (0o640, 0, 0, False),
        (0o644, 0, 0, True),
        (0o600, NOBODY, 0, True),
        (0o640, 0, NOBODY, True),
        (0o640, 0, 4711, True),
        (0o600, 0, NOBODY, False),
    ],
)
def test_source_is_read_by_owner_group_and_everybody_rights(
    mode: int, owner: int, group: int, read: bool, theirs: int, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = 1\n")
    os.chown(file, owner, group)
    file.chmod(mode)
    assert (procfs.source_file(theirs, str(file)) is not None) is read
