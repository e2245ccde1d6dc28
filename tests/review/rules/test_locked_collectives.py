"""DW471: collectives under a lock that ranks share, and patches that would make one there."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers import two_ranks
from helpers.review_snippets import KNOWLEDGE, apply_fixes, lines, script

START = """
import contextlib
import fcntl
from filelock import FileLock
dist.init_process_group("gloo")
rank = dist.get_rank()
file = open("cache.lock", "a")
shared = FileLock("cache.lock")
own = FileLock(f"cache.{rank}.lock")

def build():
    dist.barrier()

def take():
    fcntl.flock(file, fcntl.LOCK_EX)

def give():
    fcntl.flock(file, fcntl.LOCK_UN)

@contextlib.contextmanager
def locked(path):
    with open(path, "a") as held:
        fcntl.lockf(held.fileno(), fcntl.LOCK_EX)
        yield
"""
WAITING = [
    "with shared:\n    dist.barrier()",
    "with FileLock('other.lock'):\n    build()",
    "with shared.acquire():\n    dist.barrier()",
    "shared.acquire()\ntry:\n    dist.barrier()\nfinally:\n    shared.release()",
    "fcntl.flock(file, fcntl.LOCK_EX)\ndist.barrier()\nfcntl.flock(file, fcntl.LOCK_UN)",
    "take()\ndist.barrier()\ngive()",
    "with locked('other.lock'):\n    dist.barrier()",
    "with accelerator.main_process_first():\n    dist.barrier()",
]
PASSING = [
    "with own:\n    dist.barrier()",
    "with shared:\n    pass\ndist.barrier()",
    "shared.acquire()\nshared.release()\ndist.barrier()",
    "fcntl.flock(file, fcntl.LOCK_SH)\ndist.barrier()",
    "fcntl.flock(file, fcntl.LOCK_EX)\nfcntl.flock(file, fcntl.LOCK_UN)\ndist.barrier()",
    "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\ndist.barrier()",
    "fcntl.flock(file, fcntl.LOCK_EX)\nfile.close()\ndist.barrier()",
    "take()\ngive()\ndist.barrier()",
    "with locked('other.lock'):\n    pass\ndist.barrier()",
    "if rank == 0:\n    with shared:\n        dist.barrier()\nelse:\n    dist.barrier()",
]
CACHE = """
import threading
from filelock import FileLock
dist.init_process_group("gloo")
MADE
def load():
    TAKE
        if not os.path.exists("cache.pt"):
            torch.save(torch.ones(3), "cache.tmp")
            dist.barrier()
            os.rename("cache.tmp", "cache.pt")
load()
"""


@pytest.mark.parametrize("code", WAITING)
def test_collective_under_shared_lock(code: str) -> None:
    assert lines(START + code, "DW471") in (["dist.barrier()"], ["build()"])


@pytest.mark.parametrize("code", PASSING)
def test_collective_without_shared_lock(code: str) -> None:
    assert lines(START + code, "DW471") == []


@pytest.mark.jobs
@pytest.mark.parametrize(("code", "hangs"), [(WAITING[4], True), (PASSING[4], False)])
def test_two_ranks_hang_where_it_is_found(code: str, hangs: bool, tmp_path: Path) -> None:
    start = "import fcntl\n" + two_ranks.START + 'file = open("cache.lock", "a")\n'
    (tmp_path / "train.py").write_text(start + code + two_ranks.END)
    run = two_ranks.on_two_ranks(tmp_path, wait_s=4)
    assert (run.code != 0) is hangs, run.log


@pytest.mark.parametrize(
    ("made", "take"),
    [
        ("lock = FileLock('cache.lock')", "with lock:"),
        ("lock = threading.Lock()", "with lock:"),
        ("", "with hub.cache_lock():"),
    ],
)
def test_no_patch_makes_collective_under_lock(made: str, take: str) -> None:
    text = script(CACHE.replace("MADE", made).replace("TAKE", take))
    after, _ = apply_fixes(text)
    assert after.count("dist.all_reduce") == 0
    (finding,) = review_text(text, "train.py", KNOWLEDGE, ["DW406"])
    assert finding.fix
    assert "under the lock of line" in (finding.fix.why_unsafe or "")


def test_patch_without_lock() -> None:
    after, _ = apply_fixes(script(CACHE.replace("MADE", "").replace("TAKE", "if True:")))
    assert after.count("dist.all_reduce") == 1
