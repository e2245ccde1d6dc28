"""Samplers for a model that is split over ranks, and samplers with a number of ranks of their own."""

import pytest
from helpers.review_snippets import lines

START = """
from types import SimpleNamespace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group(GROUP)
rank, world = dist.get_rank(), dist.get_world_size()
cfg = SimpleNamespace(nodes=1, gpus=4)
rows = TensorDataset(torch.randn(64, 8))
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
"""
TRAINED = """
opt = torch.optim.SGD(model.parameters(), 0.1)
for (x,) in loader:
    EACH
    model(x).sum().backward()
    opt.step()
    opt.zero_grad()
"""
SPLIT = (
    START
    + """
mesh = init_device_mesh("cpu", MESH)
model = parallelize_module(model, PART, {"0": ColwiseParallel(), "1": RowwiseParallel()})
loader = DataLoader(rows, batch_size=4, sampler=SAMPLER)
"""
    + TRAINED
)
COUNTED = (
    START
    + """
model = DDP(model)
loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows, COUNT, rank))
"""
    + TRAINED
)
TWO = '(world // 2, 2), mesh_dim_names=("dp", "tp")'
OF_ALL = "DistributedSampler(rows)"
OF_RANK = "DistributedSampler(rows, num_replicas=world, rank=rank)"


def split(sampler: str, mesh: str = TWO, part: str = 'mesh["tp"]', each: str = "pass") -> tuple[str, str]:
    text = SPLIT.replace("MESH", mesh).replace("PART", part).replace("SAMPLER", sampler)
    return "DW265", text.replace("EACH", each).replace("GROUP", '"gloo"')


def counted(count: str, group: str = '"gloo"') -> tuple[str, str]:
    return "DW232", COUNTED.replace("COUNT", count).replace("GROUP", group).replace("EACH", "pass")


FOUND: dict[str, tuple[str, str]] = {
    "all ranks": split(OF_ALL),
    "all ranks by name": split(OF_RANK),
    "one dimension": split(OF_ALL, "(world,)", "mesh"),
    "positions": split("DistributedSampler(rows, dist.get_world_size(), dist.get_rank(), shuffle=False)"),
    "two numbers": split(OF_RANK, '(2, 2), mesh_dim_names=("data", "model")', 'mesh["model"]'),
    "a number": counted("4"),
    "settings": counted("cfg.nodes * cfg.gpus"),
}
HEALTHY: dict[str, tuple[str, str]] = {
    "the other dimension": split(
        'DistributedSampler(rows, num_replicas=mesh["dp"].size(), rank=mesh.get_local_rank("dp"))'
    ),
    "the quotient": split("DistributedSampler(rows, num_replicas=world // 2, rank=rank // 2)"),
    "one batch for all": split(OF_ALL, each='dist.broadcast(x, 0, group=mesh["tp"].get_group())'),
    "no sampler": split("None"),
    "the number of ranks": counted("world"),
    "a group of as many": counted("4", '"gloo", world_size=4, rank=int(os.environ["RANK"])'),
    "an option": counted('int(os.environ["REPLICAS"])'),
}


@pytest.mark.parametrize(("rule", "code"), FOUND.values(), ids=FOUND)
def test_found(rule: str, code: str) -> None:
    assert lines(code, rule)


@pytest.mark.parametrize(("rule", "code"), HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(rule: str, code: str) -> None:
    assert lines(code, rule) == []
