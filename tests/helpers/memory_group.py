"""A memory control group for a test."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.jobs import wait_for

VERSIONS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Make a control group of version 1 or 2 with this limit, which is removed when its processes have ended.

    Its name is unique: other tests may run in other process namespaces, in which pids are the same. Skip the test
    where no group can be made.
    """
    for mount, limit in VERSIONS:
        try:
            group = Path(tempfile.mkdtemp(prefix="ddpwizard-test-", dir=mount))
        except OSError:
            continue
        try:
            if (group / limit).exists():
                (group / limit).write_text(str(limit_bytes))
                break
        except OSError:
            pass
        group.rmdir()
    else:
        pytest.skip("no memory control group can be made here")
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text().strip(), "the control group is empty")
        group.rmdir()
