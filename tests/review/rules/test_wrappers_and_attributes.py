"""Mistakes that reach their place through thin wrappers, decorators and attributes of objects, with look-alikes."""

from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.review_snippets import KNOWLEDGE, lines

START = """
import functools, random, time
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
TIMED = """
def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        print(function.__name__, time.perf_counter() - begin)
        return result
    return inner
"""
# Each makes ``call`` an all_reduce by a detour.
WRAPPERS = {
    "a function": "def call(*args, **kwargs):\n    return dist.all_reduce(*args, **kwargs)\n",
    "a function with a guard": "def call(*args, **kwargs):\n    'Reduce.'\n    if not dist.is_initialized():\n"
    "        return None\n    return dist.all_reduce(*args, **kwargs)\n",
    "a static method": "class Comm:\n    @staticmethod\n    def reduce(*args, **kwargs):\n"
    "        return dist.all_reduce(*args, **kwargs)\ncall = Comm.reduce\n",
    "a method": "class Comm:\n    def reduce(self, *args, **kwargs):\n        return dist.all_reduce(*args, **kwargs)\n"
    "call = Comm().reduce\n",
    "a first argument": "def call(tensor, *args, **kwargs):\n    return dist.all_reduce(tensor, *args, **kwargs)\n",
    "two functions": "def inner(*args, **kwargs):\n    return dist.all_reduce(*args, **kwargs)\n"
    "def call(*args, **kwargs):\n    return inner(*args, **kwargs)\n",
}
# Statements with a mistake, the rule that finds it, and the same without it.
MISTAKES = {
    "by the rank": ("DW401", "if rank == 0:\n    call(torch.ones(1))", "call(torch.ones(1))"),
    "a temporary": (
        "DW421",
        "total = torch.ones(2)\ncall(total.clone())\nprint(total)",
        "total = torch.ones(2)\ncall(total)\nprint(total)",
    ),
    "sizes by data": (
        "DW427",
        "counts = torch.bincount(torch.arange(9)[rank::world])\ncall(counts)",
        "counts = torch.bincount(torch.arange(9)[rank::world], minlength=9)\ncall(counts)",
    ),
    "no end": (
        "DW415",
        "x = torch.ones(2)\nwork = call(x, async_op=True)\nprint(x.sum())\nwork.wait()",
        "x = torch.ones(2)\nwork = call(x, async_op=True)\nwork.wait()\nprint(x.sum())",
    ),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrapper_that_hands_on_its_arguments_is_the_call_itself(wrapper: str, mistake: str) -> None:
    rule, wrong, right = MISTAKES[mistake]
    direct = lines(START + wrong.replace("call(", "dist.all_reduce("), rule)
    assert direct
    assert lines(START + WRAPPERS[wrapper] + wrong, rule) == [
        line.replace("dist.all_reduce(", "call(") for line in direct
    ]
    assert lines(START + WRAPPERS[wrapper] + right, rule) == []


def test_a_wrapper_that_changes_the_call_is_none() -> None:
    code = "def call(*args, **kwargs):\n    if rank == 0:\n        return dist.all_reduce(*args, **kwargs)\n"
    assert lines(f"{START}{code}call(torch.ones(1))", "DW401") == ["return dist.all_reduce(*args, **kwargs)"]


DECORATED = """
@timed
def counts(labels):
    made = torch.bincount(labels{})
    dist.all_reduce(made)
    return made

@timed
def main():
    print(counts(torch.arange(20)[rank::world]))

main()
"""


def test_functions_with_one_decorator_call_each_other() -> None:
    assert lines(START + TIMED + DECORATED.format(""), "DW427") == ["dist.all_reduce(made)"]
    assert lines(START + TIMED + DECORATED.format(", minlength=20"), "DW427") == []


ORDERS = """
class Metrics:
    def __init__(self):
        self.names = ["loss", "right"]
        self.values = {{name: torch.ones(1) for name in self.names}}
        {}

    def reduce(self):
        for name in self.names:
            dist.all_reduce(self.values[name])

Metrics().reduce()
"""


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("random.shuffle(self.names)", 1),
        ("self.names = ['loss', 'right'] if rank == 0 else ['right', 'loss']", 1),
        ("self.names = self.names if rank == 0 else ['right', 'loss']", 1),
        ("self.names = ['right', 'loss']", 0),
        ("self.names = ['loss', 'right'] if rank >= 0 else ['right', 'loss']", 0),
    ],
)
def test_an_attribute_is_what_the_constructor_has_set_last(last: str, found: int) -> None:
    assert len(lines(START + ORDERS.format(last), "DW443")) == found


BEST = """
class Trainer:
    def __init__(self):
        self.model = DDP(nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)
        self.total = None

    def clear(self):
        self.total = torch.zeros(1)

    def run(self, data):
        for x in data:
            self.loss = self.model(x).sum()
            self.loss.backward()
            self.optimizer.step()
            self.total = self.loss.detach().clone()
            {}
            self.scheduler.step(self.total.item())

Trainer().run(torch.ones(8, 2)[rank::world].split(1))
"""


@pytest.mark.parametrize(
    ("reduction", "found"),
    [("dist.reduce(self.total, 0)", 1), ("dist.all_reduce(self.total)", 0), ("self.clear()", 0)],
)
def test_an_attribute_is_what_a_method_has_made_of_it(reduction: str, found: int) -> None:
    assert len(lines(START + BEST.format(reduction), "DW226")) == found


SEEDED = """
class {}:
    def __init__(self):
        torch.manual_seed({})
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def run(self):
        self.model(torch.ones(2)).sum().backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()

{}().run()
"""


@pytest.mark.parametrize("name", ["Trainer", "Run"])
def test_models_of_own_seeds_in_a_class_of_the_program(name: str) -> None:
    assert lines(START + SEEDED.format(name, "1 + rank", name), "DW206") == ["torch.manual_seed(1 + rank)"]
    assert lines(START + SEEDED.format(name, "1", name), "DW206") == []


@pytest.mark.parametrize(("shuffle", "found"), [(True, 1), (False, 0)])
def test_a_module_without_functions_holds_settings(tmp_path: Path, shuffle: bool, found: int) -> None:
    (tmp_path / "settings.py").write_text(f"shuffle = {shuffle}\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import settings\nimport torch.distributed as dist\n"
        "from torch.utils.data import DataLoader, DistributedSampler\ndist.init_process_group('gloo')\n"
        "loader = DataLoader(data, sampler=DistributedSampler(data), shuffle=settings.shuffle)\n"
    )
    assert len([each for each in review_file(script, KNOWLEDGE) if each.rule == "DW204"]) == found
