"""The verdict on recorded data: a pure function of processes, samples and source text."""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.launchers.arguments import LaunchRequest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import Launcher, ProcessDeath, RankRow, Sample, Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, sample_at, stack, still, verdict_of

TWO_LINES = """
def main():
    dist.all_reduce(x)
    dist.barrier()
main()
"""


def under(condition: str) -> str:
    """A script with an all_reduce under a condition and a barrier after it."""
    head, tail = f"def main():\n    {condition}\n", "    dist.barrier()  # PEERS\nmain()  # CALL\n"
    return head + "        dist.all_reduce(x)  # HANG\n" + tail


def rows_and_verdict(
    of: Job, samples: dict[int, list[Sample]], sources: dict[str, str]
) -> tuple[list[RankRow], Verdict]:
    report = judge_job(observation(of, samples, sources))
    return report.ranks, report.verdict


class TestRankConditions:
    def both(self, text: str, inner: str = "HANG", ranks: int = 4, culprit: int = 0):
        """Return the verdict for one rank in an all_reduce of ``main``, the others in a barrier further on."""
        hang, peers, call = lines_with(text, inner, "PEERS", "main()  # CALL")
        places = [stack("barrier", ("<module>", call), ("main", peers)) for _ in range(ranks)]
        places[culprit] = stack("all_reduce", ("<module>", call), ("main", hang))
        return verdict_of(text, *places), f"{SCRIPT}:{hang}"

    @pytest.mark.parametrize(
        "condition",
        [
            "if rank == 0:",
            "if not rank:",
            "if rank < 1:",
            "if dist.get_rank() == 0:",
            "if int(os.environ['RANK']) == 0:",
            'if os.environ.get("LOCAL_RANK", "0") == "0":',
            "if args.local_rank in (-1, 0):",
            "if accelerator.is_main_process:",
            "if is_main_process() and step % 10 == 0:",
            "if not dist.is_initialized() or dist.get_rank() == 0:",
            "if rank % world_size == 0 and enabled:",
            "while rank == 0:",
            "if debug and rank == 0:",
        ],
    )
    def test_rank_condition_is_found_in_every_form(self, condition: str) -> None:
        text = under(condition)
        verdict, where = self.both(text)
        assert (verdict.state, verdict.cause) == ("hung", "rank-conditional-collective")
        assert (verdict.culprits, verdict.where, verdict.branch) == ([0], where, f"{SCRIPT}:2")
        assert verdict.confidence >= 0.85

    @pytest.mark.parametrize(
        "condition",
        ["if step == 3:", "if rank == 2:", "if rank >= 0:", "if dist.get_world_size() > 1:", "if loss < limit:"],
    )
    def test_condition_that_does_not_separate_these_ranks_is_not_blamed(self, condition: str) -> None:
        text = under(condition)
        verdict, where = self.both(text)
        assert (verdict.state, verdict.cause, verdict.branch) == ("hung", "collective-desync", None)
        assert (verdict.culprits, verdict.where) == ([0], where)

    def test_alias_of_the_rank_test(self) -> None:
        text = """
chatty = int(os.environ["RANK"]) == 3
def main():
    if chatty:
        dist.all_reduce(x)  # HANG
    dist.barrier()  # PEERS
main()  # CALL
"""
        verdict, _ = self.both(text, culprit=3)
        assert (verdict.culprits, verdict.branch) == ([3], f"{SCRIPT}:4")

    def test_else_of_the_rank_test(self) -> None:
        text = """
def main():
    if rank != 0:
        log(x)
    else:
        dist.all_reduce(x)  # HANG
    dist.barrier()  # PEERS
main()  # CALL
"""
        verdict, _ = self.both(text)
        assert (verdict.culprits, verdict.branch) == ([0], f"{SCRIPT}:3")

    @pytest.mark.parametrize("line", ["dist.all_reduce(x) if rank == 0 else None", "rank == 0 and dist.all_reduce(x)"])
    def test_condition_on_the_line_of_the_collective(self, line: str) -> None:
        text = f"def main():\n    {line}  # HANG\n    dist.barrier()  # PEERS\nmain()  # CALL\n"
        verdict, _ = self.both(text)
        assert (verdict.culprits, verdict.branch) == ([0], f"{SCRIPT}:2")

    def test_break_out_of_a_loop_on_one_rank(self) -> None:
        text = """
def main():
    for step in range(9):
        if rank == 2 and step == 4:
            break
        dist.barrier()  # PEERS
    dist.all_reduce(x)  # HANG
main()  # CALL
"""
        verdict, where = self.both(text, culprit=2)
        assert (verdict.cause, verdict.culprits) == ("rank-conditional-collective", [2])
        assert (verdict.where, verdict.branch) == (where, f"{SCRIPT}:4")

    def test_of_two_ranks_the_one_under_its_condition_is_the_culprit(self) -> None:
        text = under("if rank == 0:")
        verdict, _ = self.both(text, ranks=2)
        assert verdict.culprits == [0]
        assert verdict.confidence > 0.5

    def test_rank_outside_the_condition_is_the_culprit_if_most_are_under_it(self) -> None:
        text = """
def main():
    if rank != 0:
        dist.barrier()  # PEERS
    dist.all_reduce(x)  # HANG
main()  # CALL
"""
        verdict, where = self.both(text)
        assert (verdict.culprits, verdict.where, verdict.branch) == ([0], where, f"{SCRIPT}:3")


