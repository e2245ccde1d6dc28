"""DW217, DW405 and DW406: signals, files and counts of one rank that decide about collectives, and look-alikes."""

import textwrap

import pytest
from helpers.review_snippets import found, lines, refused, repaired

START = """
import signal
from contextlib import contextmanager
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
model = DDP(nn.Linear(2, 2))
"""
SIGNAL = """
stop = False
def on_signal(number, frame):
    global stop
    stop = True
signal.signal(signal.SIGTERM, on_signal)
"""
STEP = "    model(torch.ones(2)).sum().backward()\n"
TURNS = """
@contextmanager
def first_rank_first():
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()
"""
FILE = """
def read():
    if not os.path.exists("data.pt"):
        torch.save([1], "data.pt")
    return torch.load("data.pt")
"""

FOUND = {
    "a save in a thread that has ended on this rank": (
        "DW406",
        """
        def wait(future, blocking):
            if blocking or future.done():
                future.result()
                dist.barrier()
        """,
        "if blocking or future.done():",
    ),
    "a signal that one rank gets": (
        "DW405",
        SIGNAL + "for step in range(9):\n" + STEP + "    if stop:\n        break",
        "if stop:",
    ),
    "a signal that an attribute holds": (
        "DW405",
        """
        class Loop:
            def __init__(self):
                self.stopped = False
                signal.signal(signal.SIGUSR1, self.on_signal)
            def on_signal(self, number, frame):
                self.stopped = True
            def run(self):
                for step in range(9):
                    model(torch.ones(2)).sum().backward()
                    if self.stopped:
                        break
        Loop().run()
        """,
        "if self.stopped:",
    ),
    "an epoch to go on with that only rank 0 has": (
        "DW217",
        """
        first = 0
        if rank == 0 and os.path.exists("last.pt"):
            first = torch.load("last.pt")["epoch"]
        for epoch in range(first, 9):
            model(torch.ones(2)).sum().backward()
        """,
        'first = torch.load("last.pt")["epoch"]',
    ),
    "a random number from the seed of the rank": (
        "DW406",
        """
        import random
        random.seed(7 + rank)
        for step in range(9):
            if random.random() < 0.5:
                dist.barrier()
        """,
        "if random.random() < 0.5:",
    ),
    "a best loss of one rank that an attribute holds": (
        "DW406",
        """
        class Best:
            def __init__(self):
                self.loss = None
            def update(self, loss):
                if self.loss is None or loss < self.loss:
                    self.loss = loss
                    dist.barrier()
        best = Best()
        for x in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
            best.update(model(x).sum().item())
        """,
        "if self.loss is None or loss < self.loss:",
    ),
    "a random tensor from the seed of the rank": (
        "DW406",
        """
        numbers = torch.Generator().manual_seed(rank)
        if torch.rand(1, generator=numbers).item() < 0.5:
            dist.barrier()
        """,
        "if torch.rand(1, generator=numbers).item() < 0.5:",
    ),
    "a distributed tensor that rank 0 puts together": (
        "DW403",
        "if rank == 0:\n    print(model.weight.grad.full_tensor())",
        "print(model.weight.grad.full_tensor())",
    ),
    "a group that its members make": (
        "DW401",
        "if rank in list(range(2)):\n    group = dist.new_group([0, 1])",
        "group = dist.new_group([0, 1])",
    ),
    "a training step past the name of the wrapper": (
        "DW207",
        """
        class Engine:
            def __init__(self, net):
                self.net = net
                self.wrapped = DDP(net)
            def step(self, x):
                self.net(x).sum().backward()
        class Net(nn.Module):
            def forward(self, x):
                return x
        Engine(Net()).step(torch.ones(2))
        """,
        "self.net(x).sum().backward()",
    ),
}

