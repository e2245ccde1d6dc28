"""Mistakes of short programs, each with the programs that look alike and are right."""

import pytest
from helpers.review_snippets import found, lines, refused, repaired

START = """
import datetime, random, time
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
OWN = "own = torch.Generator().manual_seed(rank)\n"
LOADED = (
    START
    + OWN
    + """
state = {"round": int(torch.randint(3, 9, (1,), generator=own)), f"random.{rank}": own.get_state()}
LOAD
for _ in range(state["round"]):
    dist.all_reduce(torch.ones(1))
"""
)
ROWS = (
    START
    + OWN
    + """
for row in ROWS:
    dist.all_reduce(torch.ones(1))
"""
)
GROUPS = (
    START
    + """
def halves():
    half = world // 2
    first, second = dist.new_group(list(range(half))), dist.new_group(list(range(half, world)))
    return CHOSEN
dist.all_reduce(torch.ones(1), group=halves())
"""
)
LONE = (
    START
    + """
def show(part):
    out = part(torch.ones(2, 2)).sum()
    out.backward()
net = nn.Linear(2, 2)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
if rank == 0:
    show(PART)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
"""
)
OPENED = (
    START
    + """
from torchvision import datasets
def digits(root):
    if rank == 0:
        datasets.FashionMNIST(root, download=True)
    WAIT
    return datasets.FashionMNIST(root, train=False)
dist.all_reduce(torch.ones(1) * len(digits("data")))
"""
)
TABLE = (
    START
    + """
import pandas
def table(path):
    if rank == 0:
        pandas.DataFrame({"a": [1]}).to_csv(path)
    WAIT
    return pandas.read_csv(path)
dist.all_reduce(torch.ones(1) * len(table("a.csv")))
"""
)
WAYS = (
    START
    + """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.near = nn.Linear(4, 2)
        self.far = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    def forward(self, x, kind, mask=None):
        h = self.body(x)
        FORWARD
model = DDP(Heads()OPTIONS)
for kind in ("near", "far"):
    model(torch.ones(2, 4), kind).sum().backward()
"""
)
TRIED = (
    START
    + """
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(9):
    try:
        model(torch.ones(2, 2)).sum().backward()
    except RuntimeError as error:
        HANDLED
        raise
    optimizer.step()
"""
)
SECOND = (
    START
    + """
class Net(nn.Linear):
    pass
def keep(model, path):
    torch.save(SAVED, path)
def read(path):
    again = OTHER
    again.load_state_dict(torch.load(path, map_location="cpu"))
    return again
model = DDP(Net(2, 2))
model(torch.ones(2, 2)).sum().backward()
if rank == 0:
    keep(model, "weights.pt")
    read("weights.pt")
"""
)
CUT = (
    START
    + """
import numpy as np
data = TensorDataset(torch.arange(90.0))
places = ORDER
cut = 80
train, rest = Subset(data, PART), Subset(data, places[cut:])
dist.all_reduce(torch.ones(1) * len(train))
"""
)
KEPT = (
    START
    + """
model = DDP(nn.Linear(2, 2))
for x, mask in DataLoader(load_data(), 8, sampler=DistributedSampler(load_data())):
    x = x[mask]
    SKIPPED
    model(x).sum().backward()
"""
)
MEAN = (
    START
    + """
def measure(model, loader):
    right, seen = 0, 0
    for x, y in loader:
        right += int((model(x).argmax(1) == y).sum())
        seen += len(y)
    shown = torch.tensor(SHARE)
    dist.all_reduce(shown)
    return RETURNED
print(measure(nn.Linear(2, 2), load_data()))
"""
)
SEEN = (
    START
    + """
def measure(model, loader):
    right = torch.zeros(1)
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    seen = TOTAL
    return right / seen
print(measure(nn.Linear(2, 2), load_data()))
"""
)
CACHED = (
    START
    + """
def table(path):
    ASKED:
        if rank == 0:
            make_table("words.txt", path)
        dist.barrier()
    return read_table(path)