class TestTies:
    def test_tied_ranks_are_all_culprits_with_low_confidence(self) -> None:
        reduce, barrier = stack("all_reduce", ("main", 3)), stack("barrier", ("main", 4))
        verdict = verdict_of(TWO_LINES, reduce, reduce, barrier, barrier)
        assert verdict.culprits == [0, 1, 2, 3]
        assert verdict.confidence < 0.5
        assert verdict.state == "hung"

    def test_both_blocks_of_one_condition(self) -> None:
        text = "def main():\n    if rank == 0:\n        dist.all_reduce(x)\n    else:\n        dist.barrier()\n"
        verdict = verdict_of(text, stack("all_reduce", ("main", 3)), stack("barrier", ("main", 5)))
        assert verdict.culprits == [0, 1]
        assert verdict.confidence < 0.5
        assert verdict.branch == f"{SCRIPT}:2"

    def test_three_places(self) -> None:
        places = [stack("all_reduce", ("main", 3)), stack("barrier", ("main", 4)), stack("broadcast", ("main", 4))]
        verdict = verdict_of(TWO_LINES, *places, places[0])
        assert verdict.culprits == [1, 2]

    def test_blocks_with_the_same_collective_belong_together(self) -> None:
        text = "def main():\n    if rank == 0:\n        dist.broadcast(x, 0)\n    else:\n        dist.broadcast(y, 0)\n"
        verdict = verdict_of(text, *(stack("broadcast", ("main", 3 if rank == 0 else 5)) for rank in range(4)))
        assert (verdict.state, verdict.culprits, verdict.cause) == ("hung", [], None)
        assert verdict.findings == ["job.same-collective"]


class TestLoops:
    TEXT = """
def main():
    for batch in loader:
        loss = model(batch)
        loss.backward()
    dist.barrier()
main()
"""

    def test_one_rank_left_the_loop_early(self) -> None:
        inside, after = stack("backward", ("main", 5)), stack("barrier", ("main", 6))
        verdict = verdict_of(self.TEXT, inside, inside, after, inside)
        assert (verdict.cause, verdict.culprits, verdict.where) == ("uneven-inputs", [2], f"{SCRIPT}:6")
        assert "Rank 2 has left the loop at train.py:3" in verdict.why

    def test_one_rank_stayed_in_the_loop(self) -> None:
        inside, after = stack("backward", ("main", 5)), stack("barrier", ("main", 6))
        verdict = verdict_of(self.TEXT, after, inside, after)
        assert (verdict.cause, verdict.culprits, verdict.where) == ("uneven-inputs", [1], f"{SCRIPT}:5")


class TestNoContradiction:
    def test_all_ranks_at_one_place(self) -> None:
        verdict = verdict_of(TWO_LINES, *(stack("all_reduce", ("main", 3)) for _ in range(3)))
        assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", None, [])
        assert verdict.where == f"{SCRIPT}:3"

    @pytest.mark.parametrize(
        "second",
        [
            {"cpu_s": 2.0},  # burns CPU
            {"switches": 90},  # sleeps and wakes
            {"state": "R"},  # would run, had it a core
        ],
    )
    def test_a_rank_at_work_is_never_called_hung(self, second: dict[str, Any]) -> None:
        busy, waiting = stack(None, ("main", 3)), stack("barrier", ("main", 4))
        samples = {
            100: [sample_at(busy, 1000.0), sample_at(busy, 1001.0, **second)],
            101: still(waiting),
            102: still(waiting),
        }
        verdict = judge_job(observation(job(3), samples, {SCRIPT: TWO_LINES})).verdict
        assert (verdict.state, verdict.cause, verdict.culprits) == ("progressing", "rank0-slow-work", [0])

    def test_cpu_time_is_no_sign_of_progress_with_a_gpu(self) -> None:
        place = stack(None, ("main", 3))
        spinning = [msgspec.structs.replace(sample_at(place, at, cpu_s=at), gpu=True) for at in (1000.0, 1001.0)]
        verdict = judge_job(observation(job(2), {100: spinning, 101: spinning}, {SCRIPT: TWO_LINES})).verdict
        assert verdict.state == "unknown"

    def test_loop_of_collectives_that_advances_is_progress(self) -> None:
        place = stack("all_reduce", ("main", 3))
        turning = [sample_at(place, 1000.0), sample_at(place, 1001.0, switches=4000)]
        rows, verdict = rows_and_verdict(job(2), {100: turning, 101: turning}, {SCRIPT: TWO_LINES})
        assert verdict.state == "progressing"
        assert {row.state for row in rows} == {"running"}

    def test_computing_backward_is_no_collective(self) -> None:
        place = stack("backward", ("main", 3))
        working = [sample_at(place, 1000.0), sample_at(place, 1001.0, cpu_s=2.0)]
        rows, _ = rows_and_verdict(job(2), {100: working, 101: working}, {})
        assert {row.collective for row in rows} == {None}


