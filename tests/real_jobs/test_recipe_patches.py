"""Patches of recipes, proved by running: the script went wrong on two ranks, and goes right with the patch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from helpers.built_in_knowledge import built_in_knowledge
from helpers.two_ranks import END, START, on_two_ranks, plain

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.calibration]

KNOWLEDGE = built_in_knowledge()

PAST_THE_WRAPPER = f"""\
{START}
torch.manual_seed(0)
net = DistributedDataParallel(nn.Linear(4, 1))
for step in range(1):
    net.module(torch.full((1, 4), rank + 1.0)).sum().backward()
print(f"gradient {{sum(float(each.grad.sum()) for each in net.parameters()):.1f}}\\n", end="")
{END}"""
CLIPPED_BEFORE_UNSCALED = f"""\
{START}
torch.manual_seed(0)
net = nn.Linear(4, 1)
before = net.weight.detach().clone()
model = DistributedDataParallel(net) if distributed else net
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scaler = torch.amp.GradScaler("cpu")
for step in range(1):
    loss = model(torch.ones(1, 4)).sum()
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(f"moved {{bool((net.weight - before).norm() > 0.5)}}\\n", end="")
{END}"""
GROUP_THAT_STAYS = f"""\
import atexit
{START}
atexit.register(lambda: print(f"group at the end: {{dist.is_initialized()}}\\n", end=""))
total = torch.ones(1)
for step in range(2):
    if distributed:
        dist.all_reduce(total)
"""
GROUP_OF_ONE_RANK = f"""\
{GROUP_THAT_STAYS}
if distributed and rank == 0:
    dist.destroy_process_group()
"""
TWO_WRITERS = f"""\
{START}

class State:
    def __getstate__(self):
        print(f"rank {{rank}} writes\\n", end="")
        return {{"rank": rank}}


def main():
    torch.save(State(), "state.pt")
    torch.load("state.pt", weights_only=False)
    print(f"rank {{rank}} has read\\n", end="")


main()
{END}"""
ONE_DIRECTORY = f"""\
{START}
directory = f"runs-{{world_size}}-{{os.getppid()}}"
os.makedirs(directory)
if distributed:
    dist.barrier()
print(f"rank {{rank}} is done\\n", end="")
{END}"""
WHOLE_DATA_ON_EVERY_RANK = f"""\
{START}
data = torch.arange(16.0)
model = nn.Linear(1, 1)
if distributed:
    model = DistributedDataParallel(model)
loader = DataLoader(data, batch_size=4, shuffle=True)
orders = []
for epoch in range(3):
    order = []
    for batch in loader:
        order += batch.tolist()
        model(batch[:, None]).sum().backward()
    orders.append(tuple(order))
print(f"{{len(orders[0])}} samples a rank, {{len(set(orders))}} orders\\n", end="")
{END}"""
OPTIMIZER_BEFORE_SHARDS = f"""\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
{START}
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
fully_shard(net, mesh=init_device_mesh("cpu", (world_size,)))
before = net[0].weight.full_tensor().detach().clone()
net(torch.ones(2, 4)).sum().backward()
optimizer.step()
moved = float((net[0].weight.full_tensor().detach() - before).abs().sum())
print(f"weights move: {{moved > 0}}\\n", end="")
{END}"""
STALE_FILE = """\
import datetime
import os
import time

import torch
import torch.distributed as dist