table("words.bin")
"""
)
PIECES = (
    START
    + """
def share(x):
    return x.sum() / len(x)
mean = share(torch.arange(60.0).split(SIZE)[rank])
dist.all_reduce(mean)
mean /= world
"""
)
CLOCK = (
    START
    + """
begin = time.monotonic() - 0.2 * rank
while True:
    dist.all_reduce(torch.ones(1))
    if STOP:
        break
"""
)
BATCHES = (
    START
    + """
torch.manual_seed(rank)
loader = DataLoader(TensorDataset(torch.ones(64, 2)), SIZE, shuffle=True)
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for (x,) in loader:
    model(x).sum().backward()
    optimizer.step()
"""
)
PORT = """
SET
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
dist.all_reduce(torch.ones(1) * rank)
"""
OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--world-size", type=int, default=2)
given = parser.parse_args()
dist.init_process_group("gloo", INIT)
dist.all_reduce(torch.ones(1) * given.rank)
"""
SCATTERED = (
    START
    + """
whole = torch.ones(8, 2)
part = torch.empty(8 // world, 2)
dist.scatter(part, GIVEN, src=0)
"""
)
FILLED = (
    START
    + """
def measured():
    found = {}
    if TEST:
        found["near"] = torch.ones(1)
        found["far"] = torch.zeros(1)
    else:
        found["far"] = torch.zeros(1)
        found["near"] = torch.ones(1)
    return found
def total(found):
    for name in ORDER:
        dist.all_reduce(found[name])
total(measured())
"""
)
EITHER = 'if kind == "near":\n            return self.near(h)\n        return self.far(h)'
LARGE = "h = self.near(h) if h.mean() > 0 else h\n        return self.far(h)"
WRONG = {
    "a number of a mapping with entries by rank": ("DW405", LOADED.replace("LOAD", "print(state)")),
    "rounds by a number that is drawn": (
        "DW405",
        ROWS.replace("ROWS", "range(int(torch.randint(9, (1,), generator=own)))"),
    ),
    "a group of the others": ("DW446", GROUPS.replace("CHOSEN", "first")),
    "a backward pass of one rank": ("DW402", LONE.replace("PART", "model")),
    "a data set that is downloaded": ("DW505", OPENED.replace("WAIT", "pass")),
    "a table that is written": ("DW505", TABLE.replace("WAIT", "pass")),
    "two ways by an argument": ("DW216", WAYS.replace("FORWARD", EITHER).replace("OPTIONS", "")),
    "a way by a number of the data": ("DW216", WAYS.replace("FORWARD", LARGE).replace("OPTIONS", "")),
    "the next round for one kind of error": (
        "DW411",
        TRIED.replace("HANDLED", 'if "memory" in str(error):\n            continue'),
    ),
    "a second model": ("DW219", SECOND.replace("SAVED", "model.state_dict()").replace("OTHER", "Net(2, 2)")),
    "an order of numpy": ("DW227", CUT.replace("ORDER", "np.random.permutation(90)").replace("PART", "places[:cut]")),
    "an order of torch": ("DW227", CUT.replace("ORDER", "torch.randperm(90).tolist()").replace("PART", "places[:cut]")),
    "an empty batch": ("DW406", KEPT.replace("SKIPPED", "if len(x) == 0:\n        continue")),
    "a share of its own": ("DW497", MEAN.replace("SHARE", "right / seen").replace("RETURNED", "shown.item()")),
    "a share in a list": ("DW497", MEAN.replace("SHARE", "[right / seen]").replace("RETURNED", "shown.item()")),
    "a count by a comprehension": ("DW498", SEEN.replace("TOTAL", "sum(len(y) for _, y in loader)")),
    "a barrier behind a question": ("DW472", CACHED.replace("ASKED", "if not os.path.exists(path)")),
    "a mean over pieces of one size": ("DW429", PIECES.replace("SIZE", "40")),
    "a clock that begins apart": ("DW405", CLOCK.replace("STOP", "time.monotonic() - begin > 9")),
    "a share of the batch": ("DW202", BATCHES.replace("SIZE", "16 // world")),
    "a port of the script": ("DW122", PORT.replace("SET", 'os.environ["MASTER_PORT"] = "23456"')),
    "a rank by option": ("DW234", OPTION.replace("INIT", "rank=given.rank, world_size=given.world_size")),
    "names in another order": ("DW443", FILLED.replace("TEST", "rank == 0").replace("ORDER", "found.keys()")),
    "pieces on all ranks": ("DW417", SCATTERED.replace("GIVEN", "list(whole.chunk(world))")),
}
CHOSEN = "first if rank < half else second"
AGREED = "agreed = torch.tensor(time.monotonic() - begin)"
RIGHT = {
    "an entry that is loaded": ("DW405", LOADED.replace("LOAD", 'dcp.load(state, checkpoint_id="last")')),
    "rows that are drawn": ("DW405", ROWS.replace("ROWS", "torch.randn(4, 2, generator=own)")),
    "places that are drawn": ("DW405", ROWS.replace("ROWS", "enumerate(torch.randperm(4, generator=own))")),
    "a group of its own": ("DW446", GROUPS.replace("CHOSEN", CHOSEN)),
    "a backward pass of the inner model": ("DW402", LONE.replace("PART", "net")),
    "gradients that are set to zero": ("DW207", LONE.replace("PART", "model.module")),
    "a wait for the download": ("DW505", OPENED.replace("WAIT", "dist.barrier()")),
    "a wait for the table": ("DW505", TABLE.replace("WAIT", "dist.barrier()")),
    "unused layers that are looked for": (
        "DW216",
        WAYS.replace("FORWARD", EITHER).replace("OPTIONS", ", find_unused_parameters=True"),
    ),
    "both ways": ("DW216", WAYS.replace("FORWARD", "return self.near(h) + self.far(h)").replace("OPTIONS", "")),
    "an argument that may be missing": (
        "DW216",
        WAYS.replace(
            "FORWARD", "if mask is not None:\n            h = h * mask\n        return self.near(h) + self.far(h)"
        ).replace("OPTIONS", ""),
    ),
    "an error that is raised again": ("DW411", TRIED.replace("HANDLED", "print(error)")),
    "a second model of the inner state": (
        "DW219",
        SECOND.replace("SAVED", "model.module.state_dict()").replace("OTHER", "Net(2, 2)"),
    ),
    "a second model of another kind": (
        "DW219",
        SECOND.replace("SAVED", "model.state_dict()").replace("OTHER", "make_wrapper()"),
    ),
    "an order by a seed": (
        "DW227",
        CUT.replace("ORDER", "np.random.default_rng(4).permutation(90)").replace("PART", "places[:cut]"),
    ),
    "a part of one side": ("DW227", CUT.replace("ORDER", "np.random.permutation(90)").replace("PART", "range(80)")),
    "a batch of zeros": ("DW406", KEPT.replace("SKIPPED", "x = x if len(x) else torch.zeros(1, 2)")),
    "a share of all": (
        "DW497",
        MEAN.replace("SHARE", "right / len(loader.dataset)").replace("RETURNED", "shown.item()"),
    ),
    "a share that is divided": ("DW497", MEAN.replace("SHARE", "right / seen").replace("RETURNED", "shown / world")),
    "a count of the data set": ("DW498", SEEN.replace("TOTAL", "len(loader.dataset)")),
    "a count of gathered parts": ("DW498", SEEN.replace("TOTAL", "sum(len(y) for y in gather_labels(loader))")),
    "a question of rank 0": (
        "DW472",
        CACHED.replace("ASKED", "if True").replace("if rank == 0", "if rank == 0 and not os.path.exists(path)"),
    ),
    "an answer before a barrier": (
        "DW472",
        CACHED.replace("ASKED", "missing = not os.path.exists(path)\n    dist.barrier()\n    if missing"),
    ),
    "pieces as long": ("DW429", PIECES.replace("SIZE", "30")),
    "a clock that is agreed on": (
        "DW405",
        CLOCK.replace("    if STOP", f"    {AGREED}\n    dist.broadcast(agreed, 0)\n    if agreed.item() > 9"),
    ),
    "samples that each rank draws": ("DW202", BATCHES.replace("SIZE", "16")),
    "a port that may be set": ("DW122", PORT.replace("SET", 'os.environ.setdefault("MASTER_PORT", "23456")')),
    "a port for ranks of its own": (
        "DW122",
        PORT.replace("SET", 'os.environ["MASTER_PORT"] = "23456"\nos.environ["RANK"] = "0"'),
    ),
    "an address by hand": (
        "DW234",
        OPTION.replace("INIT", 'init_method="tcp://10.0.0.1:23456", rank=given.rank, world_size=given.world_size'),
    ),
    "names that are sorted": ("DW443", FILLED.replace("TEST", "rank == 0").replace("ORDER", "sorted(found)")),
    "an order by an option": ("DW443", FILLED.replace("TEST", "world > 2").replace("ORDER", "found.keys()")),
    "pieces on the root": ("DW417", SCATTERED.replace("GIVEN", "list(whole.chunk(world)) if rank == 0 else None")),
}


