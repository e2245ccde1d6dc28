"""Facts that are kept on their way through wrappers, decorators, closures, loops by hand and deep calls."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.loop_forms import as_for
from ddpwizard.app.training_script.model.divergences import divergences
from ddpwizard.app.training_script.model.evaluated import Evaluated
from helpers.diverging_programs import source
from helpers.review_snippets import found, lines

INVOKE = "def invoke(function, *args, **kwargs):\n    return function(*args, **kwargs)\n"
TIMED = """\
import functools, time
def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result
    return wrapper
"""
WORK = "@timed\ndef work(x):\n    return x\n"
JOINED = """\
model = DDP(torch.nn.Linear(2, 1))
def fit(batches):
    for x in batches:
        model(x).sum().backward()
"""
DIVERGED = {
    "rounds that differ between ranks": JOINED + "fit(data[: 3 + rank])\n",
    "a function that gets the collective": INVOKE + "if rank == 0:\n    invoke(dist.barrier)\n",
    "a decorator of many functions": TIMED
    + "".join(WORK.replace("work", f"work{number}") for number in range(6))
    + "@timed\ndef report():\n    dist.barrier()\nif rank == 0:\n    report()\n",
    "an exit behind many calls": "def a(x):\n    if x.item() > 3:\n        return\n    dist.all_reduce(x)\n"
    + "".join(f"def {name}(x):\n    {inner}(x)\n" for name, inner in ("ba", "cb", "dc", "ed", "fe"))
    + "for x in DataLoader(data, sampler=DistributedSampler(data)):\n    f(x[0, 0])\n",
    "a flag of the function around": "".join(
        [
            "def fit(rank):\n    first = False\n    def look():\n        nonlocal first\n        first = rank == 0\n",
            "    look()\n    if first:\n        dist.barrier()\nfit(rank)\n",
        ]
    ),
    "a rank through a queue": "import queue\nbox = queue.Queue()\nbox.put(rank)\nif box.get() == 0:\n"
    "    dist.barrier()\n",
    "a case of a truth": "match rank == 0:\n    case True:\n        dist.barrier()\n",
    "a case of a rank, by its name": "match rank:\n    case 0 | 1 as low if low < 1:\n        dist.barrier()\n",
    "arguments of a namespace": "from types import SimpleNamespace\ndef wait(me, size):\n    if me == 0:\n"
    "        dist.barrier()\nwait(**vars(SimpleNamespace(me=rank, size=world)))\n",
    "arguments that are unpacked": "def wait(size, me, other=None):\n    if me == 0:\n        dist.barrier()\n"
    "wait(*(world, rank))\n",
}
TOGETHER = {
    "rounds in a function that is called where ranks join": JOINED + "with model.join():\n    fit(data[: 3 + rank])\n",
    "a backward pass in a function that is called where nothing is synchronised": JOINED
    + "def back(loss):\n    loss.backward()\nloss = model(data[0]).sum()\nif rank == 0:\n    with model.no_sync():\n"
    "        back(loss)\n",
    "a default behind arguments that are unpacked": "def run(me, steps=3):\n    for step in range(steps):\n"
    "        dist.barrier()\nrun(*(rank,))\n",
    "a case of a size": "match world > 1:\n    case True:\n        dist.barrier()\n    case False:\n        pass\n",
    "a flag that all ranks set": "def fit():\n    first = False\n    def look():\n        nonlocal first\n"
    "        first = world > 1\n    look()\n    if first:\n        dist.barrier()\nfit()\n",
    "a decorator of many functions, and one for a rank": TIMED
    + "".join(WORK.replace("work", f"work{number}") for number in range(6))
    + "@timed\ndef report():\n    print(1)\n@timed\ndef wait():\n    dist.barrier()\n"
    "if rank == 0:\n    report()\nwait()\n",
}


def count_diverged(code: str) -> int:
    """Return the number of places where the ranks of a program part."""
    text = "import sys\n" + source(code)
    return len(divergences(Evaluated(ast.parse(text), Path("train.py"), text)).found)


def fits(code: str) -> str:
    """Return the ``for`` statement that a loop is, as text."""
    (loop,) = ast.parse(code).body
    assert isinstance(loop, ast.While)
    made = as_for(loop)
    return ast.unparse(made) if made else ""


@pytest.mark.parametrize("name", DIVERGED)
def test_diverged(name: str) -> None:
    assert count_diverged(DIVERGED[name]) == 1


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    assert count_diverged(TOGETHER[name]) == 0


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (
            "while True:\n    try:\n        x = next(it)\n    except StopIteration:\n        break\n    use(x)",
            "for x in it:\n    use(x)",
        ),
        ("while (x := next(it, None)) is not None:\n    use(x)", "for x in it:\n    use(x)"),
        (
            "while True:\n    x = next(it, None)\n    if x is None:\n        break\n    use(x)",
            "for x in it:\n    use(x)",
        ),
        ("while n < count:\n    use(n)\n    n += 1", "for n in range(n, count):\n    use(n)"),
        (
            "while True:\n    if n >= count:\n        break\n    use(n)\n    n += 1",
            "for n in range(n, count):\n    use(n)",
        ),
        (
            "while True:\n    n += 1\n    if n >= count:\n        break\n    use(n)",
            "for n in range(n + 1, count):\n    use(n)",
        ),
    ],
)
def test_loops_by_hand(loop: str, expected: str) -> None:
    assert fits(loop) == expected


@pytest.mark.parametrize(
    "loop",
    [
        "while True:\n    try:\n        x = next(it)\n    except StopIteration:\n        it = iter(y)\n    use(x)",
        "while n < count:\n    if use(n):\n        continue\n    n += 1",
        "while n < count:\n    count -= use(n)\n    n += 1",
        "while n < count:\n    n += use(n)",
        "while not done():\n    use()",
    ],
)
def test_other_loops(loop: str) -> None:
    assert fits(loop) == ""


def test_result_of_a_forwarded_collective() -> None:
    code = INVOKE + "dist.init_process_group('gloo')\nx = invoke(dist.all_reduce, torch.ones(1))\nprint(x.item())\n"
    assert lines(code, "DW422") == ["x = invoke(dist.all_reduce, torch.ones(1))"]


def test_attribute_that_is_sharded_in_place() -> None:
    code = """
        from torch.distributed.checkpoint.state_dict import get_model_state_dict
        from torch.distributed.fsdp import fully_shard
        class Task:
            def begin(self):
                dist.init_process_group("gloo")
                self.model = torch.nn.Linear(8, 8)
                fully_shard(self.model)
            def end(self):
                if dist.get_rank() == 0:
                    get_model_state_dict(self.model)
        task = Task()
        task.begin()
        task.end()
    """
    assert [each.severity for each in found(code, "DW403")] == ["warning"]


def test_result_of_a_case_of_the_root() -> None:
    code = """
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        x = torch.ones(1)
        parts = [torch.empty(1) for _ in range(world)] if rank == 0 else None
        dist.gather(x, parts, dst=0)
    """
    case = "        match rank == 0:\n            case True:\n                print(torch.cat(parts))\n"
    assert lines(code.rstrip(" ") + "        print(torch.cat(parts))\n", "DW454") == ["print(torch.cat(parts))"]
    assert lines(code.rstrip(" ") + case, "DW454") == []
