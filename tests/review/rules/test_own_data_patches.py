"""Patches for samplers, parts and buffers of each rank, and for what Accelerate has to get: where there is none."""

import pytest
from helpers.review_snippets import refused, repaired

SAMPLED = """
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
train, held_out = list(range(8)), list(range(4))
sampler = DistributedSampler(train)
SET
loader = DataLoader(LOADED, sampler=sampler)
"""


def sampled(loaded: str = "held_out", between: str = "pass") -> str:
    return SAMPLED.replace("LOADED", loaded).replace("SET", between)


def test_a_sampler_is_made_for_the_data_of_its_loader() -> None:
    assert "DistributedSampler(held_out)" in repaired(sampled(), "DW312")


@pytest.mark.parametrize(
    "code",
    [
        sampled("list(range(4))"),
        sampled(between="held_out = list(range(3))"),
        sampled(between="other = DataLoader(train, sampler=sampler)"),
    ],
)
def test_a_sampler_of_several_loaders_or_of_data_without_a_name_stays(code: str) -> None:
    assert refused(code, "DW312") == "make the sampler for the dataset of the loader"


PART = """
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
NAME = dist.get_rank()
world = dist.get_world_size()
model = DDP(torch.nn.Linear(1, 1))
data = torch.arange(8.0)[:, None]
share = len(data) // world
own = data[:SIZE]
print(NAME)
for step in range(2):
    model(own).sum().backward()
"""


def test_each_rank_takes_its_part_by_the_name_of_its_rank() -> None:
    code = PART.replace("NAME", "me")
    assert "own = data[me * share : (me + 1) * share]" in repaired(code.replace("SIZE", "share"), "DW313")
    size = "len(data) // world"
    assert f"own = data[me * ({size}) : (me + 1) * ({size})]" in repaired(code.replace("SIZE", size), "DW313")


SENT = """
dist.init_process_group("gloo")
net = torch.nn.BatchNorm1d(4)
if dist.get_rank() == 0:
    net.load_state_dict(torch.load("net.pt", map_location="cpu"))
for each in SENT:
    dist.broadcast(each.data, src=0)
print(net.eval()(torch.ones(2, 4)).sum())
"""


def test_the_buffers_are_sent_with_the_parameters() -> None:
    assert "for each in net.state_dict().values():" in repaired(SENT.replace("SENT", "net.parameters()"), "DW511")
    assert refused(SENT.replace("SENT", "list(net.parameters())"), "DW511") == "send all of model.state_dict().values()"


PREPARED = """
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
TARGET = accelerator.prepare(GIVEN)
for step in range(2):
    loss = USE.sum()
    accelerator.backward(loss)
    optimizer.step()
"""


def prepared(target: str = "optimizer", use: str = "model(torch.rand(2, 4))") -> str:
    code = PREPARED.replace("TARGET", target).replace("GIVEN", target.strip("()[]"))
    return code.replace("USE", use)


def test_prepare_gets_the_model_too() -> None:
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in repaired(prepared(), "DW316")


@pytest.mark.parametrize("code", [prepared("[optimizer]"), prepared(use="model.head(torch.rand(2, 4))")])
def test_a_model_whose_attributes_are_used_is_not_prepared(code: str) -> None:
    assert refused(code, "DW316") == "model, optimizer = accelerator.prepare(model, optimizer)"


BACKWARD = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(2):
    with accelerator.accumulate(model):
        loss = model(torch.rand(2, 4)).sum()DIVIDED
        loss.backward(GIVEN)
        optimizer.step()
        optimizer.zero_grad()
"""


def backward(divided: str = "", given: str = "") -> str:
    return BACKWARD.replace("DIVIDED", divided).replace("GIVEN", given)


def test_accelerate_makes_the_backward_pass() -> None:
    assert "        accelerator.backward(loss)\n" in repaired(backward(), "DW499")
    kept = repaired(backward(given="retain_graph=True"), "DW499")
    assert "        accelerator.backward(loss, retain_graph=True)\n" in kept


def test_a_loss_that_the_script_divides_stays() -> None:
    why = "call accelerator.backward(loss), with a loss that the script does not divide"
    assert refused(backward(" / 2"), "DW499") == why


NAMED = """
import uuid
BEFORE
folder = uuid.uuid4().hex
AFTER
if dist.get_rank() == 0:
    os.makedirs(folder)
dist.barrier()
torch.save(1, os.path.join(folder, f"{dist.get_rank()}.pt"))
"""
INIT = 'dist.init_process_group("gloo")'
SENT_NAME = """folder = uuid.uuid4().hex
name_of_all = [folder]
if dist.is_initialized():
    dist.broadcast_object_list(name_of_all, src=0)
folder = name_of_all[0]
"""


def test_rank_0_sends_the_name_that_it_has_made() -> None:
    assert SENT_NAME in repaired(NAMED.replace("BEFORE", INIT).replace("AFTER", "pass"), "DW507")


def test_a_name_from_before_the_process_group_stays() -> None:
    why = "make the name on rank 0, and send it to all ranks with broadcast_object_list"
    assert refused(NAMED.replace("BEFORE", "pass").replace("AFTER", INIT), "DW507") == why
    chosen = NAMED.replace("folder = uuid.uuid4().hex", "if len(os.environ) > 1:\n    folder = uuid.uuid4().hex")
    assert refused(chosen.replace("BEFORE", INIT).replace("AFTER", "pass"), "DW507") == why