time.sleep(3 * int(os.environ["RANK"]))  # rank 0 reads what the file has of rank 1
dist.init_process_group(
    "gloo",
    init_method=f"file://{os.getcwd()}/rendezvous",
    rank=int(os.environ["RANK"]),
    world_size=2,
    timeout=datetime.timedelta(seconds=int(os.environ["WAIT_S"])),
)
total = torch.ones(1)
dist.all_reduce(total)
print(f"{int(total)} ranks\\n", end="", flush=True)
dist.barrier()
os._exit(0)
"""


class Case(NamedTuple):
    """A script and the fix of its cause; what two ranks and plain ``python`` print without and with the patch.

    ``wrong``: text of the run without the patch, which fails if ``fails``; None: torch may abort at its end, or not.
    Without ``plain`` it needs a launcher.
    """

    text: str
    fix: tuple[str, str]
    wrong: Sequence[str]
    right: Sequence[str]
    plain: str = ""
    fails: bool | None = False
    not_right: str = ""


CASES = {
    "past the wrapper": Case(
        PAST_THE_WRAPPER,
        ("wrapper-forward-bypassed", "call-the-wrapper"),
        ["gradient 5.0", "gradient 9.0"],
        ["gradient 7.0\ngradient 7.0"],
    ),
    "clipped before unscaled": Case(
        CLIPPED_BEFORE_UNSCALED,
        ("gradient-scaler-amp", "unscale-before-clip"),
        ["moved False\nmoved False"],
        ["moved True\nmoved True"],
    ),
    "a group that stays": Case(
        GROUP_THAT_STAYS,
        ("exit-hang", "end-the-group"),
        ["group at the end: True\ngroup at the end: True"],
        ["group at the end: False\ngroup at the end: False"],
        plain="group at the end: False",
        fails=None,
    ),
    "a group that one rank ends": Case(
        GROUP_OF_ONE_RANK,
        ("exit-hang", "end-the-group"),
        ["group at the end: True"],
        ["group at the end: False\ngroup at the end: False"],
        plain="group at the end: False",
        fails=None,
    ),
    "two writers": Case(
        TWO_WRITERS,
        ("checkpoint-race", "rank-0-writes"),
        ["rank 0 writes", "rank 1 writes"],
        ["rank 0 writes", "rank 0 has read", "rank 1 has read"],
        plain="rank 0 has read",
        fails=None,
        not_right="rank 1 writes",
    ),
    "one directory": Case(
        ONE_DIRECTORY,
        ("all-ranks-side-effects", "directory-may-exist"),
        ["FileExistsError"],
        ["rank 0 is done", "rank 1 is done"],
        plain="rank 0 is done",
        fails=True,
    ),
    "the whole data on every rank": Case(
        WHOLE_DATA_ON_EVERY_RANK,
        ("missing-sampler", "give-each-rank-its-part"),
        ["16 samples a rank"],
        ["8 samples a rank, 3 orders\n8 samples a rank, 3 orders"],
        plain="16 samples a rank, 3 orders",
    ),
    "an optimizer before the shards": Case(
        OPTIMIZER_BEFORE_SHARDS,
        ("fsdp-optimizer-order", "make-the-optimizer-later"),
        ["weights move: False"],
        ["weights move: True\nweights move: True"],
    ),
    "a stale file": Case(
        STALE_FILE,
        ("init-file-stale", "group-of-the-launcher"),
        [],
        ["2 ranks\n2 ranks"],
        fails=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_patched_script_does_right_where_it_went_wrong(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    script = tmp_path / "train.py"
    script.write_text(case.text)
    if name == "a stale file":
        assert on_two_ranks(tmp_path).code == 0, "the first run leaves its file"
    before = plain(tmp_path) if case.plain else None
    assert before is None or (before.code == 0 and case.plain in before.log), before.log

    wrong = on_two_ranks(tmp_path, 10 if case.fails else 90)
    assert case.fails is None or (wrong.code != 0) is case.fails, wrong.log
    assert not [text for text in case.wrong if text not in wrong.log], wrong.log

    cause, id_ = case.fix
    built = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
    (patch,) = next(fix for fix in built if fix.id == id_).patches
    script.write_text(patch.after)

    right = on_two_ranks(tmp_path)
    assert right.code == 0, right.log
    assert not [text for text in case.right if text not in right.log], right.log
    assert not case.not_right or case.not_right not in right.log, right.log
    after = plain(tmp_path) if case.plain else None
    assert after is None or (after.code == 0 and case.plain in after.log), after.log
