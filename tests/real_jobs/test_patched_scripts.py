"""Each patch of the review, proved by running: the script went wrong on two ranks, and goes right with the patch.

Plain ``python`` gives the same before and after, a second review finds nothing, and undo restores the script.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.system.subprocesses import ProcessOutcome
from helpers.command import ddpwizard
from helpers.two_ranks import END, START, on_two_ranks, plain, two_nodes

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

# The orders of three epochs: how many differ, and whether the ranks together saw every sample in each of them.
DATA = """
data = torch.arange(16.0)
model = nn.Linear(1, 1)
orders = []
"""
STEP = """\
            order += batch.tolist()
            model(batch[:, None]).sum().backward()
"""
ORDERS = """
seen = [None] * world_size
if distributed:
    dist.all_gather_object(seen, orders)
else:
    seen = [orders]
whole = all(sorted(sum(ranks, [])) == data.tolist() for ranks in zip(*seen))
print(f"rank {rank}: {len(set(map(tuple, orders)))} orders, every sample once: {whole}\\n", end="")
"""
SAME, DIFFERENT = "1 orders, every sample once: True", "3 orders, every sample once: True"

SAMPLER_BOUND_IN_A_BRANCH = f"""\
{START}{DATA}
if distributed:
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
else:
    loader = DataLoader(data, batch_size=4, shuffle=True)
for epoch in range(3):
    order = []
    if True:
        for batch in loader:
{STEP}\
    orders.append(order)
{ORDERS}{END}"""
SAMPLER_MAY_BE_NONE = f"""\
{START}{DATA}
sampler = DistributedSampler(data) if distributed else None
loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None)
for epoch in range(3):
    order = []
    if True:
        for batch in loader:
{STEP}\
    orders.append(order)
{ORDERS}{END}"""
LOADER_BOUND_IN_A_BRANCH = f"""\
{START}{DATA}
training = "EVALUATE" not in os.environ
if training:
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, world_size, rank))
for epoch in range(3):
    order = []
    if training:
        for batch in loader:
{STEP}\
    orders.append(order)
{ORDERS}{END}"""
COUNTER_OF_TOKENS = f"""\
{START}{DATA}
sampler = DistributedSampler(data) if distributed else None
loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None)
tokens = 0
while tokens < 250:
    order = []
    if True:
        for batch in loader:
{STEP}\
    tokens += 100 + rank
    orders.append(order)
{ORDERS}{END}"""
STEPS_START_AGAIN = f"""\
{START}{DATA}
sampler = DistributedSampler(data) if distributed else None
loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None)
batches = iter(loader)
order = []
for step in range(3 * len(loader)):
    try:
        batch = next(batches)
    except StopIteration:
        batches = iter(loader)
        batch = next(batches)
    if True:
        if True:
{STEP}\
    if len(order) == len(data) // world_size:
        orders.append(order)
        order = []
{ORDERS}{END}"""
MOVED_AFTER_THE_WRAP = f"""\
{START}
torch.manual_seed(0)
net = nn.Linear(4, 1)
device = torch.device("cpu")
if distributed:
    net = DistributedDataParallel(net)
    net.to(device, torch.float64)
else:
    net.to(device, torch.float64)
net(torch.full((1, 4), rank + 1.0, dtype=torch.float64)).sum().backward()
print(f"gradient {{sum(float(each.grad.sum()) for each in net.parameters()):.1f}}\\n", end="")
{END}"""
REDUCED_UNDER_A_CONDITION = f"""\
{START}
for epoch in range(3):
    loss = torch.tensor(float(rank + epoch))
    if rank == 0 and epoch % 2 == 0:
        print("summing up", epoch)
        if distributed:
            dist.all_reduce(loss)
        print(f"loss of epoch {{epoch}}: {{loss.item()}}")
if distributed:
    dist.barrier()
print(f"rank {{rank}} is done\\n", end="")
{END}"""
BARRIER_ON_ONE_LINE = f"""\
{START}
def save(path):
    if rank == 0: torch.save(nn.Linear(1, 1).state_dict(), path)
    if rank == 0 and distributed: dist.barrier()

save("model.pt")
if distributed:
    dist.barrier()
torch.load("model.pt")
print(f"rank {{rank}} is done\\n", end="")
{END}"""
HELPER_UNDER_A_CONDITION = f"""\
{START}
def average(value):
    total = torch.tensor(value)
    if distributed:
        dist.all_reduce(total)
    return float(total) / world_size


def report(value):
    if rank == 0:
        mean = average(value)
        print(f"mean {{mean}}")


report(1.0 + rank)
if distributed:
    dist.barrier()
