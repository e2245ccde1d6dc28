"""Steps that one rank leaves by an error, gradients that are not reduced or not there, and groups without the root."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
"""
GATHER = """
def gather(part):
    parts = [torch.zeros_like(part) for _ in range(world_size)]
    dist.all_gather(parts, part)
    return torch.cat(parts)
part = DDP(net)(torch.ones(2, 2))
"""
GROUPS = "groups = [dist.new_group([n * 2, n * 2 + 1]) for n in range(world_size // 2)]\nown = groups[rank // 2]\n"
FREEZE = """
def train_part(part, trains):
    for parameter in part.parameters():
        parameter.requires_grad = trains
train_part(net[0], False)
"""
FOUND = {
    "a batch that is left out": (
        "DW411",
        """
        model = DDP(net)
        for x in loader:
            try:
                model(x).sum().backward()
            except RuntimeError:
                continue
        """,
        "except RuntimeError:",
    ),
    "a step in a function": (
        "DW411",
        """
        def step(model, x):
            model(x).sum().backward()
        model = DDP(net)
        for x in loader:
            try:
                step(model, x)
            except (ValueError, torch.cuda.OutOfMemoryError) as error:
                print(error)
        """,
        "except (ValueError, torch.cuda.OutOfMemoryError) as error:",
    ),
    "a file of each rank": (
        "DW411",
        """
        for number in range(3):
            try:
                value = read(f"part-{number}")
                dist.all_reduce(value)
            except OSError:
                pass
        """,
        "except OSError:",
    ),
    "an epoch that ends early, before a barrier": (
        "DW411",
        """
        model = DDP(net)
        try:
            for x in loader:
                model(x).sum().backward()
        except Exception as error:
            print(error)
        dist.barrier()
        """,
        "except Exception as error:",
    ),
    "a loss of gathered parts": (
        "DW420",
        GATHER + "gather(part).pow(2).sum().backward()",
        "dist.all_gather(parts, part)",
    ),
    "a part that trains later": (
        "DW228",
        FREEZE
        + "model = DDP(net)\nfor epoch in range(3):\n    if epoch == 1:\n        train_part(net[0], True)\n"
        + "    model(torch.ones(2)).sum().backward()",
        "train_part(net[0], True)",
    ),
    "a part that trains later, by its method": (
        "DW228",
        "net[0].requires_grad_(False)\nmodel = DDP(net)\nmodel(x).sum().backward()\n"
        "model.module[0].requires_grad_()\nmodel(x).sum().backward()",
        "model.module[0].requires_grad_()",
    ),
    "rank 0 for each group": ("DW416", GROUPS + "dist.broadcast(x, 0, group=own)", "dist.broadcast(x, 0, group=own)"),
    "rank 0 for groups that are kept by rank": (
        "DW416",
        """
        for first in range(0, world_size, 2):
            group = dist.new_group([first, first + 1])
            if rank in (first, first + 1):
                own = group
        dist.broadcast(x, src=0, group=own)
        """,
        "dist.broadcast(x, src=0, group=own)",
    ),
    "rank 0 for subgroups": (
        "DW416",
        "own, _ = dist.new_subgroups(2)\ndist.reduce(x, dst=0, group=own)",
        "dist.reduce(x, dst=0, group=own)",
    ),
}
SILENT = {
    "an error that ends the job": (
        "DW411",
        """
        model = DDP(net)
        for x in loader:
            try:
                model(x).sum().backward()
            except RuntimeError:
                print("failed")
                raise
        """,
    ),
    "an error behind which nothing follows": (
        "DW411",
        """
        model = DDP(net)
        try:
            for x in loader:
                model(x).sum().backward()
        except Exception as error:
            print(error)
        dist.destroy_process_group()
        """,
    ),
    "an error of the collective itself": (
        "DW411",
        "for number in range(3):\n    try:\n        dist.barrier()\n    except RuntimeError:\n        pass",
    ),
    "an error before the collective": (
        "DW411",
        """
        for number in range(3):
            try:
                value = read(number)
            except OSError:
                value = torch.zeros(1)
            dist.all_reduce(value)
        """,
    ),
    "the own part put back": (
        "DW420",
        GATHER.replace("    return", "    parts[rank] = part\n    return") + "gather(part).pow(2).sum().backward()",
    ),
    "gathered keys for own queries": (
        "DW420",
        GATHER + "(part @ gather(part.detach()).t()).logsumexp(1).sum().backward()",
    ),
    "a gathered metric": (
        "DW420",
        GATHER + "loss = part.sum()\nloss.backward()\nprint(gather(part.detach()).sum())",
    ),
    "a part that trains from the start": (
        "DW228",
        FREEZE + "train_part(net[0], True)\nmodel = DDP(net)\nmodel(torch.ones(2)).sum().backward()",
    ),
    "a part that trains later, in a new wrapper": (
        "DW228",
        FREEZE + "for epoch in range(3):\n    if epoch == 1:\n        train_part(net[0], True)\n    model = DDP(net)\n"
        "    model(torch.ones(2)).sum().backward()",
    ),
    "a part that is frozen and free in turn": (
        "DW228",
        "model = DDP(net)\nfor epoch in range(3):\n    net[0].requires_grad_(False)\n"
        "    model(x).sum().backward()\n    net[0].requires_grad_(True)",
    ),
    "the first rank of the own group": ("DW416", GROUPS + "dist.broadcast(x, rank // 2 * 2, group=own)"),
    "the first rank, by its place in the group": ("DW416", GROUPS + "dist.broadcast(x, group_src=0, group=own)"),
    "a group of all": (
        "DW416",
        "everyone = dist.new_group(list(range(world_size)))\ndist.broadcast(x, 0, group=everyone)",
    ),
    "one group, and its first rank": (
        "DW416",
        "first = dist.new_group([0, 1])\nif rank < 2:\n    dist.broadcast(x, 0, group=first)",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_lost_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []
