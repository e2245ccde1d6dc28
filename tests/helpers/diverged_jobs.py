"""Jobs whose ranks wait at one line for ever, though the stacks do not show how they diverged."""

from ddpwizard.app.triage.types import JobReport
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

START = """
import os
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters())
rows = load(rank)
"""
SKIPPED = (
    START
    + """
from torch.utils.data import DataLoader, DistributedSampler

def parse(batch):
    return torch.tensor([[float(word) for word in line.split()] for line in batch])

for batch in DataLoader(lines, batch_size=4, sampler=DistributedSampler(lines)):
    try:
        x = parse(batch)
    except ValueError:  # PARTS
        continue
    loss = model(x).mean()
    loss.backward()  # WAIT
    optimizer.step()
"""
)
BY_CLOCK = (
    START
    + """
def train():
    until = time.time() + 60
    for step in range(100):
        loss = model(rows[step]).mean()
        loss.backward()  # WAIT
        optimizer.step()
        if time.time() > until:  # PARTS
            dist.barrier()
train()
"""
)
BY_RANK = (
    START
    + """
for step in range(100):
    loss = model(rows[step]).mean()
    loss.backward()  # WAIT
    if rank == int(os.environ["WRITER"]):
        dist.barrier()  # PARTS
"""
)
ALIKE = START + "for step in range(100):\n    loss = model(rows[step]).mean()\n    loss.backward()  # WAIT\n"
LEFT = (
    START
    + """
def prepare():
    until = time.time() + 60
    for part in rows:
        if time.time() > until:
            dist.barrier()
prepare()
def train():
    for step in range(100):
        loss = model(rows[step]).mean()
        loss.backward()  # WAIT
train()
"""
)


def hung_report(text: str, function: str = "") -> JobReport:
    """A job of two ranks that wait in the same call for ever."""
    (line,) = lines_with(text, "WAIT")
    frames = [("<module>", line)] if not function else [("<module>", len(text.splitlines())), (function, line)]
    places = stack("backward", *frames)
    return judge_job(observation(job(2), {100: still(places), 101: still(places)}, {SCRIPT: text}))
