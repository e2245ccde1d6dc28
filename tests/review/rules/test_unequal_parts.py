"""Parts of the data that differ in size, what follows from them, and messages and keys that no other rank has."""

import textwrap

import pytest
from helpers.review_snippets import lines

START = """
from collections import Counter, defaultdict
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, TensorDataset
"""
INIT = "dist.init_process_group('gloo')\nrank, world_size = dist.get_rank(), dist.get_world_size()\n"
TEXTS = INIT + "texts = [('a', 1), ('b', 2), ('c', 1)][rank::world_size]\n"
PARTS = INIT + "data = TensorDataset(torch.randn({}, 3))\nmine = Subset(data, range(rank, len(data), world_size))\n"
MODEL = "net = nn.Linear(3, 1)\n"
COUNTED = TEXTS + "found = {}\nfor word, number in texts:\n    {}\n"
PREDICTED = """
def predict(loader):
    rows = []
    for (x,) in loader:
        rows.append(x)
    return torch.cat(rows)
rows = predict(DataLoader(mine, batch_size=2))
parts = [torch.empty_like(rows) for _ in range(world_size)]
dist.all_gather(parts, rows)
"""
MEAN = """
def mean(loader):
    right, count = 0, 0
    for (x,) in loader:
        right += (net(x) > 0).sum().item()
        count += len(x)
    {}
print(mean(DataLoader(mine, batch_size=2)))
"""
OF_RATIO = """tensor = torch.tensor(right / count)
    dist.all_reduce(tensor)
    return tensor / world_size"""
OF_SUMS = """tensor = torch.tensor([right, count])
    dist.all_reduce(tensor)
    return tensor[0] / tensor[1]"""
TESTED = """
class Rows(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 3)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, at):
        return self.x[at]
train, test = Rows(64), Rows({})
sampler = DistributedSampler(test, shuffle=False)
total = torch.zeros(1)
for x in DataLoader(test, batch_size=4, sampler=sampler):
    total += net(x).sum()
{}
"""
GATHERED = """
def gather(loader):
    rows = []
    for x in loader:
        rows.append(x)
    rows = torch.cat(rows)
    parts = [torch.empty_like(rows) for _ in range(world_size)]
    dist.all_gather(parts, rows)
    return torch.cat(parts){}
gather(DataLoader(test, batch_size=4, sampler=sampler))
"""
EVALUATED = (
    INIT
    + MODEL
    + """
test = TensorDataset(torch.randn(64, 3))
loader = DataLoader(test, batch_size=4, sampler=DistributedSampler(test, shuffle=False))
def evaluate():
    right, count = torch.zeros(1), 0
    for (x,) in loader:
        right += (net(x) > 0).sum()
        count += len(x)
    {}
    return right / count
quality = evaluate()
{}
"""
)
BY_HAND = (
    INIT
    + MODEL
    + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def share(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        {}
for x in data:
    loss = nn.functional.mse_loss(net(x), x){}
    loss.backward()
    share(net)
    optimizer.step()
    dist.all_reduce(loss)
    print(loss / world_size)
"""
)
SCALED = (
    INIT
    + """
loader = DataLoader(data, batch_size={}, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(DDP(nn.Linear(2, 2)).parameters(), lr={})
"""
)
STREAM = """
class Lines(IterableDataset):
    def __init__(self, lines, rank, world_size):
        self.lines, self.rank, self.world_size = lines, rank, world_size
        self.first = rank
    def __iter__(self):
        {}
"""
TRAINED = (
    INIT
    + """
class Lines(IterableDataset):
    def __init__(self, lines):
        self.lines = lines
    def __iter__(self):
        yield from self.lines
loader = DataLoader(Lines({}), batch_size=2)
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
"""
)
LEADER = (
    INIT
    + """
def lead(tasks):
    while tasks:
        dist.send(torch.tensor([tasks.pop()]), dst=1)
        dist.recv(result, src=1)
    {}
def work():
    while True:
        dist.recv(task, src=0)
        if task.item() < 0:
            return
        dist.send(task, dst=0)
if rank == 0:
    lead([1, 2])
else:
    work()
"""
)
PLAYED = (
    INIT
    + """
def play(generator):
    for _ in range(6):
        data = torch.randn(3, generator=generator)
        dist.send(data, dst=0)
        if {}:
            break
def learn():
    for _ in range(6):
        dist.recv(data, src=1)
if rank == 0:
    learn()
else:
    play(torch.Generator().manual_seed(rank))
"""
)
STORED = (
    INIT
    + """
store = dist.TCPStore("host", 1234)
store.set(f"done/{{rank}}", "1")
store.wait([f"done/{{r}}" for r in range({})])
"""
)
SHARDED = (
    INIT
    + """
from torch.distributed.fsdp import fully_shard
def build():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    {}
    model.load_state_dict(torch.load({}))
    return model
build()
"""
)
EARLY = "def log():\n    print(dist.get_rank())\n"
PREPARED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x)
    def generate(self, x):
        return self(x)
accelerator = Accelerator()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=2, shuffle=True)
{}
for (x,) in loader:
    accelerator.backward(net(x).sum())
    optimizer.step()
"""
FOUND = {
    "the rank before the group": (
        "DW115",
        EARLY + "def main():\n    log()\n    " + INIT.partition("\n")[0] + "\nmain()",
        "log()",
    ),
    "a loader that is not prepared": (
        "DW202",
        PREPARED.format("net, optimizer = accelerator.prepare(net, optimizer)"),
        "net, optimizer = accelerator.prepare(net, optimizer)",
    ),
    "a method of a prepared model": (
        "DW218",
        PREPARED.format("net, loader = accelerator.prepare(net, loader)\nnet.generate(torch.ones(2))"),
        "net.generate(torch.ones(2))",
    ),
    "a rank that a stream keeps": ("DW244", STREAM.format("yield from self.lines"), "yield from self.lines"),
    "a stream of all lines": ("DW244", TRAINED.format("[1, 2]"), "yield from self.lines"),
    "plain tensors for DTensors": (
        "DW305",
        SHARDED.format("fully_shard(model)", '"pretrained.pt"'),
        'model.load_state_dict(torch.load("pretrained.pt"))',
    ),
    "a loop over the names of a rank": (
        "DW405",
        COUNTED.format("{}", "found[word] = 1") + "for word in found:\n    dist.barrier()",
        "for word in found:",
    ),
    "a loop over what a rank counts": (
        "DW405",
        COUNTED.format("Counter()", "found[word] += 1") + "for word, times in found.items():\n    dist.barrier()",
        "for word, times in found.items():",
    ),
    "a loop over a set of a rank": (
        "DW405",
        COUNTED.format("set()", "found.add(word)") + "for word in sorted(found):\n    dist.barrier()",
        "for word in sorted(found):",
    ),
    "a loss of the rank's part": (
        "DW406",
        INIT + "part = torch.randn(8, 2).chunk(world_size)[rank]\nmeasure = nn.MSELoss()\nfor _ in range(9):\n"
        "    if measure(part, part) < 1:\n        break\n    dist.barrier()",
        "if measure(part, part) < 1:",
    ),
    "a callback of one rank": (
        "DW401",
        INIT + "class Waits:\n    def __call__(self):\n        dist.barrier()\ncalls = []\nif rank == 0:\n"
        "    calls.append(Waits())\nfor call in calls:\n    call()",
        "if rank == 0:",
    ),
    "more batches on one rank": (
        "DW217",
        INIT + "size = {0: 8, 1: 20}[rank % 2]\ndata = TensorDataset(torch.randn(size, 2))\n"
        "for x in DataLoader(data, batch_size=4, drop_last=True):\n    dist.barrier()",
        "for x in DataLoader(data, batch_size=4, drop_last=True):",
    ),
    "a total that begins as a whole number": (
        "DW423",
        INIT + "total = 0\nfor x in [1.0][rank::world_size]:\n    total += nn.functional.mse_loss(net(x), x)\n"
        "total = torch.tensor([total])\ndist.all_reduce(total)",
        "dist.all_reduce(total)",
    ),
    "parts of another length": ("DW427", PARTS.format(51) + PREDICTED, "dist.all_gather(parts, rows)"),
    "a tensor for each name": (
        "DW427",
        COUNTED.format("defaultdict(int)", "found[word] += number")
        + "counts = torch.tensor([found[word] for word in sorted(found)])\ndist.all_reduce(counts)",
        "dist.all_reduce(counts)",
    ),
    "a layer for the words of a rank": (
        "DW427",
        TEXTS + "words = {word for word, _ in texts}\nmodel = DDP(nn.Sequential(nn.Embedding(len(words), 4)))",
        "model = DDP(nn.Sequential(nn.Embedding(len(words), 4)))",
    ),
    "a key of a rank too many": (
        "DW428",
        STORED.format("1, world_size + 1"),
        'store.wait([f"done/{r}" for r in range(1, world_size + 1)])',
    ),
    "means of unequal parts": (
        "DW429",
        PARTS.format(51) + MODEL + MEAN.format(OF_RATIO),
        "dist.all_reduce(tensor)",
    ),
    "repeated samples in a sum": (
        "DW430",
        INIT + MODEL + TESTED.format(33, "dist.all_reduce(total)"),
        "sampler = DistributedSampler(test, shuffle=False)",
    ),
    "repeated samples that are gathered": (
        "DW430",
        INIT + MODEL + TESTED.format(33, GATHERED.format("")),
        "dist.all_gather(parts, rows)",
    ),
    "no message at the end": ("DW431", LEADER.format("return"), "dist.recv(task, src=0)"),
    "an end by the data of the sender": ("DW431", PLAYED.format("data.mean() > 1"), "dist.recv(data, src=1)"),
    "another neighbour": (
        "DW431",
        INIT + "if rank % 2 == 0:\n    dist.send(value, dst=(rank + 1) % world_size)\n"
        "else:\n    dist.recv(value, src=(rank + 2) % world_size)",
        "dist.send(value, dst=(rank + 1) % world_size)",
    ),
    "gradients that are only summed": ("DW432", BY_HAND.format("pass", ""), "dist.all_reduce(parameter.grad)"),
    "a rate for a larger batch": (
        "DW433",
        SCALED.format("64 // world_size", "0.1 * world_size"),
        "optimizer = torch.optim.SGD(DDP(nn.Linear(2, 2)).parameters(), lr=0.1 * world_size)",
    ),
    "the quality of a part": (
        "DW434",
        EVALUATED.format("pass", 'if rank == 0:\n    print(f"{quality.item():.3f}")'),
        "return right / count",
    ),
}
SILENT = {
    "the rank behind the group": (
        "DW115",
        EARLY + "def main():\n    " + INIT.partition("\n")[0] + "\n    log()\nmain()",
    ),
    "a question for the group first": (
        "DW115",
        "def log():\n    if dist.is_initialized():\n        print(dist.get_rank())\nlog()\n" + INIT,
    ),
    "all are prepared": (
        "DW202",
        PREPARED.format("net, optimizer, loader = accelerator.prepare(net, optimizer, loader)"),
    ),
    "the method of the model inside": (
        "DW218",
        PREPARED.format("net, loader = accelerator.prepare(net, loader)\naccelerator.unwrap_model(net).generate(1)"),
    ),
    "a part of a stream": ("DW244", STREAM.format("yield from self.lines[self.first :: self.world_size]")),
    "a stream of the rank's lines": ("DW244", TRAINED.format("texts[rank::world_size]")),
    "a state before the shards": ("DW305", SHARDED.format("pass", '"pretrained.pt"')),
    "the shards of a rank": ("DW305", SHARDED.format("fully_shard(model)", 'f"model-{rank}.pt"')),
    "a loop over names of all": (
        "DW405",
        COUNTED.format("{}", "found[word] = 1") + "for word in ['a', 'b']:\n    dist.barrier()",
    ),
    "a loop over the names of a batch": (
        "DW405",
        INIT + "found = {}\nfor batch in DataLoader(data):\n    for name, value in batch.items():\n"
        "        found[name] = value\nfor name in found:\n    dist.barrier()",
    ),
    "one entry for each rank": ("DW405", INIT + "found = {}\nfound[rank] = 1\nfor name in found:\n    dist.barrier()"),
    "parts of one length": ("DW427", PARTS.format(52) + PREDICTED),
    "a layer for the words of all": (
        "DW427",
        TEXTS + "every = [None] * world_size\ndist.all_gather_object(every, [word for word, _ in texts])\n"
        "words = {word for part in every for word in part}\nmodel = DDP(nn.Sequential(nn.Embedding(len(words), 4)))",
    ),
    "a total that begins as a float": (
        "DW423",
        INIT + "total = 0.0\nfor x in [1.0][rank::world_size]:\n    total += nn.functional.mse_loss(net(x), x)\n"
        "total = torch.tensor([total])\ndist.all_reduce(total)",
    ),
    "the key of each rank": ("DW428", STORED.format("world_size")),
    "means of equal parts": ("DW429", PARTS.format(52) + MODEL + MEAN.format(OF_RATIO)),
    "sums of unequal parts": ("DW429", PARTS.format(51) + MODEL + MEAN.format(OF_SUMS)),
    "no repeated sample": ("DW430", INIT + MODEL + TESTED.format(32, "dist.all_reduce(total)")),
    "repeated samples that are cut off": ("DW430", INIT + MODEL + TESTED.format(33, GATHERED.format("[: len(test)]"))),
    "a message at the end": ("DW431", LEADER.format("dist.send(torch.tensor([-1]), dst=1)")),
    "an end that is the same for all": ("DW431", PLAYED.format("False")),
    "a ring": (
        "DW431",
        INIT + "request = dist.isend(value, dst=(rank + 1) % world_size)\n"
        "dist.recv(value, src=(rank - 1) % world_size)\nrequest.wait()",
    ),
    "gradients that are averaged": ("DW432", BY_HAND.format("parameter.grad /= world_size", "")),
    "a loss for the sum": ("DW432", BY_HAND.format("pass", " / world_size")),
    "a rate for the batch of all": ("DW433", SCALED.format("64", "0.1 * world_size")),
    "a rate by the size of the batch": (
        "DW433",
        SCALED.format("64 // world_size", "0.1 * (64 // world_size) * world_size"),
    ),
    "the quality of all": (
        "DW434",
        EVALUATED.format("dist.all_reduce(right)\n    count = len(test)", "if rank == 0:\n    print(quality)"),
    ),
    "the quality of each rank": ("DW434", EVALUATED.format("pass", "print(rank, quality)")),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_differs_between_ranks_is_found(name: str) -> None:
    rule, snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), rule) == [line]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []


PREDICTIONS = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
def predict(model, inputs, size):
    found = []
    for part in inputs.split(size):
        found.append(ADDED)
    return torch.cat(found)
def collect(tensor):
    buffers = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(buffers, tensor)
    return torch.cat(buffers)
inputs = torch.randn(COUNT, 3)
mine = TAKEN
collect(RESULT)
"""
WHOLE, PARTS = "predict(model, mine, 10)", "inputs.tensor_split(world)[rank]"
OF_PREDICTIONS = {
    "by a function": (WHOLE, "model(part).argmax(-1)"),
    "in a comprehension": ("torch.cat([model(part) for part in mine.split(10)])", "part"),
    "as they are": (WHOLE, "model(part).softmax(1)"),
    "the part itself": ("mine", "part"),
}


def _predictions(result: str, added: str, count: int = 101, taken: str = PARTS) -> list[str]:
    code = PREDICTIONS.replace("RESULT", result).replace("ADDED", added)
    return lines(code.replace("COUNT", str(count)).replace("TAKEN", taken), "DW427")


@pytest.mark.parametrize("way", OF_PREDICTIONS)
def test_gathered_results_of_parts_of_different_length(way: str) -> None:
    assert _predictions(*OF_PREDICTIONS[way]) == ["dist.all_gather(buffers, tensor)"]
    assert _predictions(*OF_PREDICTIONS[way], 100) == []
    assert _predictions(*OF_PREDICTIONS[way], taken="inputs") == []


def test_results_whose_length_is_not_that_of_the_part() -> None:
    assert _predictions(WHOLE, "model(part).mean(0)") == []
    assert _predictions(WHOLE, "part[part[:, 0] > 0]") == []
    assert _predictions("torch.stack([model(part).sum() for part in mine.split(60)])", "part") == []
    padded = "torch.nn.functional.pad(mine, (0, 0, 0, 101 - len(mine)))"
    assert _predictions(padded, "part") == []
