"""Rules for ranks in different collectives: groups, loop bounds, callers, missing ranks."""

import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage import phrases
from ddpwizard.app.triage.rank_activity.rank_state import rank_states
from ddpwizard.app.triage.types import Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, sample_at, stack, still, verdict_of

STDLIB = "/usr/lib/python3.11"
PDB = [
    StackFrame("cmdloop", f"{STDLIB}/cmd.py", 126),
    StackFrame("interaction", f"{STDLIB}/pdb.py", 363),
    StackFrame("trace_dispatch", f"{STDLIB}/bdb.py", 90),
]


def at(collective: str | None, line: int) -> list[StackFrame]:
    return stack(collective, ("<module>", 99), ("main", line))


FSDP = "/opt/venv/lib/python3.11/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_state.py"


def in_fsdp(function: str, line: int) -> list[StackFrame]:
    gather, *user = at("all_gather_into_tensor", line)
    return [gather, StackFrame(function, FSDP, 200), *user]


def test_different_sharded_layers_of_one_step_depend_on_the_data() -> None:
    text = """
def main():
    for batch in batches:
        loss = model(batch)  # FORWARD
        loss.backward()  # BACKWARD
        dist.all_reduce(loss)  # MINE
"""
    forward, backward, mine = lines_with(text, "FORWARD", "BACKWARD", "MINE")
    gather, reduce = in_fsdp("pre_forward", forward), in_fsdp("post_backward", backward)
    verdict = verdict_of(text, gather, reduce, reduce)
    assert (verdict.state, verdict.cause) == ("hung", "data-dependent-forward")
    assert verdict_of(text, gather, at("all_reduce", mine), at("all_reduce", mine)).cause == "collective-desync"


class TestGroupOrder:
    CROSSED = """
def main():
    if r == 1:  # FORK
        dist.all_reduce(t, group=dp)  # ONE
        dist.all_reduce(t, group=tp)
    else:
        if r == 0:
            dist.all_reduce(t, group=tp)  # ZERO
        dist.all_reduce(t, group=dp)  # REST
"""

    @pytest.mark.parametrize("ranks", [3, 5])
    def test_rank_test_that_only_defines_the_group_members_is_not_blamed(self, ranks: int) -> None:
        text = self.CROSSED.replace("r ==", "rank ==")
        fork, one, zero, rest = lines_with(text, "FORK", "ONE", "ZERO", "REST")
        verdict = verdict_of(text, *(at("all_reduce", line) for line in [zero, one, *[rest] * (ranks - 2)]))
        assert (verdict.cause, verdict.culprits) == ("group-order-cycle", [1])
        assert (verdict.where, verdict.branch) == (f"{SCRIPT}:{one}", f"{SCRIPT}:{fork}")

    def test_rank_test_is_blamed_if_no_other_rank_calls_that_group(self) -> None:
        text = """
def main():
    if rank == 0:
        dist.all_reduce(t, group=tp)  # HANG
    dist.all_reduce(t, group=dp)  # REST
"""
        hang, rest = lines_with(text, "HANG", "REST")
        verdict = verdict_of(text, at("all_reduce", hang), *[at("all_reduce", rest)] * 2)
        assert (verdict.cause, verdict.culprits) == ("rank-conditional-collective", [0])

    def test_group_order_by_rank_is_located_at_the_caller_of_the_helper(self) -> None:
        text = """
def sync(order):
    for group in order:
        dist.all_reduce(t, group=group)  # HANG
def main():
    sync([a, b])
    sync([a, b] if rank == 0 else [b, a])  # BRANCH
"""
        hang, branch = lines_with(text, "HANG", "BRANCH")
        verdict = verdict_of(text, *[stack("all_reduce", ("<module>", 99), ("main", branch), ("sync", hang))] * 2)
        assert (verdict.cause, verdict.branch) == ("group-order-cycle", f"{SCRIPT}:{branch}")
        assert f"their order depends on the rank, see train.py:{branch}" in verdict.why

    def test_one_call_on_a_cycle_of_groups(self) -> None:
        text = """
ab, bc, ca = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([2, 0])
def main():
    own = {0: ab, 1: bc, 2: ca}[rank]
    dist.all_reduce(t, group=own)  # HANG
"""
        (hang,) = lines_with(text, "HANG")
        verdict = verdict_of(text, *[at("all_reduce", hang)] * 3)
        assert (verdict.cause, verdict.culprits) == ("group-order-cycle", [0, 1, 2])


