"""Findings that need a fact to be sure, and programs that only look like them."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.review_snippets import KNOWLEDGE, found, lines

START = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
"""
CHOSEN = """
def train(model, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
def main(args):
    if args.kind == "a":
        net = models.A()
    elif args.kind == "b":
        net = models.B()
    else:
        net = torch.nn.Linear(2, 2)
    if args.gpu:
        WRAP
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer)
main(parse())
"""


@pytest.mark.parametrize(("wrap", "count"), [("net = DDP(net, device_ids=[local_rank])", 0), ("other = DDP(net)", 1)])
def test_a_wrapper_that_gets_the_name_of_its_model_is_called(wrap: str, count: int) -> None:
    assert len(found(START + CHOSEN.replace("WRAP", wrap), "DW207")) == count


PREPARED = """
import json
from accelerate import Accelerator
accelerator = Accelerator()
if accelerator.is_main_process:
    os.makedirs(args.out, exist_ok=True)
model = torch.nn.Linear(2, 2)
PREPARE
with open(os.path.join(args.out, f"args{accelerator.process_index}.json"), "w") as file:
    json.dump({"rank": accelerator.process_index}, file)
"""


@pytest.mark.parametrize(
    ("prepare", "count"),
    [
        ("model, loader = accelerator.prepare(model, loader)", 0),
        ("model = accelerator.prepare(model)", 0),
        ("accelerator.wait_for_everyone()", 0),
        ("loader = accelerator.prepare(torch.utils.data.DataLoader(data))", 1),
        ("", 1),
    ],
)
def test_ranks_wait_where_a_model_is_prepared(prepare: str, count: int) -> None:
    assert len(found(PREPARED.replace("PREPARE", prepare), "DW505")) == count


WRAPS = """
def wrap(*modules):
    rank = dist.get_rank() % 8
    modules = [each.cuda() for each in modules]
    return [torch.nn.parallel.DistributedDataParallel(each, device_ids=[rank]) for each in modules]
"""


@pytest.mark.parametrize(
    ("main", "count"), [("", 0), ('dist.init_process_group("nccl")\nwrap(torch.nn.Linear(2, 2))\n', 1)]
)
def test_a_helper_does_not_show_who_selects_the_gpu(main: str, count: int) -> None:
    assert len(found(WRAPS + main, "DW102")) == count


LOADERS = """
model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.data == "small":
    loader = DataLoader(small, batch_size=4, shuffle=True)
else:
    OTHER
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("other", "severities"),
    [
        ("loader = DataLoader(large, sampler=DistributedSampler(large))", ["warning"]),
        ("loader = DataLoader(large, shuffle=True)", ["error", "error"]),
    ],
)
def test_data_that_several_ranks_may_not_be_meant_for(other: str, severities: list[str]) -> None:
    assert [each.severity for each in found(START + LOADERS.replace("OTHER", other), "DW202")] == severities


LIGHTNING = """
import lightning as L
from torch.utils.data import DataLoader
class Model(L.LightningModule):
    def validation_step(self, batch, batch_idx):
        loss = self.layer(batch).sum()
        self.log("val_loss", loss)
trainer = L.Trainer(devices=4, strategy="ddp")
model, train_loader = Model(), DataLoader(data)
FIT
"""


@pytest.mark.parametrize(
    ("fit", "count"),
    [
        ("trainer.fit(model, train_loader)", 0),
        ("trainer.fit(model, DataLoader(data), ckpt_path='last')", 0),
        ("trainer.fit(model, train_loader, DataLoader(tests))", 1),
        ("trainer.fit(model, train_loader)\ntrainer.validate(model, DataLoader(tests))", 1),
        ("trainer.fit(model, data)", 1),
        ("trainer.fit(model, datamodule=data)", 1),
        ("", 1),
    ],
)
def test_logs_of_an_evaluation_that_runs(fit: str, count: int) -> None:
    assert len(found(LIGHTNING.replace("FIT", fit), "DW508")) == count


BATCHES = """
model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[local_rank])
loader = DataLoader(data, sampler=DistributedSampler(data))
for batch in loader:
    out = model(batch)
"""


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("loss = None\nif out.isnan().any():\n    loss = out.sum()\nif loss is not None:", 1),
        ("loss = out.sum() if out.isnan().any() else None\nif loss is None:", 1),
        ("parts = cut(out)\nif len(parts) == 1:\n    parts = parts[0]\nif parts is not None:", 0),
        ('if hasattr(out, "loss"):', 0),
        ("if out.sum() > 0:", 1),
    ],
)
def test_data_that_decide_and_data_that_are_there(code: str, count: int) -> None:
    body = (code + "\n    dist.all_reduce(torch.ones(1).cuda())").replace("\n", "\n    ")
    assert len(lines(START + BATCHES + "    " + body, "DW406")) == count


@pytest.mark.parametrize("given", ["*things", "iter(loader), *things", "*(iter(loader), model)"])
def test_what_prepare_gets_may_be_unpacked(given: str) -> None:
    code = f"""
from accelerate import Accelerator
from torch.utils.data import DataLoader
accelerator = Accelerator()
loader = DataLoader(data)
model = torch.nn.Linear(2, 2)
def batches():
    yield from loader
things = [model, batches()]
prepared = accelerator.prepare({given})
"""
    assert len(found(code, "DW267")) <= 1


AVERAGES = """
def reduce_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
"""
TRAINS = """
dist.init_process_group("gloo")
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in data:
    loss = net(batch).mean()
    LOSS.backward()
    reduce_gradients(net)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("code", "count"),
    [
        (AVERAGES, 0),
        (AVERAGES + TRAINS.replace("LOSS", "loss"), 1),
        (AVERAGES + TRAINS.replace("LOSS", "(loss / dist.get_world_size())"), 0),
    ],
)
def test_a_helper_does_not_show_who_divides(code: str, count: int) -> None:
    assert len(found(code, "DW432")) == count


SHARED = """
import torch, os
import torch.distributed as dist
def set_up(args):
    args.distributed = "RANK" in os.environ
    if args.distributed:
        dist.init_process_group("nccl")
"""


@pytest.mark.parametrize(
    ("wrap", "count"),
    [
        ("model = torch.nn.DataParallel(model)", 0),
        ("model = torch.nn.parallel.DistributedDataParallel(model)", 1),
        (
            "if args.distributed:\n    model = torch.nn.parallel.DistributedDataParallel(model)\n"
            "else:\n    model = torch.nn.DataParallel(model)",
            1,
        ),
        ('dist.init_process_group("nccl")\nmodel = torch.nn.DataParallel(model)', 1),
    ],
)
def test_one_process_with_all_gpus(wrap: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text(SHARED)
    script = tmp_path / "test.py"
    script.write_text(f"""
import torch
import torch.distributed as dist
import shared
def main(args):
    shared.set_up(args)
    model = torch.nn.Linear(2, 2).cuda()
{textwrap.indent(wrap, "    ")}
    torch.save(model.state_dict(), "model.pt")
main(parse())
""")
    findings = review_file(script, KNOWLEDGE)
    assert [each.rule for each in findings].count("DW501") == count
