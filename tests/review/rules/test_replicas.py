"""Copies of a model that differ between ranks, files that are read too early, and look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
BY_HAND = """
for step in range(3):
    model(torch.ones(2)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)
"""
VALIDATED = """
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
loss = torch.stack([model(x).sum() for x in loader]).mean()
"""
SELECTED = """
scores = model(torch.ones(8)).softmax(0)
best = scores[scores > 0.5]
"""

FOUND = {
    "a model from the seed of its rank": (
        "DW206",
        "torch.manual_seed(1 + rank)\nmodel = nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)"
        + BY_HAND,
        "torch.manual_seed(1 + rank)",
    ),
    "a seed passed to a function": (
        "DW206",
        """
        def seed_all(seed):
            torch.manual_seed(seed)
        seed_all(rank)
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        """
        + textwrap.indent(BY_HAND, " " * 8),
        "seed_all(rank)",
    ),
    "a sampler with the seed of its rank": (
        "DW205",
        "sampler = torch.utils.data.DistributedSampler(data, seed=7 + rank)",
        "sampler = torch.utils.data.DistributedSampler(data, seed=7 + rank)",
    ),
    "a split by the seed of the rank": (
        "DW227",
        "torch.manual_seed(rank)\ntrain, rest = torch.utils.data.random_split(data, [8, 2])",
        "train, rest = torch.utils.data.random_split(data, [8, 2])",
    ),
    "a head for the model in DDP": (
        "DW228",
        "model = DDP(models.resnet18())\nmodel.module.fc = nn.Linear(8, 2)",
        "model.module.fc = nn.Linear(8, 2)",
    ),
    "new parameters for the model in DDP": (
        "DW228",
        """
        def init(module):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        model = DDP(nn.Linear(2, 2))
        model.apply(init)
        """,
        "model.apply(init)",
    ),
    "a layer without a use": (
        "DW216",
        NET + "\n    def forward(self, x):\n        return self.body(x)\nmodel = DDP(Net())",
        "model = DDP(Net())",
    ),
    "a state for the model in DDP on rank 0": (
        "DW225",
        """
        model = DDP(nn.Linear(2, 2))
        if rank == 0:
            model.module.load_state_dict(torch.load("first.pt", map_location="cpu"))
        """,
        'model.module.load_state_dict(torch.load("first.pt", map_location="cpu"))',
    ),
    "a state for the model that is in DDP already": (
        "DW225",
        """
        net = nn.Linear(2, 2)
        model = DDP(net)
        if rank == 0 and os.path.exists("first.pt"):
            net.load_state_dict(torch.load("first.pt", map_location="cpu"))
        """,
        'net.load_state_dict(torch.load("first.pt", map_location="cpu"))',
    ),
    "a state that a helper loads on rank 0": (
        "DW225",
        """
        def resume(net):
            net.load_state_dict(torch.load("first.pt", map_location="cpu"))
        model = DDP(nn.Linear(2, 2))
        if rank == 0:
            resume(model.module)
        """,
        "resume(model.module)",
    ),
    "a part that a function makes for the model in DDP": (
        "DW228",
        """
        def new_head(classes):
            head = nn.Linear(2, classes)
            nn.init.xavier_uniform_(head.weight)
            return head
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model = DDP(net)
        model.module.encoder.head = new_head(3)
        """,
        "model.module.encoder.head = new_head(3)",
    ),
    "a scheduler by the loss of this rank": (
        "DW226",
        VALIDATED + "schedule.step(loss.item())",
        "schedule.step(loss.item())",
    ),
    "an optimizer before fully_shard": (
        "DW302",
        """
        from torch.distributed.fsdp import fully_shard
        model = nn.Sequential(nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        """,
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    ),
    "selected elements gathered": (
        "DW407",
        SELECTED + "dist.all_gather([torch.empty_like(best) for _ in range(world_size)], best)",
        "dist.all_gather([torch.empty_like(best) for _ in range(world_size)], best)",
    ),
    "a file of rank 0 read by all": (
        "DW505",
        """
        if rank == 0:
            torch.save({}, "first.pt")
        state = torch.load("first.pt", map_location="cpu")
        """,
        'state = torch.load("first.pt", map_location="cpu")',
    ),
}

SILENT = {
    "a model from one seed, data from another": (
        "DW206",
        "torch.manual_seed(1)\nmodel = nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "torch.manual_seed(rank)" + BY_HAND,
    ),
    "parameters that rank 0 sends": (
        "DW206",
        """
        torch.manual_seed(rank)
        model = nn.Linear(2, 2)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        """
        + textwrap.indent(BY_HAND, " " * 8),
    ),
    "a sampler with one seed": (
        "DW205",
        "def make(seed):\n    return torch.utils.data.DistributedSampler(data, seed=seed)\nmake(7)",
    ),
    "a split by one seed": (
        "DW227",
        """
        torch.manual_seed(rank)
        train, rest = torch.utils.data.random_split(data, [8, 2], generator=torch.Generator().manual_seed(7))
        torch.manual_seed(7)
        train, rest = torch.utils.data.random_split(data, [8, 2])
        """,
    ),
    "a head for the model before DDP, and again": (
        "DW228",
        """
        model = models.resnet18()
        model.fc = nn.Linear(8, 2)
        model = DDP(model)
        model.module.steps = count()
        model = model.module
        model.fc = nn.Linear(8, 3)
        model = DDP(model)
        """,
    ),
    "a layer that forward uses": (
        "DW216",
        NET + "\n    def forward(self, x):\n        return self.head(self.body(x))\nmodel = DDP(Net())",
    ),
    "a layer that only the loss uses": (
        "DW216",
        NET + "\n    def forward(self, x):\n        return self.body(x)\nmodel = DDP(Net())\n"
        "model.module.head(x).sum().backward()",
    ),
    "a layer without a use, looked for": (
        "DW216",
        NET
        + "\n    def forward(self, x):\n        return self.body(x)\nmodel = DDP(Net(), find_unused_parameters=True)",
    ),
    "layers by their names": (
        "DW216",
        NET + '\n    def forward(self, x, at="body"):\n        return getattr(self, at)(x)\nmodel = DDP(Net())',
    ),
    "a state for the model before DDP": (
        "DW225",
        """
        model = nn.Linear(2, 2)
        if rank == 0:
            model.load_state_dict(torch.load("first.pt", map_location="cpu"))
        model = DDP(model)
        """,
    ),
    "a state on rank 0 that is sent to the others": (
        "DW225",
        """
        model = DDP(nn.Linear(2, 2))
        if rank == 0:
            model.module.load_state_dict(torch.load("first.pt", map_location="cpu"))
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        """,
    ),
    "the best state for a test of rank 0 after the training": (
        "DW225",
        """
        model = DDP(nn.Linear(2, 2))
        for batch in batches:
            model(batch).sum().backward()
        if rank == 0:
            model.module.load_state_dict(torch.load("best.pt", map_location="cpu"))
        """,
    ),
    "a part that a function makes before DDP": (
        "DW228",
        """
        def new_head(classes):
            return nn.Linear(2, classes)
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        net.head = new_head(3)
        model = DDP(net)
        model.module.loss = nn.MSELoss()
        model.module.bound = 3
        """,
    ),
    "a part of the inner model, which is wrapped again": (
        "DW228",
        """
        model = DDP(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
        net = model.module
        net.head = nn.Linear(2, 3)
        model = DDP(net)
        """,
    ),
    "an average of rank 0 alone": (
        "DW225",
        """
        model, average = DDP(nn.Linear(2, 2)), nn.Linear(2, 2)
        if rank == 0:
            average.load_state_dict(torch.load("first.pt", map_location="cpu"))
        """,
    ),
    "a scheduler by the loss of all": ("DW226", VALIDATED + "dist.all_reduce(loss)\nschedule.step(loss.item())"),
    "an optimizer behind fully_shard": (
        "DW302",
        """
        from torch.distributed.fsdp import fully_shard
        model = nn.Linear(2, 2)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """,
    ),
    "selected elements that are filled up": (
        "DW407",
        SELECTED
        + "filled = torch.zeros(8)\nfilled[: len(best)] = best\n"
        + "dist.all_gather([torch.empty_like(filled) for _ in range(world_size)], filled)",
    ),
    "a file of rank 0 that all wait for": (
        "DW505",
        """
        if rank == 0:
            torch.save({}, "first.pt")
        dist.barrier()
        state = torch.load("first.pt", map_location="cpu")
        """,
    ),
    "a file of an earlier run": (
        "DW505",
        """
        if rank == 0:
            torch.save({}, "last.pt")
        state = torch.load("first.pt", map_location="cpu")
        if rank == 0:
            state = torch.load("last.pt", map_location="cpu")
        """,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_copies_that_differ_are_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []
