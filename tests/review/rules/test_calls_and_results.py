"""Causes in unfinished calls, lists for one call, samplers and copied states, each with programs that look alike."""

import pytest
from helpers.review_snippets import lines

START = """
import copy
import random
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, random_split
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
SUMMED = START + "total = torch.ones(2)\nwork = dist.all_reduce(total, async_op=True)\n"
PASSED = START + "x, y = torch.ones(4), torch.empty(4)\nwork = dist.isend(x, (rank + 1) % world)\n"
EXCHANGED = (
    START
    + """
x, y = torch.ones(4), torch.empty(4)
ops = [dist.P2POp(dist.isend, x, (rank + 1) % world), dist.P2POp(dist.irecv, y, (rank - 1) % world)]
"""
)
CONFIG = START + "config = {'lr': random.random()} if rank == 0 else None\n"
BATCHES = (
    START
    + """
model = DDP(nn.Linear(4, 3))
sampler = SAMPLER
loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, drop_last=True))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in loader:
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
)
HEADS = (
    START
    + """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in range(2))

    def forward(self, x):
        return TAKEN

model = DDP(Heads()OPTIONS)
model(torch.ones(2, 4)).sum().backward()
"""
)
TEACHER = (
    START
    + """
torch.manual_seed(SEED)
student, teacher = nn.Linear(4, 8), nn.Linear(4, 8)
BEFORE
model = DDP(student)
AFTER
F.mse_loss(model(torch.ones(2, 4)), teacher(torch.ones(2, 4))).backward()
"""
)
FROM_STUDENT = "teacher.load_state_dict(student.state_dict())"
DIVIDED = (
    START
    + """
model = DDP(nn.Linear(4, 1))
loss = model(torch.ones(2, 4)).sum() / NUMBER
loss.backward()
"""
)
FILLED_UP = (
    START
    + """
model = DDP(nn.Linear(4, 1))
torch.manual_seed(rank)
buffer = []
for step in range(200):
    SIZE
    buffer.extend(torch.randn(n, 4)ROWS)
    if len(buffer) >= 64:
        model(torch.stack(buffer[:16])).sum().backward()
"""
)
TOTALS = (
    START
    + """
def run(loader):
    total = torch.zeros(1)
    for epoch in range(3):
        BEFORE
        for x in loader:
            total += x.mean()
        dist.all_reduce(total)
        print(total / world)
        AFTER

run(data)
"""
)
RATES = (
    START
    + """
model = DDP(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(rank)
for step in range(9):
    loss = model(torch.randn(4, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    value = loss.detach()
    SHARE
    if value.item() < 0.5:
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
"""
)
TARGETS = (
    START
    + """
model = DDP(nn.Linear(4, 2))
target = copy.deepcopy(model.module)
torch.manual_seed(rank)
for step in range(9):
    x = torch.randn(4, 4)
    loss = (model(x) - target(x)).pow(2).mean()
    loss.backward()
    value = loss.detach()
    SHARE
    if TEST:
        target.load_state_dict(model.module.state_dict())
"""
)
SPLIT = (
    START
    + """
parts = random_split(data, [80, 16], generator=torch.Generator().manual_seed(SEED))
loader = DataLoader(parts[0], sampler=DistributedSampler(parts[0]))
dist.barrier()
"""
)
NORMED = (
    START
    + """
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
if WHO:
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
model = DDP(net)
model(torch.ones(8, 4)).sum().backward()
"""
)
AVERAGES = (
    START
    + """
class Average:
    def __init__(self, model):
        self.model = copy.deepcopy(model)

    def update(self, model):
        for mine, new in zip(self.model.parameters(), model.parameters()):
            mine.data.mul_(0.9).add_(new.data, alpha=0.1)

model = DDP(nn.Linear(4, 2))
average = Average(model.module)
for x in data:
    model(x).sum().backward()
    if WHO:
        average.update(model.module)
    if USER:
        print(average.model(x))
"""
)
CONVERT = "net = nn.SyncBatchNorm.convert_sync_batchnorm(net)"


