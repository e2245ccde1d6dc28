"""Buffers that a model in DDP fills with samples of the rank, with those that are filled alike on all ranks."""

import pytest
from helpers.review_snippets import lines

MODEL = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
def gather(t):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t)
    return torch.cat(parts)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("queue", torch.zeros(16, 4))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))
        self.held = torch.zeros(16, 4)
    @torch.no_grad()
    def keep(self, keys, index):
        at, count = int(self.place), len(keys)
        BODY
        self.place[0] = (at + count) % 16
    def forward(self, x, index):
        y = self.layer(x)
        self.keep(y, index)
        return y @ self.queue.T
model = DDP(Net()OPTIONS)
model(torch.ones(2, 4), torch.arange(2)).sum().backward()
"""


def model(body: str, options: str = "") -> str:
    return MODEL.replace("BODY", body).replace("OPTIONS", options)


FOUND = {
    "a slice": model("self.queue[at : at + count] = keys"),
    "columns": model("self.queue[:, at : at + count] = keys.T"),
    "an index": model("self.queue[index] = keys.detach()"),
    "a part": model("self.queue[at : at + count] = keys[:count].float()"),
    "asked for": model("self.queue[index] = keys", ", broadcast_buffers=True"),
}
HEALTHY = {
    "samples of all ranks": model("keys = gather(keys)\n        self.queue[at : at + len(keys)] = keys"),
    "no buffer": model("self.held[at : at + count] = keys"),
    "not sent": model("self.queue[at : at + count] = keys", ", broadcast_buffers=False"),
    "a number of them": model("self.queue[at : at + count] = float(len(keys))"),
    "the same place": model("self.queue[0] = 1.0"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(lines(code, "DW264")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW264") == []
