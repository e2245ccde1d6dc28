"""Functions and ranks that reach their use through objects, sequences, decorators, generators and libraries."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.divergences import divergences
from ddpwizard.app.training_script.model.evaluated import Evaluated
from helpers.diverging_programs import source

CALLBACKS = """\
class Scale:
    def __call__(self, x):
        x.mul_(2)
class Mean:
    def __call__(self, x):
        dist.all_reduce(x)
"""
ONLY = """\
import functools
def only(first):
    def wrap(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if rank == first:
                return function(*args, **kwargs)
        return call
    return wrap
"""
COUNTED = "def shards(count):\n    for number in range(count):\n        yield torch.ones(1)\n"
AFTER = "from contextlib import contextmanager\n@contextmanager\ndef together():\n    yield\n    dist.barrier()\n"
CONTEXT = "from dataclasses import dataclass\n@dataclass\nclass Run:\n    me: int\n    count: int\n"

DIVERGED = {
    "a part of a function": "import functools\nmean = functools.partial(dist.all_reduce, op=dist.ReduceOp.AVG)\n"
    "if rank == 0:\n    mean(torch.ones(1))\n",
    "a mapping of functions": "steps = {'sum': dist.all_reduce, 'send': lambda x: dist.broadcast(x, 0)}\n"
    "if rank == 0:\n    steps[sys.argv[1]](torch.ones(1))\n",
    "a function for one rank": "def wait():\n    dist.barrier()\nend = wait if rank == 0 else lambda: None\nend()\n",
    "an object for one rank": CALLBACKS + "logger = Mean() if rank == 0 else Scale()\nlogger(torch.ones(1))\n",
    "append under a rank": CALLBACKS + "hooks = [Scale()]\nif rank == 0:\n    hooks.append(Mean())\n"
    "for hook in hooks:\n    hook(torch.ones(1))\n",
    "append to an attribute": CALLBACKS
    + "class Loop:\n    def __init__(self):\n        self.hooks = []\n        if rank == 0:\n"
    "            self.hooks.append(Mean())\n    def run(self):\n        for number, hook in enumerate(self.hooks):\n"
    "            hook(torch.ones(1))\nLoop().run()\n",
    "a sum of lists": CALLBACKS + "hooks = [Scale()]\nhooks += [Mean()] if rank == 0 else []\n"
    "for hook in hooks:\n    hook(torch.ones(1))\n",
    "a decorator of the program": ONLY + "@only(0)\ndef report(x):\n    dist.all_reduce(x)\nreport(torch.ones(1))\n",
    "a decorated method": ONLY + "class Loop:\n    @only(0)\n    def report(self, x):\n        dist.all_reduce(x)\n"
    "Loop().report(torch.ones(1))\n",
    "a generator": COUNTED + "for x in shards(3 + rank):\n    dist.all_reduce(x)\n",
    "an iterable object": "class Shards:\n    def __iter__(self):\n        for number in range(8):\n"
    "            if number % 3 == rank:\n                yield number\nfor number in Shards():\n    dist.barrier()\n",
    "a counter": "step = rank\nwhile step < 3:\n    dist.barrier()\n    step += world\n",
    "a counter up to a number": "step = rank\nwhile step < 10:\n    dist.barrier()\n    step += 3\n",
    "a context manager": AFTER + "if rank == 0:\n    with together():\n        print('here')\n",
    "a thread": "import threading\ndef work():\n    dist.barrier()\nif rank == 0:\n"
    "    threading.Thread(target=work).start()\n",
    "the end of a program": "import atexit\nif rank == 0:\n    atexit.register(dist.barrier)\n",
    "map": "if rank == 0:\n    list(map(dist.all_reduce, [torch.ones(1), torch.ones(1)]))\n",
    "a field of a dataclass": CONTEXT + "run = Run(dist.get_rank(), 3)\nif run.me == 0:\n    dist.barrier()\n",
    "an entry": "run = dict(me=dist.get_rank(), count=3)\nif run['me'] == 0:\n    dist.barrier()\n",
    "an attribute of a class": "class Run:\n    me = 0\n    @classmethod\n    def start(cls):\n"
    "        cls.me = dist.get_rank()\nRun.start()\nif Run.me == 0:\n    dist.barrier()\n",
    "all names of a library": "from torch.distributed import *\nif get_rank() == 0:\n    barrier()\n",
}

TOGETHER = {
    "append under a setting": CALLBACKS + "hooks = [Scale()]\nif 'mean' in sys.argv:\n    hooks.append(Mean())\n"
    "for hook in hooks:\n    hook(torch.ones(1))\n",
    "append of what does not communicate": CALLBACKS + "hooks = [Mean()]\nif rank == 0:\n    hooks.append(Scale())\n"
    "for hook in hooks:\n    hook(torch.ones(1))\n",
    "an object for each that does the same": CALLBACKS + "class Quiet(Mean):\n    pass\n"
    "logger = Mean() if rank == 0 else Quiet()\nlogger(torch.ones(1))\n",
    "an object or a numbered list of them": CALLBACKS
    + "hooks = Mean() if 'one' in sys.argv else [Mean(), Scale()]\nfor number, hook in enumerate(hooks):\n"
    "    hook(torch.ones(1))\n",
    "a loop over functions that goes on": CALLBACKS + "for hook in [Scale(), Mean()]:\n"
    "    if hook is None:\n        continue\n    hook(torch.ones(1))\ndist.barrier()\n",
    "a decorator that lets all through": "def timed(function):\n    def call(*args):\n"
    "        result = function(*args)\n"
    "        if rank == 0:\n            print('done')\n        return result\n    return call\n"
    "@timed\ndef mean(x):\n    dist.all_reduce(x)\n@timed\ndef wait():\n    dist.barrier()\n"
    "mean(torch.ones(1))\nwait()\n",
    "one decorator of two functions": ONLY
    + "@only(0)\ndef report(x):\n    print(x)\n@only(0)\ndef note(x):\n    print(x)\n"
    "def mean(x):\n    dist.all_reduce(x)\nreport(1)\nmean(torch.ones(1))\n",
    "a generator of equal length": COUNTED + "for x in shards(3):\n    dist.all_reduce(x * rank)\n",
    "a counter that all begin at one number": "step = 0\nwhile step < 3:\n    dist.barrier()\n    step += world\n",
    "ranks that take turns": "from contextlib import contextmanager\n@contextmanager\ndef first():\n"
    "    if rank != 0:\n        dist.barrier()\n    yield\n    if rank == 0:\n        dist.barrier()\n"
    "with first():\n    print('here')\n",
    "a thread that works alone": "import threading\nif rank == 0:\n    threading.Thread(target=print).start()\n"
    "dist.barrier()\n",
    "a field that is no rank": CONTEXT + "run = Run(dist.get_rank(), 3)\nif run.count == 3:\n    dist.barrier()\n",
}


def count_parts(code: str, tmp_path: Path) -> int:
    script = tmp_path / "train.py"
    text = source(code)
    script.write_text(text)
    return len(divergences(Evaluated(ast.parse(text), script, text)).found)


@pytest.mark.parametrize("name", DIVERGED)
def test_what_is_handed_on_is_followed_to_its_use(name: str, tmp_path: Path) -> None:
    assert count_parts(DIVERGED[name], tmp_path)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_all_ranks_do_is_no_finding(name: str, tmp_path: Path) -> None:
    assert count_parts(TOGETHER[name], tmp_path) == 0