class TestMissingRanks:
    INIT = stack("init_process_group", ("main", 3))

    def test_missing_rank_at_start_up(self) -> None:
        samples = {100: still(self.INIT), 101: still(self.INIT)}
        rows, verdict = rows_and_verdict(job(3, [0, 1]), samples, {})
        assert (verdict.cause, verdict.culprits) == ("ranks-missing-at-init", [2])
        assert rows[2].state == "missing"

    @pytest.mark.parametrize(("age_s", "state"), [(2.0, "starting"), (7.9, "starting"), (8.0, "hung")])
    def test_missing_rank_within_the_first_seconds(self, age_s: float, state: str) -> None:
        young = job(3, [0, 1])
        young = msgspec.structs.replace(
            young, processes=[msgspec.structs.replace(p, started_at=1001.0 - age_s) for p in young.processes]
        )
        assert judge_job(observation(young, {100: still(self.INIT), 101: still(self.INIT)}, {})).verdict.state == state

    @pytest.mark.parametrize(
        ("function", "age_s", "state"),
        [
            ("next_rendezvous", 20.0, "starting"),
            ("next_rendezvous", 61.0, "hung"),
            ("_create_tcp_store", 7.0, "starting"),
            ("_create_tcp_store", 20.0, "hung"),
        ],
    )
    def test_only_node_of_a_busy_machine_is_starting_for_a_minute(
        self, function: str, age_s: float, state: str
    ) -> None:
        frame = StackFrame(function, "/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", 10)
        launcher = Launcher(host="here", age_s=age_s, stack=[frame])
        waiting = msgspec.structs.replace(job(2, []), asked=LaunchRequest(least_nodes=1, most_nodes=1))
        observed = msgspec.structs.replace(observation(waiting, {}, {}), launchers=[launcher])
        assert judge_job(observed).verdict.state == state

    def test_ranks_on_other_hosts_are_not_culprits(self) -> None:
        here = job(4, [0, 1], LOCAL_WORLD_SIZE="2")
        rows, verdict = rows_and_verdict(here, {100: still(self.INIT), 101: still(self.INIT)}, {})
        assert (verdict.cause, verdict.culprits) == (None, [])
        assert "job.waiting-at-init" in verdict.findings
        assert [row.state for row in rows] == ["waiting", "waiting", "unreadable", "unreadable"]

    def test_all_ranks_present_and_waiting_has_no_cause(self) -> None:
        verdict = judge_job(observation(job(2), {100: still(self.INIT), 101: still(self.INIT)}, {})).verdict
        assert (verdict.state, verdict.cause, verdict.findings) == ("hung", None, ["job.waiting-at-init"])

    def test_rank_died_while_the_others_wait(self) -> None:
        wait = stack("barrier", ("main", 4))
        ended = [sample_at(wait, 1000.0), Sample(at=1001.0, process_state="", cpu_s=0, switches=0)]
        rows, verdict = rows_and_verdict(job(2), {100: still(wait), 101: ended}, {SCRIPT: TWO_LINES})
        assert (verdict.cause, verdict.culprits, rows[1].state) == ("rank-died-survivors-wait", [1], "dead")

    def test_zombie_rank_is_dead(self) -> None:
        wait = stack("barrier", ("main", 4))
        rows, verdict = rows_and_verdict(job(2), {100: still(wait), 101: still([], "Z")}, {SCRIPT: TWO_LINES})
        assert (verdict.culprits, rows[1].state) == ([1], "zombie")

    @pytest.mark.parametrize("killed", [False, True], ids=["perhaps as it should", "killed"])
    def test_all_ranks_dead(self, killed: bool) -> None:
        deaths = [ProcessDeath(pid=101, rank=1, how="signal", what="SIGKILL", where="kernel log")] if killed else []
        seen = observation(job(2), {100: still([], "Z"), 101: still([], "")}, {})
        verdict = judge_job(msgspec.structs.replace(seen, deaths=deaths)).verdict
        assert (verdict.state, verdict.findings) == ("dead", ["job.rank-dead"] if killed else [])
        assert verdict.is_failure is killed, verdict.why

    def test_no_rank_started(self) -> None:
        assert judge_job(observation(job(1, []), {}, {})).verdict.state == "starting"


class TestOtherStates:
    def test_stopped_rank_is_the_culprit(self) -> None:
        wait, halted = stack("barrier", ("main", 4)), stack(None, ("main", 3))
        rows, verdict = rows_and_verdict(job(2), {100: still(wait), 101: still(halted, "T")}, {SCRIPT: TWO_LINES})
        assert (verdict.cause, verdict.culprits, verdict.where) == ("rank-paused", [1], f"{SCRIPT}:3")
        assert rows[1].state == "stopped"

    def test_blocked_in_the_kernel(self) -> None:
        reading = stack(None, ("main", 3))
        rows, verdict = rows_and_verdict(job(1), {100: still(reading, "D")}, {SCRIPT: TWO_LINES})
        assert (rows[0].state, verdict.state) == ("blocked_io", "unknown")

    def test_unreadable_stacks_are_never_healthy(self) -> None:
        refused = [sample_at([], at, problem="stack: not permitted") for at in (1000.0, 1001.0)]
        rows, verdict = rows_and_verdict(job(2), {100: refused, 101: refused}, {})
        assert verdict.state == "unknown"
        assert {row.state for row in rows} == {"unreadable"}
        assert "not permitted" in verdict.why

    def test_unmatched_point_to_point(self) -> None:
        places = [stack("send", ("main", 3)), stack("send", ("main", 4))]
        verdict = verdict_of(TWO_LINES, *places)
        assert (verdict.cause, verdict.culprits) == ("p2p-deadlock", [0, 1])
        assert verdict.confidence < 0.5

    def test_missing_or_invalid_source(self) -> None:
        for text in ("", "def broken(:"):
            verdict = verdict_of(text, stack("all_reduce", ("main", 3)), *[stack("barrier", ("main", 4))] * 2)
            assert (verdict.culprits, verdict.branch, verdict.cause) == ([0], None, "collective-desync")
