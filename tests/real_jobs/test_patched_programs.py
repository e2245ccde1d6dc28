"""Patches of the review, proved by running: each program fails or hangs on two ranks, and ends well with its patch.

All of them run in one job, from one import of torch; plain ``python`` ends well before (where a program allows it) and
after. A second review finds nothing. Patches that need torchrun itself, or two nodes, are in ``test_patched_scripts``.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.review.review import review_text
from helpers import run_on_two_ranks
from helpers.review_snippets import KNOWLEDGE, apply_fixes

pytestmark = pytest.mark.jobs

START = """\
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
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
    """A program with the patch that repairs it. ``alone``: it also ends well as plain ``python`` without the patch."""

    patch: str
    code: str
    alone: bool = True


PROGRAMS = {
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
        "work-under-condition",
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
}


def patched(name: str) -> str:
    """Return a program with all of its patches; a second review must find nothing."""
    text = START + PROGRAMS[name].code + END
    after, done = apply_fixes(text)
    assert PROGRAMS[name].patch in [finding.fix.id for finding in done if finding.fix], name
    assert review_text(after, "train.py", KNOWLEDGE) == [], after
    return after


def test_patched_programs_end_well_where_they_did_not(tmp_path: Path) -> None:
    plain: list[str] = []
    for name, program in PROGRAMS.items():
        before, after = START + program.code + END, patched(name)
        texts = {"before": before, "after": after, "alone_after": after} | ({"alone": before} if program.alone else {})
        for kind, text in texts.items():
            (tmp_path / f"{name}-{kind}.py").write_text(text)
            plain += [f"{name}-{kind}.py"] * kind.startswith("alone")
    command = [sys.executable, run_on_two_ranks.__file__, str(tmp_path), *plain]
    codes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)
    wrong = [(name, code) for name, code in codes.items() if any(code) is not name.endswith("-before.py")]
    assert not wrong, "\n".join(f"{name}: {logs(tmp_path, name)}" for name, _ in wrong)


def logs(folder: Path, name: str) -> str:
    return " | ".join(path.read_text()[-300:] for path in sorted((folder / name.removesuffix(".py")).glob("*.log")))
