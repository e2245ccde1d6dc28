"""Groups made in each round, tensors as large as a rank's values, last batches, workers and best values of a rank."""

import pytest
from helpers.review_snippets import lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset, get_worker_info
"""
INIT = START + "dist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"
OWN = INIT + "labels = torch.tensor([0, 2, 1, 4, 1, 3])\nmine = labels[rank::world]\n"
OF_LOOP = (
    START
    + """
def run(seed):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.tensor(float(seed)))
    END
def main():
    LOOP
if __name__ == "__main__":
    main()
"""
)
LOADED = (
    INIT
    + """
rows = TensorDataset(torch.randn(COUNT, 3), torch.randint(2, (COUNT,)))
net = nn.Linear(3, 2)
def collect(t):
    parts = [torch.zeros_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    return torch.cat(parts)
for x, y in DataLoader(Subset(rows, range(rank, len(rows), world)), batch_size=4OPTIONS):
    print(collect(SENT).shape)
"""
)
STREAM = (
    INIT
    + """
class Numbers(IterableDataset):
    def __init__(self, rank, world):
        self.first, self.step = rank, world
    def __iter__(self):
        SETUP
        for number in PART:
            yield number
for number in DataLoader(Numbers(rank, world), num_workers=WORKERS):
    print(number)
"""
)
BEST = (
    INIT
    + """
import time
net = DDP(nn.Linear(2, 1))
rows = torch.randn(64, 2)[rank::world]
best, began = -1e9, time.time()
for epoch in range(4):
    score = net.module(rows).mean()
    SHARED
    if TEST:
        best = score
        torch.save(net.state_dict(), f"part{rank}.pt")
        os.replace(f"part{rank}.pt", TARGET)
"""
)


@pytest.mark.parametrize(
    "loop",
    [
        "for seed in range(3):\n        run(seed)",
        "scores = [run(seed) for seed in (1, 2, 5)]",
        "for seed in (3, 4):\n        run(seed)",
        "for rate in [0.1, 0.2]:\n        for seed in range(2):\n            run(seed)",
        "for seed in range(2):\n        if seed >= 0:\n            pass\n        run(seed)",
    ],
)
def test_group_of_each_round(loop: str) -> None:
    script = OF_LOOP.replace("LOOP", loop)
    assert lines(script.replace("END", "print(seed)"), "DW463") == ['dist.init_process_group("gloo")']
    assert lines(script.replace("END", "dist.destroy_process_group()"), "DW463") == []


@pytest.mark.parametrize(
    "loop",
    [
        "for seed in (1, 2):\n        run(seed)\n        break",
        "for seed in (1, 2):\n        if seed == 2:\n            run(seed)",
        "for seed in (1, 2):\n        run(seed)\n        dist.destroy_process_group()",
        "for seed in (1, 2):\n        torch.multiprocessing.spawn(run, nprocs=2)",
        "for seed in range(1):\n        run(seed)",
        "for seed in range(3):\n        run(seed)\n        break",
        "for seed in range(3):\n        if seed == 0:\n            run(seed)",
        "for seed in range(3):\n        run(seed)\n        dist.destroy_process_group()",
        "for seed in range(3):\n        try:\n            run(seed)\n        except ValueError:\n            pass",
        "for seed in range(3):\n        if not dist.is_initialized():\n            run(seed)",
        "for seed in range(3):\n        torch.multiprocessing.spawn(run, nprocs=2)",
        "for seed in range(2):\n        torch.multiprocessing.Process(target=run, args=(seed,)).start()",
    ],
)
def test_one_group_in_a_process(loop: str) -> None:
    assert lines(OF_LOOP.replace("LOOP", loop).replace("END", "print(seed)"), "DW463") == []


@pytest.mark.parametrize(
    "made",
    [
        "size = int(mine.max()) + 1\nsent = torch.zeros(size, size)",
        "size = max(mine.tolist()) + 1\nsent = torch.full((size,), 0.5)",
        "size = torch.max(mine).item() + 1\nsent = torch.zeros((size, 3))\nfor place in mine:\n    sent[place, 0] += 1",
        "size = int(mine.max()) + 1\nsent = torch.bincount(mine, minlength=size * size).view(size, size)",
        "size = int(mine.max()) + 1\nsent = nn.functional.one_hot(mine, size).sum(0)",
    ],
)
def test_as_large_as_the_largest_value_of_a_rank(made: str) -> None:
    assert lines(OWN + made + "\ndist.all_reduce(sent)\n", "DW427") == ["dist.all_reduce(sent)"]
    assert (
        lines(
            OWN
            + made.replace("mine.max", "labels.max").replace("(mine)", "(labels)").replace("max(mine", "max(labels")
            + "\ndist.all_reduce(sent)\n",
            "DW427",
        )
        == []
    )


@pytest.mark.parametrize(
    "made",
    [
        "top = mine.max()\ndist.all_reduce(top, op=dist.ReduceOp.MAX)\nsent = torch.zeros(int(top) + 1)",
        "n = mine.max()\ndist.all_reduce(n, op=dist.ReduceOp.MAX)\nsent = torch.bincount(mine, minlength=int(n) + 1)",
        "sent = torch.full((3,), mine.max().item())",
        "sent = torch.zeros(5)\nsent[0] = mine.max().item()",
        "sent = torch.bincount(mine, minlength=5).view(1, -1)",
    ],
)
def test_of_one_size_on_all_ranks(made: str) -> None:
    assert lines(OWN + made + "\ndist.all_reduce(sent)\n", "DW427") == []


@pytest.mark.parametrize("sent", ["y", "net(x)", "net(x).softmax(1)", "net(x).argmax(1)"])
def test_last_batch_in_a_helper(sent: str) -> None:
    script = LOADED.replace("SENT", sent)
    broken = script.replace("COUNT", "37").replace("OPTIONS", "")
    assert lines(broken, "DW427") == ["dist.all_gather(parts, t)"]
    assert lines(broken.replace("37", "40"), "DW427") == []
    assert lines(script.replace("COUNT", "37").replace("OPTIONS", ", drop_last=True"), "DW427") == []


@pytest.mark.parametrize("sent", ["net(x).mean(0)", "y.sum()", "y.float().mean()", "torch.bincount(y, minlength=2)"])
def test_one_row_for_a_batch(sent: str) -> None:
    assert lines(LOADED.replace("SENT", sent).replace("COUNT", "37").replace("OPTIONS", ""), "DW427") == []


@pytest.mark.parametrize("part", ["range(self.first, 40, self.step)", "range(self.first * 10, self.first * 10 + 10)"])
def test_part_that_begins_at_the_rank(part: str) -> None:
    script = STREAM.replace("PART", part)
    plain = script.replace("SETUP", "pass")
    assert lines(plain.replace("WORKERS", "2"), "DW459") == [f"for number in {part}:"]
    assert lines(plain.replace("WORKERS", "1"), "DW459") == []
    shared = script.replace("SETUP", "self.worker = get_worker_info()").replace("WORKERS", "2")
    assert (
        lines(shared.replace("yield number", "if number % 2 == self.worker.id:\n                yield number"), "DW459")
        == []
    )


def test_range_without_the_rank() -> None:
    script = STREAM.replace("SETUP", "pass").replace("WORKERS", "2").replace("PART", "range(0, 40, 2)")
    assert lines(script, "DW459") == []


@pytest.mark.parametrize("test", ["score > best", "best < score or epoch == 0"])
def test_best_value_of_each_rank(test: str) -> None:
    script = BEST.replace("TEST", test)
    broken = script.replace("SHARED", "pass").replace("TARGET", '"best.pt"')
    assert lines(broken, "DW501") == ['os.replace(f"part{rank}.pt", "best.pt")']
    assert lines(broken.replace('"best.pt"', 'f"best{rank}.pt"'), "DW501") == []
    assert lines(script.replace("SHARED", "dist.all_reduce(score)").replace("TARGET", '"best.pt"'), "DW501") == []


@pytest.mark.parametrize(
    "test",
    [
        "time.time() - began > 60",
        "not os.path.exists('best.pt')",
        "rank == 0 and score > best",
        "epoch > 2",
    ],
)
def test_move_that_no_value_of_a_rank_decides(test: str) -> None:
    script = BEST.replace("TEST", test).replace("SHARED", "pass").replace("TARGET", '"best.pt"')
    assert lines(script, "DW501") == []


GROUPED = (
    INIT
    + """
def halves(count):
    return dist.new_group(list(range(count))), dist.new_group(list(range(count, world)))
def share(values, group):
    dist.broadcast(values, src=ROOT, group=group)
    return values
first, second = halves(1)
values = torch.ones(2) * rank
if rank < 1:
    share(values, first)
else:
    share(values, second)
"""
)


def test_root_outside_of_one_of_two_groups_of_a_helper() -> None:
    assert lines(GROUPED.replace("ROOT", "0"), "DW446") == ["dist.broadcast(values, src=0, group=group)"]
    given = GROUPED.replace("(values, group)", "(values, group, root)").replace("ROOT", "root")
    given = given.replace("(values, first)", "(values, first, 0)")
    assert lines(given.replace("(values, second)", "(values, second, 1)"), "DW446") == []
    assert lines(GROUPED.replace("src=ROOT", "group_src=0"), "DW446") == []
