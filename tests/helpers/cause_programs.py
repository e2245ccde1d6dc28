"""Programs with a cause that a fix of its entry repairs in the file: each fails on two ranks, and ends well with it."""

from typing import NamedTuple

GROUP = """\
import datetime
import os
import time

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group({})
rank = dist.get_rank()
"""
GLOO = GROUP.format('"gloo"')
SHORT = GROUP.format('"gloo", timeout=datetime.timedelta(seconds=2)')
END = """\
model = None
dist.destroy_process_group()
"""


class Repaired(NamedTuple):
    """A program, and the fix of the cause that repairs it."""

    fix: str
    text: str


CAUSE_PROGRAMS = {
    "backend-mismatch": Repaired("set-gloo", GROUP.format('"nccl"') + "dist.all_reduce(torch.ones(1))\n" + END),
    "ready-twice": Repaired(
        "set-non-reentrant",
        f"""{GLOO}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=True))


model = DistributedDataParallel(Net(), find_unused_parameters=True)
model(torch.ones(2, 4, requires_grad=True)).sum().backward()
{END}""",
    ),
    "rank0-slow-work": Repaired(
        "longer-timeout",
        f"""{SHORT}
if rank == 0:
    time.sleep(4)  # as long as it takes to read the data
dist.barrier()
{END}""",
    ),
    "timeout-masks-cause": Repaired(
        "longer-timeout",
        f"""{SHORT}
total = torch.ones(1)
for step in range(3):
    time.sleep(4 * (rank == 1 and step == 2))
    dist.all_reduce(total)
{END}""",
    ),
    "heterogeneous-gpus": Repaired(
        "longer-timeout",
        f"""{SHORT}
model = DistributedDataParallel(nn.Linear(1, 1))
for step in range(2):
    time.sleep(3.5 * rank)  # the slower GPU
    model(torch.ones(1, 1)).sum().backward()
{END}""",
    ),
}
# Causes of which the review makes a patch that is run in ``real_jobs``: ``test_proved_patches`` compares.
RUN_BY_REVIEW = {
    *("accumulate-without-no-sync", "all-ranks-side-effects", "checkpoint-race", "collective-desync"),
    *("effective-batch-lr", "env-contract-broken", "exit-hang", "fsdp-optimizer-order", "fsdp-state-dict"),
    "gradient-scaler-amp",
    *("group-order-cycle", "iterable-not-sharded", "local-rank-device", "missing-sampler", "missing-set-epoch"),
    "mixed-parallel-groups",
    *("module-prefix-state-dict", "p2p-deadlock", "rank-conditional-collective", "rank-dependent-init"),
    *("rank-died-survivors-wait", "script-error", "uneven-inputs", "unused-parameters", "wrap-before-device"),
    *("worker-rng-duplicate", "wrapper-forward-bypassed"),
}
