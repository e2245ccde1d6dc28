"""Means that helpers sum up, seeds from before the wrap, statistics, and what a round, a method or a return changes."""

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, found, lines, script

START = """
import shutil
import time
from datetime import timedelta
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
METER = """
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def add(self, value, n):
        self.total += value * n
        self.count += n
    @property
    def avg(self):
        return self.total / max(self.count, 1)
    def reduce(self):
        both = torch.tensor({})
        dist.all_reduce(both)
        self.mean = {}
def over_ranks(value):
    t = torch.tensor(float(value))
    dist.all_reduce(t)
    return t.item(){}
meter = Meter()
for chunk in torch.randn(40)[rank::world_size].split(5):
    meter.add(chunk.mean().item(), len(chunk))
"""
SUMMED = {
    "by a function": (METER.format("0.0", "0", "") + 'print("loss", over_ranks(meter.avg))', "dist.all_reduce(t)"),
    "by a method": (
        METER.format("self.avg", "both.item()", "") + 'meter.reduce()\nprint("loss", meter.mean)',
        "dist.all_reduce(both)",
    ),
}
AVERAGED = {
    "divided in the function": METER.format("0.0", "0", " / world_size") + 'print("loss", over_ranks(meter.avg))',
    "the sum and the number": (
        METER.format("0.0", "0", "") + 'print("loss", over_ranks(meter.total) / over_ranks(meter.count))'
    ),
    "a method that divides": (
        METER.format("[self.total, self.count]", "(both[0] / both[1]).item()", "") + "meter.reduce()\nprint(meter.mean)"
    ),
}


@pytest.mark.parametrize(("code", "line"), SUMMED.values(), ids=SUMMED.keys())
def test_means_that_a_helper_sums_up_are_found(code: str, line: str) -> None:
    assert lines(START + code, "DW497") == [line]


@pytest.mark.parametrize("code", AVERAGED.values(), ids=AVERAGED.keys())
def test_means_that_are_averaged_are_not(code: str) -> None:
    assert lines(START + code, "DW497") == []


TRAINING = """
def batch():
    return torch.randn(8, 4)
def train(model, optimizer):
    for _ in range(9):
        x = {0}
        optimizer.zero_grad()
        {1}.backward()
        optimizer.step()
torch.manual_seed({2})
model = DDP(nn.Linear(4, 4))
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""
ALIKE = {
    "by a function": TRAINING.format("batch()", "nn.functional.mse_loss(model(x), x)", "7"),
    "with a difference": TRAINING.format("batch()", "(model(x) - x.sum()).square().mean()", "7"),
}
OTHERS = {
    "a seed of each rank": TRAINING.format("batch()", "nn.functional.mse_loss(model(x), x)", "7 + rank"),
    "a part of each rank": TRAINING.format("batch()[rank::world_size]", "nn.functional.mse_loss(model(x), x)", "7"),
    "drawn where they are used": TRAINING.format("torch.rand(8, 4)", "nn.functional.mse_loss(model(x), x)", "7"),
    "nothing is learned": TRAINING.format("batch()", "model(x).sum()", "7"),
}


@pytest.mark.parametrize("code", ALIKE.values(), ids=ALIKE.keys())
def test_inputs_that_all_ranks_draw_alike_are_found(code: str) -> None:
    assert len(lines(START + code, "DW243")) == 1


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS.keys())
def test_inputs_of_each_rank_are_not(code: str) -> None:
    assert lines(START + code, "DW243") == []


BATCH_NORM = """
model = DDP(nn.Sequential(nn.Linear(3, 4), {0}), broadcast_buffers=False)
model(torch.randn(8, 3) + rank).mean().backward()
model.eval()
{1}
error = model.module(torch.ones(10, 3)[rank::world_size]).sum()
dist.all_reduce(error)
"""
SHOWN = 'print("mean", model.module[1].running_mean.sum())'
SENT = "dist.broadcast(model.module[1].running_mean, 0)"


def test_statistics_that_are_only_shown_stay_those_of_a_rank() -> None:
    assert len(lines(START + BATCH_NORM.format("nn.BatchNorm1d(4)", SHOWN), "DW239")) == 1
    assert lines(START + BATCH_NORM.format("nn.BatchNorm1d(4)", SENT), "DW239") == []
    assert lines(START + BATCH_NORM.format("nn.GroupNorm(2, 4)", ""), "DW239") == []


SAVES = """
local_rank = int(os.environ.get("LOCAL_RANK", -1))
if local_rank != -1:
    dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
{}
if local_rank in (-1, 0):
    torch.save(model.module.state_dict(), "model.pt")
"""


def test_one_writer_of_each_node_counts_where_the_script_shows_several() -> None:
    (one,) = found(SAVES.format(""), "DW502")
    (several,) = found(SAVES.format("print('rank', dist.get_rank())"), "DW502")
    assert (one.severity, several.severity) == ("info", "warning")


DELETED = """
if rank == 0:
    torch.save(torch.arange(9), "work/data.pt")
dist.barrier()
folder = "work"
data = torch.load(os.path.join(folder, "data.pt"))
{}
if rank == 0:
    shutil.rmtree(folder)
"""


def test_a_directory_that_others_still_read_is_found() -> None:
    assert lines(START + DELETED.format(""), "DW505") == ["shutil.rmtree(folder)"]
    assert lines(START + DELETED.format("dist.barrier()"), "DW505") == []


PENDING = """
buffer = torch.zeros(4)
handles = []
for i in range(3):
    {}
    handles.append(dist.all_reduce(buffer, async_op=True))
for each in handles:
    each.wait()
"""


