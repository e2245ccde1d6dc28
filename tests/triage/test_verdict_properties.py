"""Properties that hold for the verdict on any state of the ranks."""

import random
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.training_script.collectives import WAITING_CALLS
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import Child, Sample, ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import BACKWARD, SCRIPT, job, observation, sample_at, stack

SCRIPTS = sorted((Path(__file__).parent.parent / "real_jobs" / "scripts").glob("*.py"))
STDLIB = "/usr/lib/python3.11"
INNER: list[list[StackFrame]] = [
    [],
    BACKWARD,
    [StackFrame("get", f"{STDLIB}/queue.py", 171)],
    [StackFrame("_shutdown", f"{STDLIB}/threading.py", 1590)],
    [StackFrame("recv_into", f"{STDLIB}/ssl.py", 1166)],
    [StackFrame("__next__", "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 741)],
    [StackFrame("_bootstrap", f"{STDLIB}/multiprocessing/process.py", 314)],
]


def anywhere(rng: random.Random, lines: int) -> list[StackFrame]:
    """Return a random stack, plausible or not."""
    user = [
        (rng.choice(["<module>", "main", "step", "T.run"]), rng.randint(0, lines + 2)) for _ in range(rng.randint(0, 4))
    ]
    collective = rng.choice([None, None, *sorted(WAITING_CALLS)])
    return [*([] if collective else rng.choice(INNER)), *stack(collective, *user)]


def random_samples(rng: random.Random, lines: int) -> list[Sample]:
    places = [anywhere(rng, lines) for _ in range(rng.randint(1, 3))]
    found: list[Sample] = []
    for number in range(rng.randint(0, 4)):
        sample = sample_at(
            rng.choice(places),
            1000.0 + number,
            state=rng.choice("SSSSSSRDTZ") if rng.random() < 0.95 else "",
            cpu_s=rng.choice([1.0, 1.0, number * 0.8]),
            switches=rng.choice([5, 5, number * 300]),
            problem="stack: not permitted" if rng.random() < 0.05 else "",
        )
        others = [ThreadStack("t", anywhere(rng, lines))] if rng.random() < 0.3 else []
        found.append(msgspec.structs.replace(sample, others=others, gpu=rng.random() < 0.2))
    return found


@pytest.mark.parametrize("seeds", [range(start, start + 30) for start in range(0, 300, 30)])
def test_random_states_always_have_a_consistent_verdict(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        text = rng.choice(SCRIPTS).read_text()
        world = rng.randint(1, 5)
        present = [rank for rank in range(world) if rng.random() < 0.9]
        samples = {100 + rank: random_samples(rng, len(text.splitlines())) for rank in present}
        seen = observation(job(world, present), samples, {SCRIPT: text} if rng.random() < 0.9 else {})
        child = Child(pid=9, command=["tar"], kind="other", process_state="S", moved=rng.random() < 0.5)
        seen = msgspec.structs.replace(
            seen, seen=[msgspec.structs.replace(s, children=[child] if rng.random() < 0.2 else []) for s in seen.seen]
        )
        report = judge_job(seen)
        verdict = report.verdict
        assert [row.rank for row in report.ranks] == list(range(world))
        assert verdict.culprits == sorted(set(verdict.culprits))
        assert set(verdict.culprits) <= set(range(world))
        assert 0 < verdict.confidence < 1
        assert verdict.why.endswith("."), seed
        if verdict.state in ("starting", "unknown"):
            assert (verdict.cause, verdict.culprits) == (None, [])
        if verdict.branch:
            assert verdict.branch.startswith(SCRIPT)
        assert judge_job(seen).verdict == verdict


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 150 + "rank" + ")" * 150 + "\nif x == 0:\n    dist.barrier()\n",
        "x = " + "-" * 4000 + "rank\nif x == 0:\n    dist.barrier()\n",
        "a = b\nb = a\nif a == b == 0:\n    dist.barrier()\n",
        "".join(f"a{n} = a{n + 1} + a{n + 1}\n" for n in range(40)) + "if a0 == 0:\n    dist.barrier()\n",
        "if rank << 99999999999 == 'x' * 99999999999:\n    dist.barrier()\n",
        "def f():\n    return f()\nif f():\n    dist.barrier()\n",
        "\0\0\0",
        "if rank == 0:\n",
    ],
)
def test_hostile_source_neither_fails_nor_delays_the_verdict(text: str) -> None:
    line = max(len(text.splitlines()), 1)
    places = [stack("barrier", ("<module>", line)), stack("all_reduce", ("<module>", 1)), stack(None, ("<module>", 2))]
    samples = {100 + rank: [sample_at(frames, at) for at in (1000.0, 1001.0)] for rank, frames in enumerate(places)}
    assert judge_job(observation(job(3), samples, {SCRIPT: text})).verdict.why
    assert judge_job(observation(job(2), {100: samples[100], 101: samples[101]}, {SCRIPT: text})).verdict.why