class TestRankDependentLoopBound:
    def verdict(self, *lines: str, ranks: int = 2):
        text = "def main():\n" + "".join(f"    {line}\n" for line in lines) + "    dist.barrier()  # AFTER\n"
        inside, after = lines_with(text, "backward()", "AFTER")
        places = [at("backward", inside)] * ranks
        places[1] = at("barrier", after)
        return verdict_of(text, *places), text

    @pytest.mark.parametrize(
        "lines",
        [
            ["n = 40 if rank == 1 else 50  # BOUND", "for x in batches(n):", "    loss(x).backward()"],
            ["n = 50", "if rank == 1:  # BOUND", "    n = 40", "for x in range(n):", "    loss(x).backward()"],
            ["for x in range(40 if dist.get_rank() == 1 else 50):  # BOUND", "    loss(x).backward()"],
            ["n = 40 if rank == 1 else 50  # BOUND", "while step < n:", "    loss(x).backward()"],
        ],
    )
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_line_of_a_rank_dependent_loop_bound_is_named(self, lines: list[str], ranks: int) -> None:
        verdict, text = self.verdict(*lines, ranks=ranks)
        assert (verdict.cause, verdict.culprits) == ("uneven-inputs", [1])
        assert verdict.branch == f"{SCRIPT}:{lines_with(text, 'BOUND')[0]}"
        assert verdict.confidence > 0.5

    @pytest.mark.parametrize(
        "lines",
        [
            ["bar = tqdm(loader) if rank == 0 else loader", "for x in bar:", "    loss(x).backward()"],
            ["loader = Loader(data, workers=0 if rank == 1 else 4)", "for x in loader:", "    loss(x).backward()"],
            ["n = 40 if rank == 3 else 50", "for x in batches(n):", "    loss(x).backward()"],
        ],
    )
    def test_other_choices_by_rank_are_not_named(self, lines: list[str]) -> None:
        assert self.verdict(*lines)[0].branch is None

    @pytest.mark.parametrize(
        ("lines", "cause"),
        [
            (
                ["for i in range(9 if rank else 8):", "    dist.all_reduce(x)  # IN"],
                "rank-conditional-collective",
            ),
            (["while error > limit:", "    error = step(x)", "    dist.all_reduce(x)  # IN"], "collective-desync"),
            (["n = rounds(args)", "for i in tqdm(range(n)):", "    dist.all_reduce(x)  # IN"], "collective-desync"),
            (["for p in model.parameters():", "    dist.all_reduce(p.grad)  # IN"], "collective-desync"),
            (["for name in files[rank::world]:", "    dist.all_reduce(x)  # IN"], "uneven-inputs"),
            (["n = len(mine)", "for i in range(n):", "    dist.all_reduce(x)  # IN"], "uneven-inputs"),
            (["while True:", "    x = next(batches)", "    dist.all_reduce(x)  # IN"], "uneven-inputs"),
            (["for i, x in enumerate(loader):", "    dist.all_reduce(x)  # IN"], "uneven-inputs"),
        ],
    )
    def test_unequal_batches_are_blamed_only_for_a_loop_over_data(self, lines: list[str], cause: str) -> None:
        text = "def main():\n" + "".join(f"    {line}\n" for line in lines) + "    dist.barrier()  # AFTER\n"
        inside, after = lines_with(text, "# IN", "AFTER")
        verdict = verdict_of(text, at("barrier", after), *[at("all_reduce", inside)] * 2)
        assert verdict.cause == cause
        assert "left the loop" in verdict.why

    def test_of_two_ranks_the_one_that_left_the_loop_is_the_culprit(self) -> None:
        verdict, _ = self.verdict("for x in loader:", "    loss(x).backward()")
        assert (verdict.cause, verdict.culprits) == ("uneven-inputs", [1])
        assert "Rank 1 has left the loop" in verdict.why


@pytest.mark.parametrize("slow", [0, 2])
@pytest.mark.parametrize("moves", [False, True])
def test_one_slow_rank_is_found_whichever_it_is(slow: int, moves: bool) -> None:
    text = f"def main():\n    if rank == {slow}:\n        time.sleep(9999)\n    dist.barrier()\n"
    samples = {100 + rank: still(at("barrier", 4)) for rank in range(3)}
    samples[100 + slow] = [sample_at(at(None, 3), t, cpu_s=t if moves else 1.0) for t in (1000.0, 1001.0)]
    verdict = judge_job(observation(job(3), samples, {SCRIPT: text})).verdict
    assert (verdict.cause, verdict.culprits, verdict.branch) == ("rank0-slow-work", [slow], f"{SCRIPT}:2")
    assert verdict.state == ("progressing" if moves else "hung")


def test_debugger_is_located_at_its_breakpoint() -> None:
    text = "def main():\n    if rank == 0:\n        breakpoint()\n    dist.barrier()\n"
    verdict = verdict_of(text, [*PDB, *at(None, 4)], at("barrier", 4))
    assert (verdict.cause, verdict.culprits) == ("rank-paused", [0])
    assert (verdict.where, verdict.branch) == (f"{SCRIPT}:3", f"{SCRIPT}:2")


def test_missing_rank_is_reported_if_no_rank_waits() -> None:
    text = "def main():\n    time.sleep(400)\n"
    verdict = judge_job(observation(job(2, [0]), {100: still(at(None, 2))}, {SCRIPT: text})).verdict
    assert (verdict.state, verdict.culprits) == ("unknown", [1])
    assert verdict.why.startswith("Rank 1 of 2 is gone")


def test_helper_called_from_two_lines_is_distinguished_by_its_callers() -> None:
    text = "def sync(x):\n    dist.all_reduce(x)\ndef main():\n    if rank == 0:\n        sync(a)\n    sync(b)\n"
    early, late = (stack("all_reduce", ("<module>", 99), ("main", line), ("sync", 2)) for line in (5, 6))
    verdict = verdict_of(text, early, late, late)
    assert (verdict.culprits, verdict.where, verdict.branch) == ([0], f"{SCRIPT}:2", f"{SCRIPT}:4")
    assert (
        "called from train.py:5. Ranks 1, 2 do not join it: they wait in the one called from train.py:6" in verdict.why
    )


@pytest.mark.parametrize(
    ("world_size", "whom"),
    [("1", "its GPU, as it is the only rank"), ("", "ranks that were not found here")],
)
def test_the_only_rank_of_a_launcher_waits_for_no_other(world_size: str, whom: str) -> None:
    text = "model = DDP(net)  # WAITS\n"
    environ = {"RANK": "0", "WORLD_SIZE": world_size} if world_size else {}
    (line,) = lines_with(text, "WAITS")
    seen = observation(job(1, None, **environ), {100: still(at("all_gather", line))}, {SCRIPT: text})
    verdict = judge_job(seen).verdict
    assert verdict.state == "hung"
    assert verdict.why.endswith(f", for {whom}.")


def test_places_text_of_several_places() -> None:
    of = job(4)
    lines = [3, 4, 4, 5]
    seen = observation(of, {100 + r: still(at("all_reduce", line)) for r, line in enumerate(lines)}, {})
    found = rank_states(seen, ScriptFiles({}))
    assert phrases.places_text(found[1:3]) == "all_reduce at train.py:4"
    assert phrases.places_text(found[:3]) == "all_reduce at train.py:3 (rank 0) and train.py:4 (ranks 1, 2)"
    assert (
        phrases.places_text(found)
        == "all_reduce at train.py:3 (rank 0), train.py:4 (ranks 1, 2) and train.py:5 (rank 3)"
    )