print(f"rank {{rank}} is done\\n", end="")
{END}"""


class Script(NamedTuple):
    """A script, what two ranks print without and with the patch (without: "" if they hang), and plain ``python``."""

    text: str
    before: Sequence[str]
    after: Sequence[str]
    plain: Sequence[str]


SCRIPTS = {
    "a sampler bound in a branch": Script(SAMPLER_BOUND_IN_A_BRANCH, [SAME], [DIFFERENT], [DIFFERENT]),
    "a sampler that may be None": Script(SAMPLER_MAY_BE_NONE, [SAME], [DIFFERENT], [DIFFERENT]),
    "a loader bound in a branch": Script(LOADER_BOUND_IN_A_BRANCH, [SAME], [DIFFERENT], ["every sample once: True"]),
    "a counter of tokens": Script(COUNTER_OF_TOKENS, [SAME], [DIFFERENT], [DIFFERENT]),
    "steps that start the loader again": Script(STEPS_START_AGAIN, [SAME], [DIFFERENT], [DIFFERENT]),
    "a model moved after the wrap": Script(
        MOVED_AFTER_THE_WRAP, ["gradient 5.0", "gradient 9.0"], ["gradient 7.0\ngradient 7.0"], ["gradient 5.0"]
    ),
    "a sum under a condition": Script(
        REDUCED_UNDER_A_CONDITION,
        [],
        ["loss of epoch 0: 1.0", "loss of epoch 2: 5.0", "rank 0 is done", "rank 1 is done"],
        ["loss of epoch 0: 0.0", "loss of epoch 2: 2.0", "rank 0 is done"],
    ),
    "a barrier on one line": Script(BARRIER_ON_ONE_LINE, [], ["rank 0 is done", "rank 1 is done"], ["rank 0 is done"]),
    "a helper under a condition": Script(
        HELPER_UNDER_A_CONDITION, [], ["mean 1.5", "rank 0 is done", "rank 1 is done"], ["mean 1.0", "rank 0 is done"]
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_patched_script_does_right_where_it_went_wrong(name: str, tmp_path: Path) -> None:
    case = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(case.text)

    alone = plain(tmp_path)
    assert alone.code == 0, alone.log
    assert not [text for text in case.plain if text not in alone.log], alone.log
    wrong = on_two_ranks(tmp_path, 90 if case.before else 10)
    assert (wrong.code == 0) is bool(case.before), wrong.log
    assert not [text for text in case.before if text not in wrong.log], wrong.log

    fixed = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stderr.count("applied ") == 1
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0

    alone = plain(tmp_path)
    assert alone.code == 0, alone.log
    assert not [text for text in case.plain if text not in alone.log], alone.log
    right = on_two_ranks(tmp_path)
    assert right.code == 0, right.log
    assert not [text for text in case.after if text not in right.log], right.log

    assert ddpwizard("undo", cwd=tmp_path).returncode == 0
    assert script.read_text() == case.text


DEVICE = """\
import os

import torch

device = torch.device(f"cuda:{int(os.environ.get('RANK', 0))}")
print(f"device {device}\\n", end="")
"""


@pytest.mark.calibration
def test_second_node_uses_its_first_gpu_after_the_patch(tmp_path: Path) -> None:
    """Two nodes with one process each, both on this machine."""
    script = tmp_path / "train.py"
    script.write_text(DEVICE)
    assert "device cuda:0" in plain(tmp_path).log
    assert devices(two_nodes(tmp_path)) == ["cuda:0", "cuda:1"]

    assert ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
    assert "device cuda:0" in plain(tmp_path).log
    assert devices(two_nodes(tmp_path)) == ["cuda:0", "cuda:0"]
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0


def devices(outcomes: Sequence[ProcessOutcome]) -> list[str]:
    return sorted(
        line.removeprefix("device ")
        for outcome in outcomes
        for line in outcome.log.splitlines()
        if line.startswith("device ")
    )


LOCAL_RANK_AS_RANK = """\
import datetime
import os

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["WORLD_SIZE"])
wait = datetime.timedelta(seconds=int(os.environ.get("WAIT_S", "90")))
dist.init_process_group("gloo", rank=local_rank, world_size=world_size, timeout=wait)
print(f"rank {dist.get_rank()} of {world_size}\\n", end="")
dist.destroy_process_group()
"""


def test_ranks_of_two_nodes_differ_after_the_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(LOCAL_RANK_AS_RANK)
    with monkeypatch.context() as patch:
        patch.setenv("WAIT_S", "10")
        assert any(outcome.code for outcome in two_nodes(tmp_path))

    assert ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
    fixed = two_nodes(tmp_path)
    assert [outcome.code for outcome in fixed] == [0, 0], "\n".join(each.log for each in fixed)
    assert "rank 0 of 2" in "".join(each.log for each in fixed)
    assert "rank 1 of 2" in "".join(each.log for each in fixed)
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0


# The leader calls the workers from a function that an optimizer runs; rank 1 answers in a loop.
LEADER_AND_WORKER = f"""\
{START}
weight = nn.Parameter(torch.tensor(4.0))
signal = torch.zeros(1)


def closure():
    if rank == 0 and distributed:
        signal.fill_(1)
        dist.broadcast(signal, src=0)
    weight.grad = None
    loss = (weight - rank) ** 2
    loss.backward()
    total = loss.detach().clone()
    if distributed:
        dist.all_reduce(total)
        dist.all_reduce(weight.grad)
    return total


if rank == 0:
    torch.optim.LBFGS([weight], max_iter=3).step(closure)
    if distributed:
        signal.fill_(0)
        dist.broadcast(signal, src=0)
else:
    while True:
        dist.broadcast(signal, src=0)
        if signal.item() == 0:
            break
        closure()
if distributed:
    dist.broadcast(weight.data, src=0)
print(f"rank {{rank}} is done\\n", end="")
{END}"""


def test_leader_and_workers_are_left_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEADER_AND_WORKER)
    before = on_two_ranks(tmp_path)
    assert before.code == 0, before.log
    assert "rank 1 is done" in before.log
    assert plain(tmp_path).code == 0

    reviewed = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert reviewed.returncode == 0, reviewed.stdout
    assert script.read_text() == LEADER_AND_WORKER
