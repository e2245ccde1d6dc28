"""The causes that the user's own file can show, each with a script whose patch repairs it."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from ddpwizard.app.review.file_review import review_file
from helpers.built_in_knowledge import built_in_knowledge
from helpers.cause_programs import CAUSE_PROGRAMS, RUN_BY_REVIEW

KNOWLEDGE = built_in_knowledge()
LEAST_CAUSES = 30
IMPORTS = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.checkpoint import checkpoint
"""
GROUP = 'dist.init_process_group("nccl")\nrank, world_size = dist.get_rank(), dist.get_world_size()\n'
WRAPPED = GROUP + "model = DDP(nn.Linear(1, 1))\n"
LOADER = "loader = DataLoader(data, batch_size=4, num_workers=2)\n"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"

SCRIPTS = {
    "accumulate-without-no-sync": f"""{WRAPPED}{OPTIMIZER}
for number, x in enumerate(data):
    if number % 4 != 0:
        with model.no_sync():
            model(x).sum().backward()
    else:
        model(x).sum().backward()
    if (number + 1) % 4 == 0:
        optimizer.step()
""",
    "all-ranks-side-effects": f'{GROUP}os.makedirs("runs")\n',
    "backend-mismatch": GROUP,
    "barrier-wrong-device": GROUP,
    "bucket-overlap": WRAPPED,
    "checkpoint-race": f'{GROUP}torch.save({{}}, "last.pt")\n',
    "collective-desync": f"{GROUP}parts = [torch.zeros(1)] * world_size\ndist.all_gather(parts, torch.ones(1))\n",
    "cpu-oversubscribed": LOADER,
    "data-bound": LOADER,
    "dataloader-stall": LOADER,
    "compile-per-rank": f"{WRAPPED}model = torch.compile(model)\n",
    "effective-batch-lr": f"{GROUP}batch_size = 64\nbatch_size //= torch.cuda.device_count()\n"
    'print(os.environ["WORLD_SIZE"])\n',
    "env-contract-broken": 'dist.init_process_group("nccl", rank=int(os.environ["LOCAL_RANK"]), world_size=8)\n',
    "exit-hang": f"{GROUP}for x in data:\n    print(x)\n",
    "fsdp-optimizer-order": f"{GROUP}model = nn.Linear(1, 1)\n{OPTIMIZER}fully_shard(model)\n",
    "group-order-cycle": f"""{GROUP}
pairs = [(n, (n + 1) % world_size) for n in range(world_size)]
groups = {{pair: dist.new_group(pair) for pair in pairs}}
own = [pair for pair in pairs if rank in pair]
for pair in sorted(own, key=lambda pair: (pair[0] - rank) % world_size):
    dist.all_reduce(torch.ones(1), group=groups[pair])
""",
    "fsdp-state-dict": f"{GROUP}model = nn.Linear(1, 1)\nfully_shard(model)\n"
    'model.load_state_dict(torch.load("last.pt"))\n',
    "gradient-scaler-amp": f"""{WRAPPED}{OPTIMIZER}
scaler = torch.amp.GradScaler("cuda")
for x in data:
    scaler.scale(model(x).sum()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
""",
    "heterogeneous-gpus": GROUP,
    "host-ram-oom": LOADER,
    "init-file-stale": 'dist.init_process_group("nccl", init_method="file:///tmp/x", rank=rank, world_size=2)\n',
    "incomplete-resume": f"""{WRAPPED}{OPTIMIZER}
state = torch.load("last.pt")
optimizer.load_state_dict(state["optimizer"])
torch.save({{"model": model.module.state_dict()}}, "last.pt")
""",
    "inplace-buffer-modified": WRAPPED,
    "iterable-not-sharded": f"""{WRAPPED}
class Lines(IterableDataset):
    def __init__(self, lines, rank):
        self.lines, self.rank = lines, rank
    def __iter__(self):
        yield from self.lines
for x in DataLoader(Lines([torch.ones(1) for _ in range(64)], rank)):
    model(x).sum().backward()
""",
    "local-rank-device": f"{GROUP}torch.cuda.set_device(rank)\n",
    "missing-sampler": f"""{WRAPPED}
loader = DataLoader(data, batch_size=4, shuffle=True)
for epoch in range(3):
    for x in loader:
        model(x).sum().backward()
""",
    "missing-set-epoch": f"""{WRAPPED}
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
for epoch in range(3):
    for x in loader:
        model(x).sum().backward()
""",
    "mixed-parallel-groups": f"""{GROUP}
from torch.distributed.device_mesh import init_device_mesh

dp_size, tp_size = 4, 2
mesh = init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("tp", "dp"))
""",
    "module-prefix-state-dict": f'{WRAPPED}torch.save(model.state_dict(), f"{{rank}}.pt")\n',
    "one-rank-oom": f'{WRAPPED}model.load_state_dict(torch.load("last.pt"))\n',
    "p2p-deadlock": f"{GROUP}x, y = torch.ones(1), torch.zeros(1)\ndist.recv(y, src=(rank - 1) % world_size)\n"
    "dist.send(x, dst=(rank + 1) % world_size)\n",
    "rank-conditional-collective": f"{GROUP}if rank == 0:\n    dist.barrier()\n",
    "rank-died-survivors-wait": GROUP,
    "rank0-slow-work": GROUP,
    "rank-dependent-init": f"{GROUP}sampler = DistributedSampler(data, seed=7 + rank)\n",
    "ranks-missing-at-init": GROUP,
    "ready-twice": f"{WRAPPED}y = checkpoint(model, x, use_reentrant=True)\n",
    "timeout-masks-cause": GROUP,
    "uneven-inputs": f"{WRAPPED}for x in data:\n    model(x).sum().backward()\n",
    "unused-parameters": WRAPPED,
    "worker-rng-duplicate": f"""{WRAPPED}torch.manual_seed(1)
for _ in data:
    model(torch.randn(1, 1)).sum().backward()
""",
    "script-error": 'dist.init_process_group("gloo", timeout=30)\ndist.barrier()\n',
    "wrap-before-device": f'{GROUP}model = DDP(nn.Linear(1, 1))\nmodel.to("cuda")\n',
    "wrapper-forward-bypassed": f"{WRAPPED}for x in data:\n    model.module(x).sum().backward()\n",
}

RUN_BY_RECIPES = {"init-file-stale"}  # by real_jobs/test_recipe_patches; CAUSE_PROGRAMS by test_cause_patches


@pytest.mark.parametrize("cause", SCRIPTS)
def test_a_cause_ends_in_a_patch_of_the_script(cause: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(IMPORTS + SCRIPTS[cause])
    fixes = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
    patches = [patch for fix in fixes for patch in fix.patches]
    found = [finding for finding in review_file(script, KNOWLEDGE) if finding.cause == cause]
    assert patches or any(finding.fix and finding.fix.edits for finding in found)
    for patch in patches:
        assert patch.path == str(script)
        assert patch.after != patch.before
        ast.parse(patch.after)


def test_enough_causes_end_in_a_patch() -> None:
    assert len(SCRIPTS) >= LEAST_CAUSES
    assert set(SCRIPTS) <= set(KNOWLEDGE.causes)


def test_causes_whose_patch_is_run() -> None:
    """The patch of each of these causes is run on two ranks: without it a script goes wrong there, with it right."""
    assert set(SCRIPTS) >= RUN_BY_REVIEW | CAUSE_PROGRAMS.keys() | RUN_BY_RECIPES
    assert len(RUN_BY_REVIEW | CAUSE_PROGRAMS.keys() | RUN_BY_RECIPES) == 33
