"""Orders, settings, modes, buffers and sizes that ranks do not share, with look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
import argparse, random
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
value = torch.ones(2, 2)
"""
MODEL = "model = DDP(nn.Linear(2, 2))\n"
CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant={})
model = DDP(Net(), find_unused_parameters=True)
"""
CODES = """
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("total", torch.zeros(2))
    def forward(self, x):
        self.total.mul_(0.9).add_(x.sum(0))
        return self.layer(x)
model = DDP(Codes(), broadcast_buffers={})
"""
SUMS = CODES.replace("self.total.mul_(0.9).add_(x.sum(0))", "self.total += {}")
TESTED = (
    MODEL
    + """
for epoch in range(3):
    {}
    model(value).sum().backward()
    if rank == 0:
        model.eval()
        print(model.module(value))
"""
)
KEYS = (
    MODEL
    + """
queries = model(value)
parts = [torch.empty_like(queries) for _ in range(world_size)]
dist.all_gather(parts, queries)
loss = F.cross_entropy({} @ torch.cat(parts).t(), {})
"""
)
STATE = """
norm = nn.BatchNorm1d(2)
for tensor in norm.state_dict().values():
    {}
    dist.all_reduce(tensor)
    tensor /= world_size
"""
OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
args = parser.parse_args()
{}
if args.rank == 0:
    print("here")
"""
TOKENS = """
own = value.sum()
tokens = own.clone()
dist.all_reduce(tokens)
loss = F.cross_entropy(model(value), value, reduction="sum"){} / {}
loss.backward()
"""
DRAWN = (
    MODEL
    + """
def seed_all(seed):
    random.seed(seed)
    torch.manual_seed(seed)
seed_all({})
for step in range(3):
    x = {}
    model(x * 2).sum().backward()
"""
)
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
AVERAGED = """
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in data:
    model(x).sum().backward()
    {}
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    dist.all_reduce(flat)
    {}
    optimizer.step()
"""
SAMPLER = "from torch.utils.data import Dataset, DistributedSampler\n"
PART = (
    SAMPLER
    + """
class Records(Dataset):
    def __init__(self, files):
        first, step = {}
        self.files = files[first::step]
        self.records = [line for file in self.files for line in open(file)]
        {}
    def __len__(self):
        return len(self.records)
sampler = DistributedSampler(Records(files))
"""
)
BEST = (
    MODEL
    + """
best = float("inf")
state = None
for epoch in range(3):
    total = model.module(value).sum()
    {}
    if total.item() < best:
        best = total.item()
        state = model.state_dict()
model.load_state_dict(state)
"""
)
COUNTED = """
class Accuracy:
    def __init__(self):
        self.right = torch.zeros(1)
    def __call__(self, found, wanted):
        {}
        self.right += (found == wanted).sum()
        {}
"""
SUMMED = """
total = torch.zeros(1)
for found, wanted in data:
    {}
    total += (found == wanted).sum()
    {}
print(total)
"""
FOUND = {
    "a total that is reduced in each round": ("DW436", SUMMED.format("", "dist.all_reduce(total)")),
    "a total that is reduced in some rounds": (
        "DW436",
        SUMMED.format("", "if found.sum() > 3:\n        dist.all_reduce(total)\n        print(total)"),
    ),
    "a total that is reduced in each call": ("DW436", COUNTED.format("", "dist.all_reduce(self.right)")),
    "a copy of a total that is kept": (
        "DW436",
        COUNTED.format(
            "", "right = torch.tensor(self.right)\n        dist.all_reduce(right)\n        self.right = right.item()"
        ),
    ),
    "a collective for each of a set": (
        "DW233",
        "parameters = {each for model in models for each in model.parameters()}\n"
        "for each in parameters:\n    dist.all_reduce(each.grad)",
    ),
    "numbers of a set of words": (
        "DW233",
        "words = set(text.split())\nindex = {word: number for number, word in enumerate(words)}\ndist.barrier()",
    ),
    "a rank by an option": ("DW234", OPTION.format("")),
    "gradients divided after DDP": (
        "DW235",
        MODEL + "model(value).sum().backward()\nfor each in model.parameters():\n    each.grad.div_(world_size)",
    ),
    "a loss divided before DDP": ("DW235", MODEL + "loss = model(value).sum() / world_size\nloss.backward()"),
    "a loss divided by the tokens of all ranks": ("DW235", MODEL + TOKENS.format("", "tokens.clamp(min=1)")),
    "gradients of a flat tensor clipped before their average": ("DW240", AVERAGED.format(CLIP, "")),
    "a part of a part of the data": ("DW241", PART.format("rank, world_size", "")),
    "every n-th index and a sampler": (
        "DW241",
        SAMPLER + "from torch.utils.data import Subset\n"
        "sampler = DistributedSampler(Subset(data, range(rank, len(data), world_size)))",
    ),
    "the best epoch by a sum that one rank has": ("DW242", BEST.format("dist.reduce(total, dst=0)")),
    "inputs that all ranks draw alike": ("DW243", DRAWN.format("5", "torch.randn(4, 2)")),
    "labels from 0 on each rank": ("DW236", KEYS.format("queries", "torch.arange(len(queries))")),
    "a rate of each rank": (
        "DW237",
        MODEL + "draws = random.Random(rank)\noptimizer = torch.optim.SGD(model.parameters(), lr=draws.uniform(0, 1))",
    ),
    "a mode of rank 0": ("DW238", TESTED.format("pass")),
    "buffers that are not sent": ("DW239", CODES.format("False")),
    "sums that are not sent": ("DW239", SUMS.format("x.sum(0)", "False")),
    "checkpointing that enters again": ("DW224", CHECKPOINTED.format("True")),
    "a result of the size of one part": (
        "DW425",
        "whole = torch.empty_like(value)\ndist.all_gather_into_tensor(whole, value)",
    ),
    "an average of whole numbers": ("DW426", STATE.format("pass")),
}
SILENT = {
    "a total that starts again in each round": (
        "DW436",
        SUMMED.format("total = torch.zeros(1)", "dist.all_reduce(total)"),
    ),
    "a total that is set back where it was reduced": (
        "DW436",
        SUMMED.format("", "if found.sum() > 3:\n        dist.all_reduce(total)\n        total = torch.zeros(1)"),
    ),
    "a part of each round that is reduced": ("DW436", SUMMED.format("", "part = total / 2\n    dist.all_reduce(part)")),
    "a total that starts again": ("DW436", COUNTED.format("self.right = 0", "dist.all_reduce(self.right)")),
    "a total of which a copy is reported": (
        "DW436",
        COUNTED.format("", "right = self.right.clone()\n        dist.all_reduce(right)\n        print(right)"),
    ),
    "a total that is emptied": (
        "DW436",
        COUNTED.format("", "dist.all_reduce(self.right)\n        print(self.right)\n        self.right.zero_()"),
    ),
    "a total behind the loop that adds to it": (
        "DW436",
        """
        class Accuracy:
            def of(self, batches):
                for found, wanted in batches:
                    self.right += (found == wanted).sum()
                dist.all_reduce(self.right)
        """,
    ),
    "a collective for each of a sorted set": (
        "DW233",
        "for each in sorted({model.name for model in models}):\n    dist.all_reduce(torch.ones(1))",
    ),
    "a set that is sorted in place": (
        "DW233",
        "names = list(set(text.split()))\nnames.sort()\nindex = {name: number for number, name in enumerate(names)}\n"
        "dist.barrier()",
    ),
    "a set that is only asked": ("DW233", "words = set(text.split())\nif 'a' in words:\n    dist.barrier()"),
    "a rank by an option, set": ("DW234", OPTION.format('args.rank = int(os.environ["RANK"])')),
    "a loss multiplied for a mean over tokens": (
        "DW235",
        MODEL + "loss = model(value).sum() * world_size / count\nloss.backward()",
    ),
    "gradients that are reduced by hand": (
        "DW235",
        MODEL + "for each in model.parameters():\n    dist.all_reduce(each.grad, op=dist.ReduceOp.SUM)\n"
        "    each.grad.div_(world_size)",
    ),
    "a loss divided by the tokens of all ranks, scaled": (
        "DW235",
        MODEL + TOKENS.format(" * world_size", "tokens"),
    ),
    "a loss divided by the average number of tokens": ("DW235", MODEL + TOKENS.format("", "(tokens / world_size)")),
    "a loss divided by the tokens of the rank": ("DW235", MODEL + TOKENS.format("", "own")),
    "a loss divided by an average over the ranks": (
        "DW235",
        MODEL + TOKENS.format("", "tokens").replace("(tokens)", "(tokens, op=dist.ReduceOp.AVG)"),
    ),
    "gradients clipped after their average": ("DW240", AVERAGED.format("", CLIP)),
    "gradients clipped in DDP, and their norm averaged": (
        "DW240",
        MODEL + "for x in data:\n    model(x).sum().backward()\n    "
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    dist.all_reduce(norm)",
    ),
    "a measure of the gradients reduced after their clip": (
        "DW240",
        AVERAGED.format("", CLIP).replace(
            "optimizer.step()", "norm = model.weight.grad.norm()\n    dist.all_reduce(norm)"
        ),
    ),
    "a part of the data by the sampler alone": ("DW241", PART.format("0, 1", "")),
    "names of the rank's files, for the log": ("DW241", PART.format("0, 1", "self.mine = files[rank::world_size]")),
    "every n-th file of the nodes, and a sampler for the ranks of a node": (
        "DW241",
        PART.format('int(os.environ["GROUP_RANK"]), 2', "").replace(
            "Records(files))", 'Records(files), rank=int(os.environ["LOCAL_RANK"]), num_replicas=8)'
        ),
    ),
    "the best epoch by a sum that all ranks have": ("DW242", BEST.format("dist.all_reduce(total)")),
    "the best epoch of rank 0, by a sum that it has": (
        "DW242",
        BEST.format("dist.reduce(total, dst=0)")
        .replace("if total", "if rank == 0 and total")
        .replace("model.load", "if rank == 0:\n    model.load"),
    ),
    "inputs that each rank draws": ("DW243", DRAWN.format("5 + rank", "torch.randn(4, 2)")),
    "inputs by a generator": (
        "DW243",
        "generator = torch.Generator().manual_seed(rank)\n"
        + DRAWN.format("5", "torch.randn(4, 2, generator=generator)"),
    ),
    "a part of what all draw": ("DW243", DRAWN.format("5", "torch.randn(4, 2).chunk(world_size)[rank]")),
    "data, and a seed for the layers that drop some": ("DW243", DRAWN.format("5", "next(batches)")),
    "labels of the rank": (
        "DW236",
        KEYS.format("queries", "torch.arange(len(queries)) + rank * len(queries)"),
    ),
    "all against all": ("DW236", KEYS.format("torch.cat(parts)", "torch.arange(len(parts) * 2)")),
    "a rate of all": (
        "DW237",
        MODEL + "draws = random.Random(0)\noptimizer = torch.optim.SGD(model.parameters(), lr=draws.uniform(0, 1))",
    ),
    "a mode that each epoch sets": ("DW238", TESTED.format("model.train()")),
    "buffers that are sent": ("DW239", CODES.format("True")),
    "a count of rounds that is not sent": ("DW239", SUMS.format("1", "False")),
    "checkpointing that does not": ("DW224", CHECKPOINTED.format("False")),
    "a result for all parts": (
        "DW425",
        "whole = torch.empty(world_size * 2, 2)\ndist.all_gather_into_tensor(whole, value)",
    ),
    "an average of floats": ("DW426", STATE.format("if not tensor.is_floating_point():\n        continue")),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_ranks_do_not_share_is_found(name: str) -> None:
    rule, snippet = FOUND[name]
    assert len(lines(START + textwrap.dedent(snippet), rule)) == 1


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []
