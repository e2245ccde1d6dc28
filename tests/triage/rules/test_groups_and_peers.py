"""The group or peer of a rank's call, and the ranks that wait for each other."""

import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage.rank_activity.rank_state import RankState, rank_states
from ddpwizard.app.triage.rules.groups_and_peers import group_of, members_of, mutual_waiters, peer_of
from helpers.synthetic_job import SCRIPT, job, observation, stack, still, verdict_of

RANKS = range(4)


def ranks_in(text: str, collective: str, line: int) -> tuple[list[RankState], ScriptFiles]:
    """Return four ranks that wait in that collective on a line of ``main``."""
    frames = stack(collective, ("<module>", 99), ("main", line))
    seen = observation(job(4), {100 + rank: still(frames) for rank in RANKS}, {SCRIPT: text})
    sources = ScriptFiles(seen.sources)
    return rank_states(seen, sources), sources


def main(*lines: str, before: str = "") -> str:
    return before + "def main():\n" + "".join(f"    {line}\n" for line in lines)


class TestGroup:
    def groups(self, *lines: str, before: str = "") -> list[str]:
        text = main(*lines, before=before)
        found, sources = ranks_in(text, "all_reduce", len(text.splitlines()))
        return [group_of(state, 4, sources) for state in found]

    @pytest.mark.parametrize(
        "call",
        [
            "dist.all_reduce(x)",
            "dist.all_reduce(x, group=None)",
            "dist.all_reduce(x, op, dist.group.WORLD)",
            "dist.all_reduce(x, group=torch.distributed.group.WORLD)",
        ],
    )
    def test_world_group_in_every_form(self, call: str) -> None:
        assert self.groups(call) == [""] * 4

    def test_groups_with_one_name_are_equal(self) -> None:
        assert len(set(self.groups("pair = dist.new_group([0, 1])", "dist.all_reduce(x, group=pair)"))) == 1

    @pytest.mark.parametrize(
        "lines",
        [
            ["dist.all_reduce(x, group=groups[rank])"],
            ["own = groups[rank]", "dist.all_reduce(x, group=own)"],
            ["a, b, c, d = make()", "dist.all_reduce(x, group=[a, b, c, d][rank])"],
            ["by = {0: a, 1: b, 2: c, 3: d}", "dist.all_reduce(x, group=by[rank])"],
            [
                "ab, bc = dist.new_group([0, 1]), dist.new_group([1, 2])",
                "cd, da = dist.new_group([2, 3]), dist.new_group([3, 0])",
                "own = {0: ab, 1: bc, 2: cd, 3: da}[rank]",
                "dist.all_reduce(x, group=own)",
            ],
            [
                "made = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([2, 3]), dist.new_group([3])]",
                "own = made[rank]",
                "dist.all_reduce(x, group=own)",
            ],
        ],
    )
    def test_group_chosen_by_rank(self, lines: list[str]) -> None:
        assert len(set(self.groups(*lines))) == 4

    def test_group_returned_by_a_helper(self) -> None:
        helper = (
            "ab, bc, ca = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([2, 0])\n"
            "def first():\n    if rank == 0:\n        return ab\n    if rank == 1:\n        return bc\n    return ca\n"
        )
        assert self.groups("dist.all_reduce(x, group=first())", before=helper) == ["ab", "bc", "ca", "ca"]

    def test_group_chosen_for_one_rank(self) -> None:
        found = self.groups("special = {2: a}", "dist.all_reduce(x, group=special.get(rank) or b)")
        assert found == ["b", "b", "a", "b"]

    def test_group_from_a_conditional_expression(self) -> None:
        assert self.groups("dist.all_reduce(x, group=a if rank < 2 else b)") == ["a", "a", "b", "b"]


def test_members_of_a_literal_group() -> None:
    text = main("pair = dist.new_group([rank, (rank + 1) % 4])", "dist.all_reduce(x, group=pair)")
    found, sources = ranks_in(text, "all_reduce", 3)
    assert [members_of(state, 4, sources) for state in found] == [{0, 1}, {1, 2}, {2, 3}, {3, 0}]


@pytest.mark.parametrize("call", ["dist.recv(x, src=(rank - 1) % 4)", "dist.recv(x, (rank - 1) % 4)"])
def test_peer_of_a_send_or_receive(call: str) -> None:
    found, sources = ranks_in(main(call), "recv", 2)
    assert [peer_of(state, 4, sources) for state in found] == [3, 0, 1, 2]


def test_ranks_that_wait_for_a_cycle_are_not_part_of_it() -> None:
    """Ranks 0 and 1 wait for each other, 2 and 3 for them."""
    text = main("dist.recv(x, src={0: 1, 1: 0, 2: 0, 3: 2}[rank])")
    found, sources = ranks_in(text, "recv", 2)
    assert [state.rank for state in mutual_waiters(found, 4, sources)] == [0, 1]
    frames = stack("recv", ("<module>", 99), ("main", 2))
    verdict = verdict_of(text, *[frames] * 4)
    assert (verdict.cause, verdict.culprits) == ("p2p-deadlock", [0, 1])
    assert verdict.confidence < 0.5


@pytest.mark.parametrize(
    ("peers", "tied"),
    [
        ("{0: 1, 1: 0, 2: 3, 3: 2}", [0, 1, 2, 3]),  # two cycles
        ("{0: 1, 1: 2, 2: 3, 3: 0}", [0, 1, 2, 3]),  # one cycle of all
        ("{0: 1, 1: 2, 2: 1, 3: 0}", [1, 2]),  # a chain into a cycle
        ("{0: 1, 1: 2, 2: 3, 3: 9}", [0, 1, 2, 3]),  # no cycle: it is unknown who waits for whom
    ],
)
def test_mutual_waiters_are_the_cycles_no_rank_of_which_waits_for_another(peers: str, tied: list[int]) -> None:
    found, sources = ranks_in(main(f"dist.recv(x, src={peers}[rank])"), "recv", 2)
    assert [state.rank for state in mutual_waiters(found, 4, sources)] == tied


def test_networkx_is_not_loaded_for_an_ordinary_hang() -> None:
    """The import would take longer than the whole verdict."""
    code = """
import sys
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import report_of, stack
text = "def main():\\n    dist.all_reduce(x)\\n    dist.barrier()\\n    dist.broadcast(x, 0)\\n"
places = [stack(name, ("main", line)) for line, name in ((2, "all_reduce"), (3, "barrier"), (4, "broadcast"))]
assert report_of(text, *places).verdict.cause == "collective-desync"
sys.exit("networkx" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=60).returncode == 0


def test_one_rank_in_another_group_at_the_same_line_is_the_culprit() -> None:
    text = main("own = world if rank == 2 else row", "dist.all_reduce(x, group=own)")
    verdict = verdict_of(text, *[stack("all_reduce", ("<module>", 99), ("main", 3))] * 4)
    assert (verdict.cause, verdict.culprits) == ("collective-desync", [2])
    assert verdict.confidence > 0.5


def test_receive_without_a_matching_send() -> None:
    text = main("if rank == 3:", "    dist.recv(x, src=0)", "dist.barrier()")
    wait = stack("barrier", ("<module>", 99), ("main", 4))
    verdict = verdict_of(text, wait, wait, wait, stack("recv", ("<module>", 99), ("main", 3)))
    assert (verdict.cause, verdict.culprits, verdict.branch) == ("p2p-deadlock", [3], f"{SCRIPT}:2")
