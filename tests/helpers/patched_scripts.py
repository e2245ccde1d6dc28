"""Scripts with a bug that the review repairs, and what they print with and without its patch."""

from collections.abc import Sequence
from typing import NamedTuple

from helpers.two_ranks import END, START

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

# These need two nodes.
DEVICE = """\
import os

import torch

device = torch.device(f"cuda:{int(os.environ.get('RANK', 0))}")
print(f"device {device}\\n", end="")
"""
GLOBAL_RANK_PASSED = """\
import os

import torch
import torch.distributed as dist


def evaluate(local_rank):
    print(f"device {torch.device('cuda', local_rank)}\\n", end="")


def main():
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    rank = dist.get_rank() if distributed else local_rank
    evaluate(rank)
    if distributed:
        dist.barrier()


main()
"""
PORT_OF_THE_SCRIPT = """\
import datetime
import os

import torch
import torch.distributed as dist

os.environ["MASTER_PORT"] = "23457"
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ["LIMIT_S"])))
total = torch.ones(1) * rank
dist.all_reduce(total)
print(f"sum {int(total)}\\n", end="")
dist.barrier()
"""
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
dist.barrier()  # a rank that ends at once closes the connections that the other is still making
dist.destroy_process_group()
"""

WRITER_OF_EACH_NODE = """\
import os
import time

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(0.5 * rank)
if local_rank == 0:
    torch.save(torch.zeros(1 + 10_000 * rank), "last.pt")
dist.barrier()
size = os.path.getsize("last.pt")
dist.destroy_process_group()
assert size < 10_000, f"the file of another node: {size} bytes"
"""
