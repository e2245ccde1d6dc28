"""DW235: losses that are summed over all ranks in place, whose gradients are those of one rank."""

import pytest
from helpers.review_snippets import lines, repaired

STEP = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(nn.Linear(4, 1))
rate = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.randn(3 + rank, 4), torch.randn(3 + rank, 1))]:
    rate.zero_grad()
    loss = (model(x) - y).pow(2).sum()
    tokens = torch.tensor(float(len(x)))
    {}
    rate.step()
"""
SUMS = "dist.all_reduce(loss)\n    dist.all_reduce(tokens)\n    "
HALVED = {
    "divided": SUMS + "loss = loss / tokens\n    loss.backward()",
    "divided in place": SUMS + "loss /= tokens\n    loss.backward()",
    "bounded": SUMS + "loss = loss / tokens.clamp(min=1)\n    loss.backward()",
    "by the backward pass": SUMS + "(loss / tokens).backward()",
    "only the number is summed": "dist.all_reduce(tokens)\n    loss = loss / tokens\n    loss.backward()",
}
RIGHT = {
    "multiplied by the ranks": SUMS + "loss = world * loss / tokens\n    loss.backward()",
    "by the number of this rank": "dist.all_reduce(loss)\n    loss = loss / tokens\n    loss.backward()",
    "a sum": "dist.all_reduce(loss)\n    loss.backward()",
    "a copy": "total = loss.detach().clone()\n    dist.all_reduce(total)\n    dist.all_reduce(tokens)\n"
    "    print((total / tokens).item())\n    (loss / len(x)).backward()",
    "gradients of the sum": SUMS + "loss = loss / tokens\n    loss.backward()\n"
    "    for each in model.parameters():\n        each.grad.mul_(world)",
    "gradients times the ranks": SUMS + "loss = loss / tokens\n    loss.backward()\n"
    "    for each in model.parameters():\n        each.grad *= world",
}


@pytest.mark.parametrize("name", HALVED)
def test_a_mean_over_all_is_averaged_once_more(name: str) -> None:
    (line,) = lines(STEP.format(HALVED[name]), "DW235")
    assert line.endswith(".backward()")


@pytest.mark.parametrize("name", [each for each in HALVED if each != "divided in place"])
def test_the_loss_is_multiplied_by_the_number_of_ranks(name: str) -> None:
    assert "dist.get_world_size()" in repaired(STEP.format(HALVED[name]), "DW235").partition("rate.zero_grad()")[2]


@pytest.mark.parametrize("name", RIGHT)
def test_what_ddp_has_to_average_is_not(name: str) -> None:
    assert lines(STEP.format(RIGHT[name]), "DW235") == []
