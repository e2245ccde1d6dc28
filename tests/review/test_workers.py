"""Work in several processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from ddpwizard.app.review.workers import work_on


def squares(work: Callable[[int], str], items: int = 50) -> list[str]:
    """Return the results of two processes."""
    return work_on(range(items), work, lambda item: f"killed at {item}", lambda done: None, workers=2)


def test_results_are_in_order_and_come_from_other_processes() -> None:
    results = squares(lambda item: f"{item} {os.getpid()}")
    assert [int(result.split()[0]) for result in results] == list(range(50))
    pids = {int(result.split()[1]) for result in results}
    assert os.getpid() not in pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_process_that_dies_costs_its_item_only() -> None:
    def work(item: int) -> str:
        if item in (0, 7, 8, 49):
            os.kill(os.getpid(), signal.SIGKILL)
        return str(item)

    lost = (0, 7, 8, 49)
    assert squares(work) == [f"killed at {item}" if item in lost else str(item) for item in range(50)]


# In a process of its own: under the limit no thread of the test worker could open a file.
FEW_DESCRIPTORS = """\
import os, resource, sys
from ddpwizard.app.review.workers import work_on

lowest = os.open(os.devnull, os.O_RDONLY)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
pids = work_on(range(10), lambda item: os.getpid(), lambda item: -1, lambda done: None, workers=2)
print(len(pids), set(pids) == {os.getpid()})
"""


@pytest.mark.parametrize("free", [0, 3, 12])
def test_work_goes_on_with_the_processes_that_can_be_started(free: int) -> None:
    """A process needs about six descriptors at its start, and keeps fewer."""
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(free)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["10", str(free < 6)]


def test_interrupt_kills_the_processes() -> None:
    def tick(done: int) -> None:
        raise KeyboardInterrupt

    def work(item: int) -> str:
        signal.pause()
        return ""

    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(KeyboardInterrupt):
        work_on(range(4), work, str, tick, workers=2)
    assert set(psutil.Process().children(recursive=True)) <= before