SILENT = {
    "a schedule that has ended on all ranks": (
        "DW406",
        """
        def finish(schedule):
            if schedule.done():
                dist.barrier()
        """,
    ),
    "a signal that all ranks hear of": (
        "DW405",
        SIGNAL
        + "for step in range(9):\n"
        + STEP
        + "    flag = torch.tensor(float(stop))\n    dist.all_reduce(flag)\n    if flag.item():\n        break",
    ),
    "a signal that is only noted": (
        "DW405",
        SIGNAL + "for step in range(9):\n" + STEP + '    if stop:\n        print("asked to stop")',
    ),
    "a random number from one seed": (
        "DW406",
        """
        import random
        random.seed(7)
        for step in range(9):
            if random.random() < 0.5 or torch.rand(1).item() < 0.5:
                dist.barrier()
        """,
    ),
    "as many random tensors on each rank": (
        "DW405",
        """
        torch.manual_seed(rank)
        data = [torch.randn(2) for number in range(5)]
        for x in data:
            model(x).sum().backward()
        """,
    ),
    "an epoch that rank 0 sends": (
        "DW217",
        """
        first = [0]
        if rank == 0 and os.path.exists("last.pt"):
            first = [torch.load("last.pt")["epoch"]]
        dist.broadcast_object_list(first, src=0)
        for epoch in range(first[0], 9):
            model(torch.ones(2)).sum().backward()
        """,
    ),
    "parts that are cut to one length": (
        "DW217",
        """
        names = [f"part{n}" for n in range(7)]
        for name in names[rank::world_size][: len(names) // world_size]:
            model(torch.ones(2)).sum().backward()
        """,
    ),
    "a group that its members make alone": (
        "DW401",
        "if rank in list(range(2)):\n    group = dist.new_group([0, 1], use_local_synchronization=True)",
    ),
    "a file that ranks make in turns": ("DW501", TURNS + FILE + "with first_rank_first():\n    data = read()"),
    "an evaluation past the name of the wrapper": (
        "DW207",
        """
        net = nn.Linear(2, 2)
        wrapped = DDP(net)
        with torch.no_grad():
            loss = net(torch.ones(2)).sum()
        (wrapped(torch.ones(2)).sum() + loss).backward()
        """,
    ),
}


def code(snippet: str) -> str:
    return START + textwrap.dedent(snippet)


@pytest.mark.parametrize("name", FOUND)
def test_what_one_rank_decides_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(code(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_all_decide_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(code(snippet), rule) == []


def test_a_file_that_all_ranks_make_at_once_is_found() -> None:
    assert [each.rule for each in found(code(FILE + "data = read()"), "DW501")] == ["DW501"]


def test_all_ranks_begin_with_the_epoch_that_rank_0_has() -> None:
    rule, snippet, _ = FOUND["an epoch to go on with that only rank 0 has"]
    after = repaired(code(snippet), rule)
    assert "rounds = torch.tensor(first)" in after
    assert "op=dist.ReduceOp.MAX" in after
    assert "range(int(rounds.item()), 9)" in after


NOT_HOISTED = {
    "an object that the others do not have": (
        """
        class Meter:
            def total(self):
                dist.all_reduce(torch.ones(1))
        meter = Meter() if rank == 0 else None
        if meter is not None:
            meter.total()
        """,
        "`meter` may be None on the other ranks",
    ),
    "a wait for the body of a context": (
        """
        @contextmanager
        def first_rank_first():
            if rank != 0:
                dist.barrier()
            yield
        """,
        "behind the yield",
    ),
}


@pytest.mark.parametrize("name", NOT_HOISTED)
def test_a_call_that_other_ranks_cannot_make_is_not_moved(name: str) -> None:
    snippet, why = NOT_HOISTED[name]
    assert why in refused(code(snippet), "DW401")


def test_a_signal_is_reduced_over_the_ranks() -> None:
    rule, snippet, _ = FOUND["a signal that one rank gets"]
    assert "dist.all_reduce(" in repaired(code(snippet), rule)