class TestRanksAtOnePlace:
    """All ranks wait at one line; what they call before it decides whether they are in the same call."""

    LOOP = """
def main():
    for step in range(9):
        loss = ddp(x).sum()
        {before}
        loss.backward()  # HERE
    dist.barrier()
"""
    BLAMED = ("if rank == 0 and step % 5 == 0:\n            dist.all_reduce(loss)",)
    EQUAL = (
        "dist.all_reduce(loss)",
        "if rank == 0:\n            print(loss)",
        "if step == 3:\n            dist.all_reduce(loss)",
        "if rank == 0:\n            dist.broadcast(a, 0)\n        else:\n            dist.broadcast(b, 0)",
        "if rank != 0:\n            dist.barrier()\n        load()\n        if rank == 0:\n            dist.barrier()",
        "if rank < 2:\n            dist.all_reduce(loss, group=pair)",
        "if rank == 0:\n            dist.send(loss, 1)",
    )

    def verdict(self, before: str) -> Verdict:
        text = self.LOOP.format(before=before)
        (here,) = lines_with(text, "HERE")
        return verdict_of(text, *[at("backward", here)] * 3)

    @pytest.mark.parametrize("before", BLAMED)
    def test_a_collective_that_one_rank_calls_before_it_is_blamed(self, before: str) -> None:
        verdict = self.verdict(before)
        assert (verdict.cause, verdict.culprits) == ("rank-conditional-collective", [0])
        assert verdict.branch == f"{SCRIPT}:5" and "in different calls: rank 0 calls all_reduce" in verdict.why
        assert "network" not in verdict.why

    @pytest.mark.parametrize("before", EQUAL)
    def test_equal_calls_of_all_ranks_leave_the_network(self, before: str) -> None:
        verdict = self.verdict(before)
        assert verdict.cause is None and "or the network fails" in verdict.why


STOPPING = """
from torch.utils.data import DataLoader, DistributedSampler
def main():
    loader = DataLoader(data, batch_size=4, SAMPLER)
    for epoch in range(epochs):
        for x in loader:
            loss(x).backward()  # IN
        if bad > patience:  # STOP
            break
    dist.barrier()  # AFTER
"""


@pytest.mark.parametrize(
    ("sampler", "cause", "left"),
    [
        ("sampler=DistributedSampler(data)", "per-rank-decision", "range(epochs)"),
        ("sampler=mine", "uneven-inputs", "in loader"),
        ("shuffle=True", "uneven-inputs", "in loader"),
    ],
)
def test_loop_left_by_a_condition_around_equal_batches(sampler: str, cause: str, left: str) -> None:
    text = STOPPING.replace("SAMPLER", sampler)
    inside, stop, after, loop = lines_with(text, "# IN", "STOP", "AFTER", left)
    verdict = verdict_of(text, at("barrier", after), at("backward", inside))
    assert (verdict.cause, verdict.culprits) == (cause, [0])
    assert f"train.py:{loop}" in verdict.why
    assert verdict.branch == (f"{SCRIPT}:{stop}" if cause == "per-rank-decision" else None)


def test_loop_left_by_one_condition_among_numbers() -> None:
    text = """
def main():
    for step in range(1000):
        loss(x).backward()  # IN
        if seconds() > budget:  # STOP
            break
    dist.barrier()  # AFTER
"""
    inside, stop, after = lines_with(text, "# IN", "STOP", "AFTER")
    verdict = verdict_of(text, at("barrier", after), at("backward", inside))
    assert (verdict.cause, verdict.branch) == ("per-rank-decision", f"{SCRIPT}:{stop}")
    assert verdict.findings[-1] == "job.loop-left-by-condition"
