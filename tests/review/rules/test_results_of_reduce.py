"""Results of ``reduce`` that all ranks train with, and those that one rank reports."""

import pytest
from helpers.review_snippets import lines

START = """
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
GRADIENTS = (
    START
    + """
model(torch.ones(2, 3)).sum().backward()
for p in model.parameters():
    dist.reduce(p.grad, dst=0)
    p.grad /= world
"""
)
COUNT = (
    START
    + """
model(torch.ones(2, 3)).sum().backward()
n = torch.tensor(float(rank + 1))
CALL
for p in model.parameters():
    dist.all_reduce(p.grad)
    CHANGE
opt.step()
"""
)
SHIFTED = (
    START
    + """
x = torch.randn(10 + rank, 3)
total = x.sum(0)
dist.reduce(total, dst=0)
net = DDP(model)
loss = net(x - total).sum()
loss.backward()
"""
)
FOUND = {
    "gradients": (GRADIENTS + "opt.step()\n", "dist.reduce(p.grad, dst=0)"),
    "a divisor": (COUNT.replace("CALL", "dist.reduce(n, 0)").replace("CHANGE", "p.grad /= n"), "dist.reduce(n, 0)"),
    "a method": (COUNT.replace("CALL", "dist.reduce(n, 0)").replace("CHANGE", "p.grad.div_(n)"), "dist.reduce(n, 0)"),
    "an input": (SHIFTED, "dist.reduce(total, dst=0)"),
}
HEALTHY = {
    "a step of one rank": GRADIENTS
    + "if rank == 0:\n    opt.step()\nfor p in model.parameters():\n    dist.broadcast(p, 0)\n",
    "parameters that are sent back": GRADIENTS
    + "opt.step()\nfor p in model.parameters():\n    dist.broadcast(p.data, 0)\n",
    "a sum of all": COUNT.replace("CALL", "dist.all_reduce(n)").replace("CHANGE", "p.grad /= n"),
    "a sum that is sent back": COUNT.replace("CALL", "dist.reduce(n, 0)\ndist.broadcast(n, 0)").replace(
        "CHANGE", "p.grad /= n"
    ),
    "a report": COUNT.replace("CALL", "dist.reduce(n, 0)\nif rank == 0:\n    print(n)").replace(
        "CHANGE", "p.grad /= world"
    ),
    "an average that is printed": START
    + "loss = torch.ones(1)\ndist.reduce(loss, 0)\nloss /= world\nif rank == 0:\n    print(loss)\n",
}


@pytest.mark.parametrize(("code", "line"), FOUND.values(), ids=FOUND)
def test_found(code: str, line: str) -> None:
    assert lines(code, "DW473") == [line]


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW473") == []
