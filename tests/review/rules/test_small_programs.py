"""Causes in small programs, each with programs that look alike and are right."""

import pytest
from helpers.review_snippets import found, lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def run():
    for x in data:
        loss = model(x).sum()
        loss.backward()

dist.init_process_group("gloo")
"""
FREEZE = """
def freeze(net):
    for p in net.parameters():
        p.requires_grad = False
    return net.eval()
"""
SCHEDULED = (
    START
    + """
dataset = TensorDataset(torch.randn(128, 3))
loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
model = DDP(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TOTAL)
for epoch in range(4):
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()
"""
)
SUMMED = (
    START
    + """
def average(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([each.flatten() for each in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    PUT_BACK

model = nn.Linear(3, 1)
for x in data:
    model(x).sum().backward()
    average(model)
"""
)
RESUMED = (
    START
    + """
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
if WHO and os.path.exists("last.pt"):
    state = torch.load("last.pt", map_location="cpu")
    optimizer.load_state_dict(state["optimizer"])
model = DDP(net)
for x in data:
    model(x).sum().backward()
    optimizer.step()
"""
)
REPEATED = """
dist.init_process_group("gloo")
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for number, x in enumerate(data):
    kept.append(x)
    if (number + 1) % count > 0:
        continue
    optimizer.zero_grad()
    for place in range(count):
        last = place == count - 1
        with contextlib.nullcontext() if last else model.no_sync():
            model(kept[place]).sum().backward()
    optimizer.step()
    kept = []
"""
WINDOWS = (
    START
    + """
import contextlib
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    for number, x in enumerate(data, start=1):
        last = LAST
        with contextlib.nullcontext() if last else model.no_sync():
            model(x).sum().backward()
        if last:
            optimizer.step()
    BEHIND
"""
)
HYBRID = (
    START
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
model = nn.Linear(2, 2)
fully_shard(model, mesh=MESH)
place = mesh["replicate"].get_local_rank()
sampler = DistributedSampler(data, num_replicas=mesh["replicate"].size(), rank=place)
"""
)
SHARED = (
    START
    + """
class Parts(torch.utils.data.IterableDataset):
    def __init__(self, paths, rank, world):
        self.paths, self.rank, self.world = paths, rank, world
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        place = PLACE
        yield from self.paths[place::self.world * workers]
loader = DataLoader(Parts(data, dist.get_rank(), dist.get_world_size()), num_workers=2)
"""
)
ROWS = (
    START
    + """
model = DDP(nn.Linear(2, 2))
def train(rows, rank, world):
    for start in range(8 * rank, len(rows), 8 * world):
        try:
            x = parse(ROWS)
        except ValueError:
            LEAVE
        model(x).sum().backward()
train(data, dist.get_rank(), dist.get_world_size())
"""
)
PAIRS = (
    START
    + """
model = DDP(nn.Linear(2, 2))
def gather(z):
    parts = [torch.empty_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, SENT)
    OWN
    return torch.cat(parts)
for x in data:
    z = model(x)
    loss = nn.functional.cross_entropy(z @ gather(z).T, labels)
    loss.backward()
"""
)


def put_back(code: str) -> str:
    return SUMMED.replace("    PUT_BACK", "\n".join(f"    {line}" for line in code.split("\n")))


FOUND = {
    "the rank after the end": (
        "DW116",
        START + "dist.barrier()\ndist.destroy_process_group()\nif dist.get_rank() == 0:\n    print(1)",
        "if dist.get_rank() == 0:",
    ),
    "a barrier after the end in a function": (
        "DW116",
        START + "def end():\n    dist.destroy_process_group()\nend()\ndist.barrier()",
        "dist.barrier()",
    ),
    "the end twice": (
        "DW116",
        START
        + "def train():\n    run()\n    dist.destroy_process_group()\ntrain()\nif dist.is_initialized():\n    pass\n"
        "dist.destroy_process_group()",
        "dist.destroy_process_group()",
    ),
    "a sampler after the end": (
        "DW116",
        START + "dist.destroy_process_group()\nsampler = DistributedSampler([1, 2])",
        "sampler = DistributedSampler([1, 2])",
    ),
    "a number of ranks that is written out": (
        "DW117",
        'dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=4)',
        'dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=4)',
    ),
    "a number of ranks in a class of settings": (
        "DW117",
        """
        class Settings:
            nodes = 2
            per_node = 4
        def start(settings):
            dist.init_process_group("gloo", world_size=settings.nodes * settings.per_node)
        start(Settings())
        """,
        'dist.init_process_group("gloo", world_size=settings.nodes * settings.per_node)',
    ),
    "the rank of the node for a sampler": (
        "DW232",
        START + 'node = int(os.environ["GROUP_RANK"])\nDistributedSampler(data, dist.get_world_size(), node)\nrun()',
        "DistributedSampler(data, dist.get_world_size(), node)",
    ),
    "a frozen model in DDP": (
        "DW246",
        START + FREEZE + "teacher = freeze(nn.Linear(2, 2))\nteacher = DDP(teacher)",
        "teacher = DDP(teacher)",
    ),
    "a model in DDP that a loop has frozen": (
        "DW246",
        START + "net = nn.Linear(2, 2)\nfor p in net.parameters():\n    p.requires_grad_(False)\nnet = DDP(net.eval())",
        None,
    ),
    "a model in DDP that is frozen where it is made": (
        "DW246",
        START + "net = nn.Linear(2, 2).requires_grad_(False).eval()\nnet = DDP(net)",
        "net = DDP(net)",
    ),
    "a loss in DDP": ("DW246", START + "criterion = DDP(nn.MSELoss())", "criterion = DDP(nn.MSELoss())"),
    "a schedule of all samples": (
        "DW247",
        SCHEDULED.replace("TOTAL", "4 * (len(dataset) // 8)"),
        "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4 * (len(dataset) // 8))",
    ),
    "gradients that are not written back": ("DW421", put_back("pass"), "dist.all_reduce(flat)"),
    "gradients that a loop binds instead of writing them": (
        "DW421",
        put_back("for each, mean in zip(grads, flat.split(3)):\n    each = mean"),
        "each = mean",
    ),
    "a sum of the ranks that nothing reads": (
        "DW421",
        START + "def evaluate(loader):\n    right = 0\n    for x in loader:\n        right += model(x).item()\n"
        "    total = torch.tensor([right])\n    dist.all_reduce(total)\n    return right\n"
        "evaluate(DataLoader(data, sampler=DistributedSampler(data)))",
        "dist.all_reduce(total)",
    ),
}
FOUND |= {
    "a loss that compares with gathered tensors": (
        "DW420",
        PAIRS.replace("SENT", "z.contiguous()").replace("    OWN\n", ""),
        "dist.all_gather(parts, z.contiguous())",
    ),
    "a round that a rank leaves by an error in its rows": (
        "DW411",
        ROWS.replace("ROWS", "rows[start : start + 8]").replace("LEAVE", "continue"),
        "except ValueError:",
    ),
    "a loop that a rank leaves by an error in its rows": (
        "DW411",
        ROWS.replace("ROWS", "rows[start : start + 8]").replace("LEAVE", "break"),
        "except ValueError:",
    ),
    "the state of an optimizer on one rank": (
        "DW225",
        RESUMED.replace("WHO", "dist.get_rank() == 0"),
        'optimizer.load_state_dict(state["optimizer"])',
    ),
    "the rest of a window without synchronisation": (
        "DW213",
        WINDOWS.replace("LAST", "number % 4 == 0").replace("BEHIND", "optimizer.step()"),
        "with contextlib.nullcontext() if last else model.no_sync():",
    ),
    "the ranks of one dimension of a mesh": (
        "DW232",
        HYBRID.replace("MESH", "mesh"),
        'sampler = DistributedSampler(data, num_replicas=mesh["replicate"].size(), rank=place)',
    ),
    "the sum of a rank and a worker": (
        "DW248",
        SHARED.replace("PLACE", "self.rank + worker"),
        "place = self.rank + worker",
    ),
}

RIGHT = {
    "the end last": (
        "DW116",
        START + "rank = dist.get_rank()\ndist.destroy_process_group()\nif rank == 0:\n    print(1)",
    ),
    "another group after the end": (
        "DW116",
        START + 'dist.destroy_process_group()\ndist.init_process_group("gloo")\ndist.barrier()',
    ),
    "the end in a branch that leaves": (
        "DW116",
        START + "if not data:\n    dist.destroy_process_group()\n    raise SystemExit\ndist.barrier()",
    ),
    "the end at the exit of the program": (
        "DW116",
        START + "import atexit\ndef end():\n    dist.destroy_process_group()\natexit.register(end)\ndist.barrier()",
    ),
    "a helper that asks for the group": (
        "DW116",
        START + "def rank():\n    return dist.get_rank() if dist.is_initialized() else 0\n"
        "dist.destroy_process_group()\nprint(rank())",
    ),
    "a group of some ranks that ends": (
        "DW116",
        START + "group = dist.new_group([0, 1])\ndist.destroy_process_group(group)\ndist.barrier()",
    ),
    "a training step after the end": (
        "DW116",
        START + "model = DDP(nn.Linear(2, 2))\ndist.destroy_process_group()\nrun()",
    ),
    "a number of ranks that the program starts": (
        "DW117",
        """
        import torch.multiprocessing as mp
        def train(rank, size):
            dist.init_process_group("gloo", rank=rank, world_size=size)
        mp.spawn(train, args=(4,), nprocs=4)
        """,
    ),
    "a number of ranks with a default": (
        "DW117",
        'size = int(os.environ.get("WORLD_SIZE", 4))\n'
        'dist.init_process_group("gloo", world_size=size, rank=int(os.environ["RANK"]))',
    ),
    "a rank of the command line": (
        "DW117",
        'import sys\ndist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=4)',
    ),
    "one rank": ("DW117", 'dist.init_process_group("gloo", rank=0, world_size=1)'),
    "a frozen part of a model in DDP": (
        "DW246",
        START + "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))\nfor p in net[0].parameters():\n"
        "    p.requires_grad = False\nnet = DDP(net)",
    ),
    "a frozen model with a new head in DDP": (
        "DW246",
        START + FREEZE + "net = freeze(build())\nnet.head = nn.Linear(2, 2)\nnet = DDP(net)",
    ),
    "a frozen model next to the one in DDP": (
        "DW246",
        START + FREEZE + "teacher = freeze(nn.Linear(2, 2))\nstudent = DDP(nn.Linear(2, 2))",
    ),
    "some of the parameters of a model in DDP": (
        "DW246",
        START + "net = nn.Linear(2, 2)\nfor name, p in net.named_parameters():\n    if 'bias' in name:\n"
        "        p.requires_grad = False\nnet = DDP(net)",
    ),
    "a schedule of the batches of a rank": ("DW247", SCHEDULED.replace("TOTAL", "4 * len(loader)")),
    "a schedule of the samples of a rank": (
        "DW247",
        SCHEDULED.replace("TOTAL", "4 * (len(dataset) // (8 * dist.get_world_size()))"),
    ),
    "a schedule that each epoch steps": (
        "DW247",
        SCHEDULED.replace("TOTAL", "len(dataset)").replace("        scheduler.step()", "    scheduler.step()"),
    ),
    "gradients that are copied back": (
        "DW421",
        put_back("for each, mean in zip(grads, flat.split(3)):\n    each.copy_(mean.view_as(each))"),
    ),
    "gradients that are added in place": (
        "DW421",
        put_back("for each, mean in zip(grads, flat.split(3)):\n    each += mean"),
    ),
    "gradients that are returned": ("DW421", put_back("return flat")),
    "a part of a gradient itself": (
        "DW421",
        SUMMED.replace("flat = torch.cat([each.flatten() for each in grads])", "flat = grads[0].view(-1)").replace(
            "    PUT_BACK", ""
        ),
    ),
    "a sum of the ranks that is reported": (
        "DW421",
        START + "def evaluate(loader):\n    right = 0\n    for x in loader:\n        right += model(x).item()\n"
        "    total = torch.tensor([right])\n    dist.all_reduce(total)\n    print(total)\n"
        "evaluate(DataLoader(data, sampler=DistributedSampler(data)))",
    ),
    "a first reduction that only connects the ranks": (
        "DW421",
        START + "ready = torch.ones(1) + dist.get_rank()\ndist.all_reduce(ready)",
    ),
}
RIGHT |= {
    "gathered tensors with the rank's own part": (
        "DW420",
        PAIRS.replace("SENT", "z").replace("OWN", "parts[dist.get_rank()] = z"),
    ),
    "gathered tensors around the rank's own part": (
        "DW420",
        PAIRS.replace("SENT", "z").replace(
            "OWN", "parts = parts[: dist.get_rank()] + [z] + parts[dist.get_rank() + 1 :]"
        ),
    ),
    "gathered tensors without gradients on purpose": (
        "DW420",
        PAIRS.replace("SENT", "z.detach()").replace("    OWN\n", ""),
    ),
    "an error in the rows that ends the program": (
        "DW411",
        ROWS.replace("ROWS", "rows[start : start + 8]").replace("LEAVE", "raise"),
    ),
    "rows in place of those with an error": (
        "DW411",
        ROWS.replace("ROWS", "rows[start : start + 8]").replace("LEAVE", "x = torch.zeros(8, 2)"),
    ),
    "an error that all ranks have": ("DW411", ROWS.replace("ROWS", "rows[:8]").replace("LEAVE", "continue")),
    "the state of an optimizer on all ranks": ("DW225", RESUMED.replace("WHO and ", "")),
    "the state of an optimizer that is sent": (
        "DW225",
        RESUMED.replace("WHO", "dist.get_rank() == 0").replace(
            "model = DDP(net)",
            "for held in optimizer.state.values():\n    dist.broadcast(held['momentum_buffer'], 0)\nmodel = DDP(net)",
        ),
    ),
    "the rest of a window with synchronisation": (
        "DW213",
        WINDOWS.replace("LAST", "number % 4 == 0 or number == len(data)").replace("BEHIND", "optimizer.step()"),
    ),
    "no step for the rest of a window": (
        "DW213",
        WINDOWS.replace("LAST", "number % 4 == 0").replace("BEHIND", "optimizer.zero_grad()"),
    ),
    "a window that is gone through again before its step": ("DW213", REPEATED),
    "the dimension of a mesh that FSDP is given": ("DW232", HYBRID.replace("MESH", 'mesh["replicate"]')),
    "a place for each worker": ("DW248", SHARED.replace("PLACE", "self.rank * workers + worker")),
    "a place for each worker, in another order": ("DW248", SHARED.replace("PLACE", "worker * self.world + self.rank")),
}


@pytest.mark.parametrize(("rule", "code", "line"), FOUND.values(), ids=FOUND)
def test_the_cause_is_found(rule: str, code: str, line: str | None) -> None:
    at = lines(code, rule)
    assert len(at) == 1
    assert line is None or at == [line]


@pytest.mark.parametrize(("rule", "code"), RIGHT.values(), ids=RIGHT)
def test_nothing_in_what_is_right(rule: str, code: str) -> None:
    assert found(code, rule) == []


@pytest.mark.parametrize(
    ("before", "severity", "marked"),
    [
        ("", "info", "destroy_process_group"),
        ("dist.barrier()\n    ", "warning", "barrier"),
        ("print(1)\n    if rank < 9:\n        dist.all_reduce(x)\n    ", "warning", "all_reduce"),
    ],
)
def test_an_end_in_a_finally_block_is_a_remark_unless_ranks_wait_there(before: str, severity: str, marked: str) -> None:
    """The line that is marked is the first at which a rank that failed waits."""
    code = START + f"try:\n    run()\nfinally:\n    {before}dist.destroy_process_group()"
    assert [each.severity for each in found(code, "DW409")] == [severity]
    (line,) = lines(code, "DW409")
    assert marked in line
