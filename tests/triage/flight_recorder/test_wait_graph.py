"""The roots of the wait-for graph: cycles, and ranks that wait for nobody."""

import subprocess
import sys

import pytest
from ddpwizard.app.triage.flight_recorder.wait_graph import WaitEdge, wait_roots

ONE_RANK_MISSING = """
import sys
from ddpwizard.app.triage.flight_recorder.wait_graph import WaitEdge, wait_roots
assert wait_roots([WaitEdge(0, ("0", ()), 1, 0, (2,), "missing")]) == [[2]]
sys.exit("networkx" in sys.modules)
"""


def edges(waits: dict[int, list[tuple[int, ...]]]) -> list[WaitEdge]:
    return [WaitEdge(rank, ("0", ()), 1, 0, ranks, "missing") for rank, found in waits.items() for ranks in found]


@pytest.mark.parametrize(
    ("waits", "roots"),
    [
        ({}, []),
        ({0: [(2,)], 1: [(2,)]}, [[2]]),
        ({0: [(1,)], 1: [(2,)], 2: [(3,)]}, [[3]]),
        ({0: [(1,)], 1: [(2,)], 2: [(0,)]}, [[0, 1, 2]]),
        ({0: [(1,)], 1: [(0,)], 2: [(0, 1)], 3: [(2,)]}, [[0, 1]]),
        ({0: [(1,)], 1: [(0,), (2,)]}, [[2]]),
        ({0: [(1,)], 1: [(0,)], 2: [(3,)], 3: [(2,)], 4: [(0, 2)]}, [[0, 1], [2, 3]]),
        ({0: [(2, 3)], 1: [(2, 3)], 2: [(0, 1)], 3: [(0, 1)]}, [[0, 1, 2, 3]]),
    ],
)
def test_wait_roots_are_cycles_and_ranks_that_wait_for_nobody(
    waits: dict[int, list[tuple[int, ...]]], roots: list[list[int]]
) -> None:
    assert wait_roots(edges(waits)) == roots


def test_cycle_of_many_ranks_is_found_without_recursion() -> None:
    ranks = 5000
    assert wait_roots(edges({rank: [((rank + 1) % ranks,)] for rank in range(ranks)})) == [list(range(ranks))]


def test_networkx_is_not_loaded_if_no_awaited_rank_waits() -> None:
    assert subprocess.run([sys.executable, "-c", ONE_RANK_MISSING], check=False).returncode == 0
