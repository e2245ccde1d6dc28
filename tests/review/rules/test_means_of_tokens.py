"""Means over the tokens of a rank, written as a sum by the number of tokens, with programs that look alike."""

import pytest
from helpers.review_snippets import lines

TOKENS = """
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
PAD = 0
rows = torch.randint(0, 9, (8, 16))
model = DDP(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9)))
opt = torch.optim.SGD(model.parameters(), 0.1)
summed = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
def loss_of(ids):
    logits, labels = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
    total = TOTAL
    count = COUNT
    SHARED
    return MEAN
loss = loss_of(rows.chunk(world)[rank])
loss.backward()
opt.step()
"""
FUNCTION = 'F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum")'
EACH = '(F.cross_entropy(logits, labels, reduction="none") * (labels != PAD)).sum()'


def tokens(
    total: str = FUNCTION, count: str = "(labels != PAD).sum()", shared: str = "pass", mean: str = "total / count"
) -> str:
    text = TOKENS.replace("TOTAL", total).replace("COUNT", count)
    return text.replace("SHARED", shared).replace("MEAN", mean)


FOUND = {
    "a function": tokens(),
    "an object": tokens("summed(logits, labels)"),
    "each token": tokens(EACH),
    "a method of comparison": tokens(count="labels.ne(PAD).sum()"),
    "a number that is bounded": tokens(count="(labels != PAD).sum().clamp(min=1)"),
    "a number": tokens(count="(labels != PAD).sum().item()", mean="total / max(count, 1)"),
    "another loss": tokens('F.nll_loss(F.log_softmax(logits, -1), labels, ignore_index=PAD, reduction="sum")'),
}
HEALTHY = {
    "the number of all ranks": tokens(shared="dist.all_reduce(count)", mean="total * world / count"),
    "the mean of rows": tokens(mean="total / len(ids)"),
    "a constant number": tokens(mean="total / 64"),
    "the mean of all": tokens('F.cross_entropy(logits, labels, reduction="mean")', mean="total"),
    "a number in the log": tokens("F.cross_entropy(logits, labels)", mean="total", shared="print(total / count)"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert lines(code, "DW429")


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW429") == []
