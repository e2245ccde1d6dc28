"""Patches made for the user's own script: the job, which fails or hangs without it, ends well with the patch."""

from pathlib import Path

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from helpers.built_in_knowledge import built_in_knowledge
from helpers.two_ranks import on_two_ranks

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

KNOWLEDGE = built_in_knowledge()
HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
"""
UNUSED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head_a = nn.Linear(8, 1)
        self.head_b = nn.Linear(8, 1)

    def forward(self, x):
        return self.head_a(self.body(x))


net = DDP(Net())
for step in range(3):
    net(torch.randn(4, 8)).mean().backward()
dist.destroy_process_group()
"""
UNEVEN = """
net = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x in [torch.randn(4, 8)] * (3 + rank):
        loss = net(x).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    dist.monitored_barrier(timeout=__import__("datetime").timedelta(seconds=4))
dist.destroy_process_group()
"""
PREFIX = """
net = DDP(nn.Linear(8, 1))
path = f"last.{rank}.pt"
torch.save(net.state_dict(), path)
plain = nn.Linear(8, 1)
plain.load_state_dict(torch.load(path))
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("cause", "fix", "body"),
    [
        ("unused-parameters", "find-unused-parameters", UNUSED),
        ("uneven-inputs", "join-the-loop", UNEVEN),
        ("module-prefix-state-dict", "strip-while-loading", PREFIX),
    ],
)
def test_patched_script_ends_well(cause: str, fix: str, body: str, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(HEAD + body)
    built = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
    (patch,) = next(each for each in built if each.id == fix).patches
    script.write_text(patch.after)
    done = on_two_ranks(tmp_path)
    assert done.code == 0, done.log