def test_a_reduction_of_memory_that_the_next_round_fills_is_found() -> None:
    assert len(lines(START + PENDING.format("buffer.fill_(i)"), "DW415")) == 1
    assert lines(START + PENDING.format("buffer = torch.full((4,), float(i))"), "DW415") == []


def test_a_function_that_makes_the_process_group_again_is_found() -> None:
    setup = "def setup():\n    dist.init_process_group('gloo')\nsetup()\n{}dist.all_reduce(torch.ones(1))\n"
    assert len(lines(setup.format("setup()\n"), "DW463")) == 1
    assert lines(setup.format("dist.destroy_process_group()\nsetup()\n"), "DW463") == []
    assert lines(setup.format(""), "DW463") == []


PARAMETERS = """
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
{0}:
    net.load_state_dict(torch.load("net.pt", map_location="cpu"))
for each in {1}:
    dist.broadcast(each.data, src=0)
print(net.eval()(torch.ones(2, 4)).sum())
"""


def test_parameters_that_are_sent_without_buffers_are_found() -> None:
    sent = "dist.broadcast(each.data, src=0)"
    assert lines(START + PARAMETERS.format("if rank == 0", "net.parameters()"), "DW511") == [sent]
    assert lines(START + PARAMETERS.format("if rank == 0", "net.state_dict().values()"), "DW511") == []
    assert lines(START + PARAMETERS.format("if True", "net.parameters()"), "DW511") == []


KEYS = """
metrics = {{"loss": 1.0, "acc": 0.5}}
names = {}
t = torch.tensor([metrics[n] for n in names])
dist.all_reduce(t)
"""


def test_sums_in_the_order_of_a_set_of_texts_are_found() -> None:
    assert len(lines(START + KEYS.format("set(metrics)"), "DW233")) == 1
    assert lines(START + KEYS.format("sorted(set(metrics))"), "DW233") == []
    assert lines(START + KEYS.format("list(metrics)"), "DW233") == []


ENTRIES = """
stats = {{"loss": torch.ones(1), "tokens": torch.ones(1)}}
if rank == 0:
    loss, tok = stats["loss"], stats["tokens"]
    dist.all_reduce(loss)
    dist.all_reduce(tok)
else:
    for name in {}:
        dist.all_reduce(stats[name])
"""


def test_entries_in_another_order_are_found() -> None:
    assert len(lines(START + ENTRIES.format('("tokens", "loss")'), "DW443")) == 1
    assert lines(START + ENTRIES.format('("loss", "tokens")'), "DW443") == []


HEAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 9)
        self.seen = 0
    def forward(self, x):
        return self.head(x)
    def change(self):
        self.{}
model = DDP(Net())
model.module.change()
"""


def test_a_method_that_replaces_a_layer_in_ddp_is_found() -> None:
    assert lines(START + HEAD.format("head = nn.Linear(4, 3)"), "DW228") == ["model.module.change()"]
    assert lines(START + HEAD.format("seen = int(3)"), "DW228") == []


EXPERTS = """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(3))
    def forward(self, x):
        out = x.new_zeros(len(x), 1)
        for i, expert in enumerate(self.experts):
            {}
        return out
net = Experts()
net(torch.randn(3, 4, generator=torch.Generator().manual_seed(rank))).mean().backward()
for p in net.parameters():
    if p.grad is None:
        continue
    dist.all_reduce(p.grad)
"""


def test_layers_of_a_loop_that_data_choose_are_found() -> None:
    chosen = "m = self.gate(x).argmax(-1) == i\n            if m.any():\n                out[m] = expert(x[m])"
    assert len(lines(START + EXPERTS.format(chosen), "DW447")) == 1
    assert lines(START + EXPERTS.format("out += self.gate(x)[:, i : i + 1] * expert(x)"), "DW447") == []


def test_numbers_of_an_object_in_a_tensor_that_is_lost_are_found() -> None:
    score = (
        "class Score:\n    def __init__(self):\n        self.hits = 0\n    def add(self, n):\n        self.hits += n\n"
    )
    sync = "    def sync(self):\n        {}\ns = Score()\ns.add(int(torch.rand(1) > 0.5))\ns.sync()"
    lost = "dist.all_reduce(torch.tensor([self.hits]))"
    kept = "t = torch.tensor([self.hits])\n        dist.all_reduce(t)\n        self.hits = t.item()"
    assert lines(START + score + sync.format(lost), "DW421") == [lost]
    assert lines(START + score + sync.format(kept), "DW421") == []
    assert lines(START + "dist.all_reduce(torch.tensor([1.0]))", "DW421") == []


RESTORED = """
class State:
    def __init__(self):
        self.epoch = 0
    def restore(self):
        if {}:
            return
        self.epoch = torch.load("state.pt")["epoch"]
state = State()
state.restore()
for epoch in range(state.epoch, 4):
    dist.all_reduce(torch.ones(1))
"""


def test_an_attribute_that_is_set_behind_a_return_of_some_ranks_is_found() -> None:
    assert len(lines(START + RESTORED.format("rank != 0"), "DW217")) == 1
    assert lines(START + RESTORED.format('not os.path.exists("state.pt")'), "DW217") == []


SLOW = """
def setup(minutes={}):
    dist.init_process_group("gloo", timeout=timedelta(minutes=minutes))
setup()
if dist.get_rank() == 0:
    time.sleep(20)
dist.barrier()
"""


def test_a_time_out_by_the_default_of_a_parameter_is_read() -> None:
    imports = "import time\nfrom datetime import timedelta\n"
    (finding,) = review_text(script(imports + SLOW.format("0.1")), "train.py", KNOWLEDGE, ["DW124"])
    assert finding.line
    assert lines(imports + SLOW.format("30"), "DW124") == []
