"""Programs with a bug that the review repairs: each fails or hangs on two ranks, and ends well with its patch."""

from typing import NamedTuple

LIBRARIES = """\
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
"""
START = f"""\
{LIBRARIES}\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank() if distributed else 0
world_size = dist.get_world_size() if distributed else 1
torch.manual_seed(0)
data = torch.arange(8.0)
"""
LOADER = """\
sampler = DistributedSampler(data, shuffle=False) if distributed else None
loader = DataLoader(data, sampler=sampler)
"""
MODEL = """\
model = nn.Linear(1, 1)
if distributed:
    model = DDP(model)
"""
END = """
if distributed:
    dist.barrier()
"""


class Program(NamedTuple):
    """A program with the patch that repairs it.

    ``start``: what begins it, if that is not to make a process group of all ranks.
    ``alone``: it also ends well as plain ``python`` without the patch. ``launched``: it always makes a process group.
    """

    patch: str
    code: str
    alone: bool = True
    launched: bool = False
    end: str = END
    start: str = START

    @property
    def text(self) -> str:
        start = self.start.replace("if distributed:\n    dist.init", "dist.init") if self.launched else self.start
        return start + self.code + self.end


PROGRAMS = {
    "result_not_taken": Program(
        "take-result",
        """
import torch.distributed.nn.functional as collectives

total = torch.full((1,), rank + 1.0)
if distributed:
    collectives.all_reduce(total)
assert total.item() == world_size * (world_size + 1) / 2, total
""",
    ),
    "break_by_data": Program(
        "agree-on-condition",
        LOADER
        + """
rounds = 0
for x in loader:
    if distributed:
        dist.barrier()
    rounds += 1
    if x.item() > 2:
        break
assert rounds == (2 if distributed else 4)
""",
    ),
    "skipped_batch": Program(
        "agree-on-condition",
        LOADER
        + MODEL
        + """
for x in loader:
    loss = model(x[:, None]).sum()
    if x.item() == 3:
        continue
    loss.backward()
""",
    ),
    "caught_error": Program(
        "agree-on-condition",
        LOADER
        + """
def step(x):
    if x.item() == 3:
        raise ValueError("not this one")
    total = x.clone()
    if distributed:
        dist.all_reduce(total)

skipped = 0
for x in loader:
    try:
        step(x)
    except ValueError:
        skipped += 1
assert skipped == 1
""",
    ),
    "break_of_one_rank": Program(
        "agree-on-condition",
        """
for number in range(5):
    if rank == 1 and number == 3:
        break
    if distributed:
        dist.all_reduce(torch.ones(1))
""",
    ),
    "list_that_gets_empty": Program(
        "agree-on-rounds",
        """
todo = [number for number in range(9) if number % world_size == rank]
done = 0
while todo:
    done += todo.pop() > -1
    if distributed:
        dist.barrier()
assert done == (4 if distributed else 9)
""",
    ),
    "part_of_the_data": Program(
        "agree-on-rounds",
        MODEL
        + """
values = torch.arange(9.0)
for number, x in enumerate(values[rank::world_size]):
    model(x.reshape(1, 1)).sum().backward()
assert number == (3 if distributed else 8)
""",
    ),
    "rounds_by_rank": Program(
        "agree-on-rounds",
        """
for number in range(rank + 1):
    if distributed:
        dist.all_reduce(torch.ones(1))
assert number == 0
""",
    ),
    "evaluation_of_one_rank": Program(
        "use-inner-model",
        """
def evaluate(net, batches):
    net.eval()
    with torch.no_grad():
        return [net(x) for x in batches]

model = nn.BatchNorm1d(2)
if distributed:
    model = DDP(model)
if rank == 0:
    assert evaluate(model, [torch.zeros(2, 2)])[0].sum() == 0
""",
    ),
    "ranks_that_leave": Program(
        "hoist-collective",
        """
def save(path):
    if rank != 0:
        return
    state = nn.Linear(1, 1).state_dict()
    torch.save(state, path)
    dist.barrier()

if distributed:
    save("model.pt")
    assert os.path.exists("model.pt")
""",
    ),
    "checkpoint_of_one_rank": Program(
        "hoist-collective",
        """
import torch.distributed.checkpoint as dcp

state = {"weight": torch.ones(3)}
if rank == 0:
    dcp.save(state, checkpoint_id="state")
""",
    ),
    "sampler_and_shuffle": Program(
        "shuffle-without-sampler",
        """
loader = DataLoader(data, sampler=DistributedSampler(data, world_size, rank, shuffle=False), shuffle=True)
assert len(loader) == 8 // world_size
""",
        alone=False,
    ),
    "directory_of_every_rank": Program("allow-existing-directory", '\nos.makedirs("out")\n'),
    "attribute_of_the_model": Program("read-from-inner-model", MODEL + "\nassert model.weight.shape == (1, 1)\n"),
    "clipped_while_scaled": Program(
        "unscale-before-clip",
        MODEL
        + """
scaler = torch.amp.GradScaler(device="cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
before = [each.detach().clone() for each in model.parameters()]
for x in [torch.full((1, 1), 0.1)]:
    scaler.scale(model(x).sum() * 0.1).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
moved = sum(float((new - old).abs().sum()) for new, old in zip(model.parameters(), before))
assert abs(moved - 0.11) < 1e-4, moved
""",
        alone=False,
    ),
    "clipped_by_shard": Program(
        "clip-by-fsdp",
        """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

if distributed:
    model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
    model(torch.ones(2, 4) * (1 + rank)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    squares = sum(each.grad.square().sum() for each in model.parameters())
    dist.all_reduce(squares)
    assert abs(squares.item() - 1.0) < 1e-3, squares
""",
    ),
    "optimizer_of_old_parameters": Program(
        "optimizer-after-wrap",
        """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

if distributed:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = FSDP(model, device_id=torch.device("cpu"))
    before = [each.detach().clone() for each in model.parameters()]
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters()))
""",
    ),
    "step_without_the_other_gradients": Program(
        "sync-at-step",
        MODEL
        + """
if distributed:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, x in enumerate(data[rank::world_size].reshape(-1, 1, 1)):
        if number % 2 != 0:
            with model.no_sync():
                model(x).sum().backward()
        else:
            model(x).sum().backward()
        if (number + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    weights = [torch.zeros(1) for _ in range(world_size)]
    dist.all_gather(weights, model.module.weight.detach().flatten())
    assert weights[0] == weights[1]
""",
    ),
    "one_tensor_for_all_ranks": Program(
        "own-tensors",
        """
if distributed:
    parts = [torch.zeros(1)] * world_size
    dist.all_gather(parts, torch.tensor([float(rank)]))
    assert torch.cat(parts).tolist() == [0.0, 1.0], parts
""",
    ),
    "all_ranks_receive_first": Program(
        "exchange-at-once",
        """
own, got = torch.tensor([float(rank)]), torch.zeros(1)
if distributed:
    dist.recv(got, src=(rank - 1) % world_size)
    dist.send(own, dst=(rank + 1) % world_size)
    assert got.item() == 1 - rank
""",
    ),
    "the_epoch_of_one_rank": Program(
        "agree-on-rounds",
        MODEL
        + """
first = 0
if rank == 0 and os.path.exists(__file__):
    first = len(data) - 7
epochs = []
for epoch in range(first, 3):
    model(torch.ones(2, 1)).sum().backward()
    epochs.append(epoch)
assert epochs == [1, 2], epochs
""",
    ),
    "data_for_every_rank": Program(
        "add-sampler",
        MODEL
        + """
loader = DataLoader(data, batch_size=2, shuffle=True)
seen = []
for epoch in range(1):
    for x in loader:
        seen += x.tolist()
        model(x[:, None]).sum().backward()
everything = [None] * world_size
if distributed:
    dist.all_gather_object(everything, seen)
else:
    everything = [seen]
assert sorted(sum(everything, [])) == data.tolist()
""",
    ),
    "past_the_wrapper": Program(
        "call-wrapper",
        MODEL
        + """
if distributed:
    for x in [torch.full((1, 1), rank + 1.0)]:
        model.module(x).sum().backward()
    assert model.module.weight.grad.item() == 1.5
""",
    ),
    "state_of_the_model_alone": Program(
        "load-into-inner-model",
        """
if distributed:
    model = nn.Linear(1, 1)
    path = f"weights-{rank}.pt"
    torch.save(model.state_dict(), path)
    model = DDP(model)
    model.load_state_dict(torch.load(path))
""",
    ),
    "gradients_of_one_rank": Program(
        "reduce-on-all",
        """
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.full((4, 1), rank + 1.0)).square().mean().backward()
for parameter in model.parameters():
    dist.reduce(parameter.grad, dst=0)
    parameter.grad /= world_size
optimizer.step()
least, most = model.weight.detach().clone(), model.weight.detach().clone()
dist.all_reduce(least, op=dist.ReduceOp.MIN)
dist.all_reduce(most, op=dist.ReduceOp.MAX)
assert torch.equal(least, most)
""",
        launched=True,
    ),
    "divided_twice": Program(
        "divide-once",
        """
loss = torch.tensor([rank + 1.0])
dist.all_reduce(loss)
loss = loss / world_size
mean = loss / world_size
print("loss", mean.item())
assert mean.item() == 1.5
""",
        launched=True,
    ),
    "batch_of_a_node": Program(
        "divide-by-world-size",
        """
torch.cuda.device_count = lambda: 1  # two nodes with one GPU each
batch_size = 8
batch_size //= torch.cuda.device_count()
loader = DataLoader(data, batch_size=batch_size)
assert batch_size * int(os.environ["WORLD_SIZE"]) == 8
""",
        launched=True,
    ),
    "place_that_is_ignored": Program(
        "load-to-cpu",
        """
def load(path, map_location):
    return torch.load(path)


path = f"weights-{rank}.pt"
torch.save({"weight": torch.ones(1)}, path)
assert load(path, map_location="meta")["weight"].device.type == "meta"
""",
        alone=False,
    ),
    "written_by_every_rank": Program(
        "guard-save",
        """
class State:
    def __getstate__(self):
        assert rank == 0, "a second writer"
        return {"step": 1}


torch.save(State(), "state.pt")
assert torch.load("state.pt", weights_only=False).step == 1
""",
    ),
    "texts_of_different_lengths": Program(
        "pad-before-gather",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
texts = [{"input_ids": torch.arange(1, length)} for length in (4, 6)]
count = 0
for batch in accelerator.prepare(DataLoader(texts, batch_size=1)):
    tokens = accelerator.gather(batch["input_ids"])
    count += int((tokens > 0).sum())
assert count == 8
""",
    ),
    "optimizer_before_shards": Program(
        "optimizer-after-wrap",
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if distributed:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    before = model.weight.full_tensor().detach().clone()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight.full_tensor())
""",
    ),
    "group_that_one_rank_leaves": Program(
        "end-on-every-rank",
        """
if rank == 0:
    dist.destroy_process_group()
""",
        alone=False,
        end="assert not dist.is_initialized()\n",
    ),
    "part_by_seed_of_each_rank": Program(
        "one-seed",
        """
sampler = DistributedSampler(data, world_size, rank, seed=7 + rank)
parts = [None] * world_size
order = [data[i].item() for i in sampler]
if distributed:
    dist.all_gather_object(parts, order)
else:
    parts = [order]
assert sorted(sum(parts, [])) == data.tolist()
""",
    ),
    "sent_without_a_wait": Program(
        "wait-for-end",
        """
import time

if distributed:
    own, got = torch.full((200_000,), float(rank)), torch.zeros(200_000)
    for _ in range(3):
        time.sleep(rank * 0.3)
        dist.isend(own, dst=(rank + 1) % world_size)
        dist.recv(got, src=(rank - 1) % world_size)
        own.fill_(-1)
        assert got.min() >= 0
        own.fill_(rank)
""",
    ),
    "rest_of_the_round": Program(
        "hoist-collective",
        """
totals = []
for step in range(4):
    value = torch.tensor([1.0 + rank])
    if step % 2 or rank > 0:
        continue
    shares = [torch.zeros(1) for _ in range(world_size)]
    if distributed:
        dist.all_gather(shares, value)
        totals.append(sum(shares).item())
    else:
        totals.append(value.item())
    print("total", totals[-1])
assert totals == [3.0 if distributed else 1.0] * 2
""",
    ),
    "call_in_a_message": Program(
        "hoist-collective",
        """
def total(value):
    value = torch.tensor(value)
    if distributed:
        dist.all_reduce(value)
    return value.item()


if rank == 0:
    print(f"total {total(2.0):.1f}")
""",
    ),
    "sum_and_its_start": Program(
        "hoist-collective",
        """
def evaluate(values):
    if rank == 0:
        total = 0.0
        for value in values:
            value = torch.tensor([value])
            if distributed:
                dist.all_reduce(value)
            total += value.item()
        print(total)


evaluate([1.0, 2.0])
""",
    ),
    "mode_and_mode_behind": Program(
        "hoist-collective",
        MODEL
        + """
for epoch in range(2):
    assert model.training
    if rank == 0:
        model.eval()
        with torch.no_grad():
            loss = model(torch.ones(1, 1)).mean()
        if distributed:
            dist.all_reduce(loss)
        print("loss", loss)
        model.train()
""",
    ),
    "file_of_the_gathered_state": Program(
        "hoist-collective",
        """
import json


def save(path, value):
    values = [None] * world_size
    if distributed:
        dist.all_gather_object(values, value)
    else:
        values = [value]
    with open(path, "w") as file:
        json.dump(values, file)


if rank == 0:
    save("values.json", rank)
assert rank or json.load(open("values.json")) == list(range(world_size))
""",
    ),
    "state_of_one_rank": Program(
        "call-on-every-rank",
        """
def mean(value):
    value = torch.tensor(value)
    if distributed:
        dist.all_reduce(value)
    return value.item() / world_size


best = mean(3.0) if rank == 0 else None
assert rank or best == 3.0
""",
    ),
    "loaders_in_a_dictionary": Program(
        "insert-set-epoch",
        MODEL
        + """
train_sampler = DistributedSampler(data, world_size, rank)
loaders = {"train": DataLoader(data, sampler=train_sampler), "test": DataLoader(data)}
orders = []
for epoch in range(3):
    orders.append([])
    for x in loaders["train"]:
        orders[-1] += x.tolist()
        model(x[:, None]).sum().backward()
assert len(set(map(tuple, orders))) == 3
""",
        alone=False,
    ),
    "dataset_made_for_the_loader": Program(
        "add-sampler",
        MODEL
        + """
loader = DataLoader(list(range(8)), batch_size=2, shuffle=True)
seen = []
for epoch in range(1):
    for x in loader:
        seen += x.tolist()
        model(x[:, None].float()).sum().backward()
everything = [None] * world_size
if distributed:
    dist.all_gather_object(everything, seen)
else:
    everything = [seen]
assert sorted(sum(everything, [])) == list(range(8))
""",
    ),
    "batches_of_another_number": Program(
        "join-uneven-inputs",
        """
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.ones(1) for number in range(9) if number % world_size == rank])


if distributed:
    model = DDP(nn.Linear(1, 1))
    for x in DataLoader(Stream()):
        model(x).sum().backward()
""",
    ),
    "part_of_the_inner_model": Program(
        "average-gradients",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(1, 1)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.features(x)


if distributed:
    model = DDP(Net())
    for step in range(2):
        loss = model.module.features(torch.full((1, 1), rank + 1.0)).sum()
        model.zero_grad()
        loss.backward()
        assert model.module.body.weight.grad.item() == 1.5
""",
    ),
    "option_for_the_local_rank": Program(
        "read-local-rank",
        """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
devices = [None] * world_size
if distributed:
    dist.all_gather_object(devices, args.local_rank)
else:
    devices = [args.local_rank]
assert devices == list(range(world_size))
""",
    ),
    "table_of_every_rank": Program(
        "write-on-rank-0",
        """
import time

time.sleep(0.5 * rank)
with open("table.csv", "w") as table:
    table.write(f"rank {rank}\\n")
if distributed:
    dist.barrier()
with open("table.csv") as table:
    assert table.read() == "rank 0\\n"
""",
    ),
    "one_place_too_few": Program(
        "place-for-each-rank",
        """
if distributed:
    found = [None] * (world_size - 1)
    dist.all_gather_object(found, rank)
    assert found == list(range(world_size))
""",
    ),
    "tensors_of_the_others": Program(
        "place-for-each-rank",
        """
if distributed:
    parts = [torch.empty(1) for _ in range(world_size - 1)]
    dist.all_gather(parts, torch.full((1,), float(rank)))
    assert [part.item() for part in parts] == [0, 1]
""",
    ),
    "no_place_for_the_part": Program(
        "place-for-each-rank",
        """
if distributed:
    part = []
    dist.scatter_object_list(part, ["first", "second"] if rank == 0 else None, src=0)
    assert part == [["first", "second"][rank]]
""",
    ),
    "checkpoint_of_each_rank": Program(
        "value-of-rank-0",
        """
import torch.distributed.checkpoint as checkpoint

if distributed:
    checkpoint.save({"rank": torch.tensor(rank), "step": torch.tensor(4)}, checkpoint_id=f"state-{rank}")
    assert os.path.exists("state-0/.metadata")
    dist.barrier()
    state = {"step": torch.tensor(0)}
    checkpoint.load(state, checkpoint_id="state-0")
    assert state["step"].item() == 4
    assert not os.path.exists("state-1")
""",
    ),
    "store_of_every_rank": Program(
        "store-of-rank-0",
        """
if distributed:
    with_port = [None]
    if rank == 0:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            with_port = [free.getsockname()[1]]
    dist.broadcast_object_list(with_port, src=0)
    store = dist.TCPStore(
        "127.0.0.1", with_port[0], world_size, is_master=True, timeout=datetime.timedelta(seconds=8)
    )
    store.set(f"rank-{rank}", "here")
    store.wait(["rank-0", "rank-1"])
    dist.barrier()
""",
    ),
    "group_of_the_library": Program(
        "init-once",
        """
def prepare():
    dist.init_process_group(
        "gloo",
        timeout=datetime.timedelta(seconds=8),
    )


if distributed:
    prepare()
    assert dist.get_backend() == "gloo"
""",
    ),
    "function_without_a_name": Program(
        "define-function",
        """
scale = lambda x, by=2: by * x
if distributed:
    settings = [{"scale": scale} if rank == 0 else None]
    dist.broadcast_object_list(settings, src=0)
    assert settings[0]["scale"](3) == 6
""",
    ),
    "numbers_that_come_one_by_one": Program(
        "list-of-generator",
        """
if distributed:
    found = [None] * world_size
    dist.all_gather_object(found, (n + rank for n in range(2)))
    assert [list(each) for each in found] == [[0, 1], [1, 2]]
""",
    ),
    "sum_of_means": Program(
        "divide-the-sum",
        """
losses = torch.arange(4.0) + 4 * rank
loss = losses.mean()
if distributed:
    dist.all_reduce(loss)
print(f"loss {loss.item():.4f}")
assert loss.item() == (3.5 if distributed else 1.5)
""",
    ),
    "count_of_one_rank": Program(
        "sum-the-count",
        """
def accuracy(batches):
    right, seen = torch.zeros(1), 0
    for batch in batches:
        right += (batch >= 0).sum()
        seen += len(batch)
    if distributed:
        dist.all_reduce(right)
    return right.item() / seen


assert accuracy([torch.ones(3), torch.ones(2 + rank)]) == 1
""",
    ),
    "default_of_no_group": Program(
        "ask-when-called",
        """
distributed = "RANK" in os.environ


def ranks():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def share(total, of=ranks()):
    \"\"\"Return the share of one rank.\"\"\"
    return total // of


if distributed:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
assert share(8) == (4 if distributed else 8)
""",
        start=LIBRARIES,
    ),
    "names_in_another_order": Program(
        "names-in-order-of-sizes",
        """
from torch.distributed.device_mesh import init_device_mesh

dp_size, tp_size = world_size, 1
if distributed:
    mesh = init_device_mesh("cpu", (dp_size, tp_size), mesh_dim_names=("tp", "dp"))
    assert mesh["dp"].size() == dp_size
""",
    ),
    "attribute_by_another_name": Program(
        "read-set-attribute",
        """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    def name(self):
        return f"rank {self.gpu_id}"


trainer = Trainer(nn.Linear(1, 1))
if distributed:
    assert trainer.name() == f"rank {rank}"
""",
    ),
    "length_before_prepare": Program(
        "length-after-prepare",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
loader = DataLoader(data, batch_size=2)
train_loader = accelerator.prepare(loader)
steps = 2 * len(loader)
done = 0
for epoch in range(2):
    for batch in train_loader:
        done += 1
assert done == steps, (done, steps)
""",
    ),
    "prepared_iterator": Program(
        "iterate-after-prepare",
        """
from accelerate import Accelerator

from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
loader = DataLoader(torch.arange(8.0), batch_size=2)
batches = iter(loader)
model = nn.Linear(1, 1)
model, batches = accelerator.prepare(model, batches)
seen = accelerator.gather(torch.stack(list(batches)))
assert seen.flatten().sort().values.tolist() == [0, 1, 2, 3, 4, 5, 6, 7], seen
""",
        end="",
        start=LIBRARIES,
    ),
    "state_with_the_wrapper": Program(
        "state-of-inner-model",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
model(data[:, None]).sum().backward()
optimizer.step()
path = f"model-{accelerator.process_index}.pt"
torch.save({"model": model.state_dict()}, path)
model.load_state_dict(torch.load(path)["model"])
nn.Linear(1, 1).load_state_dict(torch.load(path)["model"])
""",
    ),
    "appended_rows": Program(
        "append-on-rank-0",
        """
import uuid

name = [f"rows-{uuid.uuid4()}.txt"]
if distributed:
    dist.broadcast_object_list(name)
for step in range(2):
    with open(name[0], "a") as file:
        file.write(f"step {step}\\n")
if distributed:
    dist.barrier()
with open(name[0]) as file:
    rows = file.read().splitlines()
assert rows == ["step 0", "step 1"], rows
""",
    ),
    "mean_of_means": Program(
        "reduce-sum-and-number",
        """
def mean_of(values):
    total, count = 0.0, 0
    for value in values:
        total += value.item()
        count += 1
    mean = torch.tensor(total / count)
    if distributed:
        dist.all_reduce(mean)
        mean /= world_size
    return mean.item()


own = data if not distributed else data[:6] if rank == 0 else data[6:]
assert mean_of(own) == data.mean().item(), mean_of(own)
""",
    ),
    "bias_of_each_rank": Program(
        "add-bias-to-sum",
        """
from torch.nn import functional as F


class Split(nn.Module):
    def __init__(self, whole):
        super().__init__()
        part = whole.in_features // world_size
        self.weight = nn.Parameter(whole.weight[:, rank * part : (rank + 1) * part].clone())
        self.bias = nn.Parameter(whole.bias.clone())

    def forward(self, x):
        y = F.linear(x, self.weight, bias=self.bias)
        dist.all_reduce(y)
        return y


whole = nn.Linear(4, 2)
part = 4 // world_size
with torch.no_grad():
    x = torch.ones(3, 4)
    y = Split(whole)(x[:, rank * part : (rank + 1) * part])
assert torch.allclose(y, whole(x)), y
""",
        launched=True,
    ),
    "whole_state": Program(
        "load-whole-state",
        """
from torch.distributed.fsdp import fully_shard

whole = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
if rank == 0:
    torch.save({"model": whole.state_dict()}, "whole.pt")
dist.barrier()
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
fully_shard(model)
held = torch.load("whole.pt", map_location="cpu")
model.load_state_dict(held["model"])
x = torch.ones(3, 4)
assert torch.allclose(model(x), whole(x))
""",
        launched=True,
    ),
    "sampler_of_other_data": Program(
        "sampler-of-loader",
        """
train, held_out = list(range(8)), list(range(4))
sampler = DistributedSampler(train, num_replicas=world_size, rank=rank, shuffle=False)
loader = DataLoader(held_out, sampler=sampler)
assert sum(len(batch) for batch in loader) == 4 // world_size
""",
        alone=False,
    ),
    "first_part_of_all": Program(
        "part-of-each-rank",
        MODEL
        + """
share = len(data) // world_size
own = data[:share]
seen = torch.zeros(8)
for step in range(2):
    model(own[:, None]).sum().backward()
    seen[own.long()] = 1
if distributed:
    dist.all_reduce(seen)
assert seen.min() > 0, (rank, seen)
""",
    ),
    "parameters_without_buffers": Program(
        "state-of-all-buffers",
        """
model, trained = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
trained(data[:, None])
if rank == 0:
    model.load_state_dict(trained.state_dict())
for each in model.parameters():
    dist.broadcast(each.data, 0)
outputs = [each.eval()(data[:, None]) for each in (model, trained)]
assert torch.equal(*outputs), outputs
""",
        launched=True,
    ),
    "optimizer_without_model": Program(
        "prepare-model-too",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = accelerator.prepare(optimizer)
own = torch.full((1, 1), 1.0 + accelerator.process_index)
for step in range(2):
    optimizer.zero_grad()
    accelerator.backward(model(own).sum())
    optimizer.step()
weights = accelerator.gather(next(model.parameters()).detach())
assert weights.min() == weights.max(), weights
""",
        start=LIBRARIES,
        end="",
    ),
    "backward_past_accelerate": Program(
        "backward-by-accelerator",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
model, optimizer = accelerator.prepare(model, optimizer)
before = [each.item() for each in model.parameters()]
for step in range(2):
    with accelerator.accumulate(model):
        loss = model(torch.ones(1, 1)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
after = [each.item() for each in model.parameters()]
assert abs(before[0] - after[0] - 1) < 1e-6, (before, after)
""",
        alone=False,
        start=LIBRARIES,
        end="",
    ),
    "folder_of_each_rank": Program(
        "name-of-rank-0",
        """
import uuid

folder = uuid.uuid4().hex
if rank == 0:
    os.makedirs(folder)
if distributed:
    dist.barrier()
torch.save(data, os.path.join(folder, f"{rank}.pt"))
""",
    ),
    "loss_divided_twice": Program(
        "divide-once",
        """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
model, optimizer = accelerator.prepare(model, optimizer)
before = [each.item() for each in model.parameters()]
for step in range(2):
    with accelerator.accumulate(model):
        loss = model(torch.ones(1, 1)).sum() / 2
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
after = [each.item() for each in model.parameters()]
assert abs(before[0] - after[0] - 1) < 1e-6, (before, after)
""",
        alone=False,
        start=LIBRARIES,
        end="",
    ),
}