STOPPED = (
    START
    + """
class Patience:
    def __init__(self):
        self.best, self.bad = None, 0
    def is_over(self, loss):
        if self.best is None or loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= 3

held = torch.randn(40, 4).chunk(world)[rank]
model, patience = DDP(nn.Linear(4, 1)), Patience()
for epoch in range(50):
    model(torch.randn(8, 4)).sum().backward()
    loss = model.module(held).square().mean()
    REDUCED
    if patience.is_over(loss.item()):
        break
"""
)
PLACED = (
    START
    + """
rows = TensorDataset(torch.arange(11), torch.randn(11, 3))
loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows, shuffle=False))
places, scores = [], []
for place, row in loader:
    places.append(place)
    scores.append(row.mean(1))
places, scores = torch.cat(places), torch.cat(scores)
all_places = [torch.zeros_like(places) for _ in range(world)]
all_scores = [torch.zeros_like(scores) for _ in range(world)]
dist.all_gather(all_places, places)
dist.all_gather(all_scores, scores)
USED
"""
)
BY_PLACE = """total = torch.zeros(len(rows))
for place, score in zip(all_places, all_scores):
    total[place] = score
print(total.mean())"""


def test_a_stop_by_the_loss_of_one_rank_is_no_mere_remark() -> None:
    assert [finding.severity for finding in found(STOPPED.replace("REDUCED", "pass"), "DW405")] == ["warning"]
    assert found(STOPPED.replace("REDUCED", "dist.all_reduce(loss)"), "DW405") == []


def test_a_total_is_summed_up_where_it_is_known_before_the_reduction() -> None:
    late = SEEN.replace("TOTAL", "sum(len(y) for _, y in loader)")
    assert "sum up the count" in refused(late, "DW498")
    total = "    seen = sum(len(y) for _, y in loader)\n"
    early = late.replace(total, "").replace("    dist.all_reduce(right)", f"{total}    dist.all_reduce(right)")
    assert "dist.all_reduce(count_of_all)" in repaired(early, "DW498")


def test_repeated_samples_that_are_put_in_their_places_count_once() -> None:
    assert len(found(PLACED.replace("USED", "print(torch.cat(all_scores).mean())"), "DW430")) == 1
    assert found(PLACED.replace("USED", BY_PLACE), "DW430") == []


@pytest.mark.parametrize(("rule", "code"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_found(rule: str, code: str) -> None:
    assert len(found(code, rule)) == 1


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT.keys())
def test_a_program_that_looks_alike_is_not(rule: str, code: str) -> None:
    assert lines(code, rule) == []