def filled(code: str, **parts: str) -> str:
    """Return a program with its parts."""
    for name, part in parts.items():
        code = code.replace(name, part)
    return code


FOUND = {
    "a sum that is read too early": ("DW415", SUMMED + "mean = total / world\nwork.wait()", "mean = total / world"),
    "a number that is read too early": ("DW415", SUMMED + "mean = total.mean()\nwork.wait()", "mean = total.mean()"),
    "a message that is changed too early": ("DW415", PASSED + "x += 1\nwork.wait()", "x += 1"),
    "a message that a method changes too early": ("DW415", PASSED + "x.zero_()\nwork.wait()", "x.zero_()"),
    "messages that nothing waits for": (
        "DW415",
        EXCHANGED + "dist.batch_isend_irecv(ops)",
        "dist.batch_isend_irecv(ops)",
    ),
    "an object in a list of its own": (
        "DW421",
        CONFIG + "dist.broadcast_object_list([config], src=0)\nprint(config)",
        "dist.broadcast_object_list([config], src=0)",
    ),
    "a list without places": (
        "DW417",
        START + "out = []\ndist.all_gather_object(out, rank)",
        "dist.all_gather_object(out, rank)",
    ),
    "batches of a sampler that knows no ranks": (
        "DW202",
        filled(BATCHES, SAMPLER="RandomSampler(data)"),
        "loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, drop_last=True))",
    ),
    "a head by the rank": (
        "DW216",
        filled(HEADS, TAKEN="self.heads[rank % 2](self.body(x))", OPTIONS=""),
        "model = DDP(Heads())",
    ),
    "a teacher from the student before DDP": (
        "DW231",
        filled(TEACHER, SEED="7 + rank", BEFORE=FROM_STUDENT, AFTER="pass"),
        FROM_STUDENT,
    ),
    "a loss divided by samples of all ranks": ("DW235", filled(DIVIDED, NUMBER="(8 * world)"), "loss.backward()"),
    "rows of a number of each rank": (
        "DW406",
        filled(FILLED_UP, SIZE="n = int(torch.randint(1, 9, (1,)))", ROWS=""),
        "if len(buffer) >= 64:",
    ),
    "a total over all epochs that each sums up": (
        "DW436",
        filled(TOTALS, BEFORE="pass", AFTER="pass"),
        "dist.all_reduce(total)",
    ),
    "a learning rate by the loss of a rank": ("DW252", filled(RATES, SHARE="pass"), 'group["lr"] *= 0.5'),
    "a target that is renewed by the loss of a rank": (
        "DW256",
        filled(TARGETS, SHARE="pass", TEST="value.item() < 0.1"),
        "target.load_state_dict(model.module.state_dict())",
    ),
    "a split by a generator of each rank": (
        "DW227",
        filled(SPLIT, SEED="rank"),
        "parts = random_split(data, [80, 16], generator=torch.Generator().manual_seed(rank))",
    ),
    "an average that one rank changes": (
        "DW256",
        filled(AVERAGES, WHO="rank == 0", USER="True"),
        "average.update(model.module)",
    ),
    "synchronised layers of one rank": ("DW249", filled(NORMED, WHO="rank == 0"), CONVERT),
}
RIGHT = {
    "a sum that is read in time": ("DW415", SUMMED + "work.wait()\nmean = total / world"),
    "the size of a sum": ("DW415", SUMMED + "n = total.numel()\nwork.wait()"),
    "another tensor meanwhile": ("DW415", SUMMED + "other = torch.ones(2) / world\nwork.wait()"),
    "a name for another tensor": ("DW415", SUMMED + "total = torch.ones(2)\nprint(total / 2)\nwork.wait()"),
    "a message that is read": ("DW415", PASSED + "print(x + 1)\nwork.wait()"),
    "a message that is changed in time": ("DW415", PASSED + "work.wait()\nx += 1"),
    "messages that are waited for": ("DW415", EXCHANGED + "for each in dist.batch_isend_irecv(ops):\n    each.wait()"),
    "an object in a list with a name": (
        "DW421",
        CONFIG + "held = [config]\ndist.broadcast_object_list(held, src=0)\nprint(held[0])",
    ),
    "an object that one rank sends": (
        "DW421",
        CONFIG
        + "held = [None]\nif rank == 0:\n    dist.broadcast_object_list([config], src=0)\nelse:\n"
        + "    dist.broadcast_object_list(held, src=0)",
    ),
    "a list with places": ("DW417", START + "out = [None] * world\ndist.all_gather_object(out, rank)"),
    "a list that gets places": (
        "DW417",
        START + "out = []\nfor _ in range(world):\n    out.append(None)\ndist.all_gather_object(out, rank)",
    ),
    "a list that gets its places at once": (
        "DW417",
        START + "out = []\nout += [None] * world\nout.extend([None])\ndist.all_gather_object(out, rank)",
    ),
    "batches of a part": ("DW202", filled(BATCHES, SAMPLER="DistributedSampler(data)")),
    "all heads": ("DW216", filled(HEADS, TAKEN="sum(head(self.body(x)) for head in self.heads)", OPTIONS="")),
    "a head by the rank that DDP knows of": (
        "DW216",
        filled(HEADS, TAKEN="self.heads[rank % 2](self.body(x))", OPTIONS=", find_unused_parameters=True"),
    ),
    "a teacher from the model in DDP": (
        "DW231",
        filled(TEACHER, SEED="7 + rank", BEFORE="pass", AFTER="teacher.load_state_dict(model.module.state_dict())"),
    ),
    "a teacher from a file": (
        "DW231",
        filled(TEACHER, SEED="7 + rank", BEFORE='teacher.load_state_dict(torch.load("t.pt"))', AFTER="pass"),
    ),
    "a teacher from one seed": ("DW231", filled(TEACHER, SEED="7", BEFORE=FROM_STUDENT, AFTER="pass")),
    "a teacher from a student that comes from a file": (
        "DW231",
        filled(
            TEACHER, SEED="7 + rank", BEFORE=f'student.load_state_dict(torch.load("s.pt"))\n{FROM_STUDENT}', AFTER=""
        ),
    ),
    "a loss divided by samples of the rank": ("DW235", filled(DIVIDED, NUMBER="8")),
    "a loss divided by a number of rounds": ("DW235", filled(DIVIDED, NUMBER="(64 // world)")),
    "as many rows on each rank": ("DW406", filled(FILLED_UP, SIZE="n = 4", ROWS="")),
    "as many unbound rows on each rank": ("DW406", filled(FILLED_UP, SIZE="n = 4", ROWS=".unbind(0)")),
    "a total that begins with each epoch": ("DW436", filled(TOTALS, BEFORE="total = torch.zeros(1)", AFTER="pass")),
    "a total that each epoch empties": ("DW436", filled(TOTALS, BEFORE="pass", AFTER="total.zero_()")),
    "a total that begins again behind each epoch": (
        "DW436",
        filled(TOTALS, BEFORE="pass", AFTER="total = torch.zeros(1)"),
    ),
    "a learning rate by the loss of all": ("DW252", filled(RATES, SHARE="dist.all_reduce(value)")),
    "a target that is renewed by the loss of all": (
        "DW256",
        filled(TARGETS, SHARE="dist.all_reduce(value)", TEST="value.item() < 0.1"),
    ),
    "a target that is renewed every third step": ("DW256", filled(TARGETS, SHARE="pass", TEST="step % 3 == 0")),
    "an average that all ranks change": ("DW256", filled(AVERAGES, WHO="step", USER="True")),
    "an average of one rank": ("DW256", filled(AVERAGES, WHO="rank == 0", USER="rank == 0")),
    "a split by one seed": ("DW227", filled(SPLIT, SEED="0")),
    "synchronised layers of all ranks": ("DW249", filled(NORMED, WHO="world > 1")),
    "a tensor times the rank": ("DW427", START + "t = torch.ones(3) * rank\ndist.broadcast(t, src=0)"),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str) -> None:
    assert lines(code, rule) == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert lines(code, rule) == []
