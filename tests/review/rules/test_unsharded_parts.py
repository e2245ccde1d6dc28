"""Models of which fully_shard gets some layers only, with those of which it gets all."""

import pytest
from helpers.review_snippets import lines

MODEL = """
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = EMBED
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def forward(self, x):
        return self.body(self.embed(x))
def shard(model):
    fully_shard(model)
model = Net()
SHARD
opt = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 4)).sum().backward()
EACH
opt.step()
"""
BLOCKS = "for block in model.blocks:\n    fully_shard(block)"


def sharded(code: str, embed: str = "nn.Linear(4, 4)", each: str = "") -> str:
    return MODEL.replace("SHARD", code).replace("EMBED", embed).replace("EACH", each)


FOUND = {
    "a loop": sharded(BLOCKS),
    "a part": sharded("fully_shard(model.body)"),
    "a comprehension": sharded("[fully_shard(block) for block in model.blocks]"),
    "a loop and a part": sharded(BLOCKS + "\nfully_shard(model.body)"),
    "one block": sharded("fully_shard(model.blocks[0])"),
    "numbered": sharded("for number, block in enumerate(model.blocks):\n    fully_shard(block)"),
}
HEALTHY = {
    "the model last": sharded(BLOCKS + "\nfully_shard(model)"),
    "the model in a function": sharded(BLOCKS + "\nshard(model)"),
    "no other layer": sharded(BLOCKS + "\nfully_shard(model.body)", "nn.Identity()"),
    "every layer": sharded(BLOCKS + "\nfully_shard(model.body)\nfully_shard(model.embed)"),
    "by hand": sharded(BLOCKS, each="for p in model.embed.parameters():\n    dist.all_reduce(p.grad)"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(lines(code, "DW308")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW308") == []
