"""Mappings whose names are data of each rank, which ranks go through with collectives, and those of common names."""

import pytest
from helpers.review_snippets import found

METER = """
from collections import Counter, defaultdict

class Meter:
    def __init__(self):
        self.sums = {}

    def add(self, **given):
        for name, value in given.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def reduce(self):
        for name in ORDER:
            t = torch.tensor(self.sums[name])
            dist.all_reduce(t)

dist.init_process_group("gloo")
rank = dist.get_rank()
generator = torch.Generator().manual_seed(rank)
meter = Meter()
for _ in range(4):
    task = ["seg", "det"][torch.randint(0, 2, (1,), generator=generator).item()]
    ADD
meter.reduce()
"""
COUNTS = """
from collections import Counter
dist.init_process_group("gloo")
rank = dist.get_rank()
words = WORDS
counts = Counter(words)
for word in sorted(counts):
    t = torch.tensor(counts[word])
    dist.all_reduce(t)
"""
ORDER = """
dist.init_process_group("gloo")
tasks = ["small", "large"]
if WHO:
    tasks.reverse()
sums = {}
for name in tasks:
    sums[name] = 1.0
for name in sums:
    dist.all_reduce(torch.tensor(sums[name]))
"""
STORE = """
from collections import defaultdict

class Store:
    def __init__(self):
        self.sums = defaultdict(lambda: [0.0, 0.0])

    def add(self, name, value):
        entry = self.sums[name]
        entry[0] += value

    def reduce(self):
        for name in sorted(self.sums):
            dist.all_reduce(torch.tensor(self.sums[name]))

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(dist.get_rank())
labels = torch.randint(0, 4, (6,), generator=generator)
store = Store()
for label in LABELS:
    store.add(f"recall/{label}", 1.0)
store.reduce()
"""
GROUPED = """
dist.init_process_group("gloo")
rank = dist.get_rank()
groups = {}
for label in [["a", "b"], ["c", "c"]][PLACE]:
    groups.setdefault(label, []).append(1.0)
for label in sorted(groups):
    dist.all_reduce(torch.tensor(sum(groups[label])))
"""
PICKED = """
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
picked = [value for value in torch.randn(20).tolist() if TEST]
for value in picked:
    dist.all_reduce(torch.tensor(value))
"""
FOUND = {
    "a name that is read": STORE.replace("LABELS", "labels.unique().tolist()"),
    "groups of a rank's data": GROUPED.replace("PLACE", "rank"),
    "numbers that are picked": PICKED.replace("TEST", "value > 1"),
    "named arguments": METER.replace("ADD", "meter.add(**{task: 1.0})").replace("ORDER", "self.sums"),
    "words of a rank": COUNTS.replace("WORDS", '["a b a", "c"][rank].split()'),
    "a list that one rank turns": ORDER.replace("WHO", "dist.get_rank() == 1"),
}
HEALTHY = {
    "all names are read": STORE.replace("LABELS", "range(4)"),
    "groups of common data": GROUPED.replace("PLACE", "0"),
    "numbers that are all picked": PICKED.replace("TEST", "rank_of_all"),
    "common names": METER.replace("ADD", "meter.add(loss=1.0, count=2.0)").replace("ORDER", "self.sums"),
    "names that are written out": METER.replace("ADD", 'meter.add(**{"n": 1.0})').replace("ORDER", "self.sums"),
    "names of all ranks": METER.replace("ADD", "meter.add(**{task: 1.0})").replace("ORDER", '("seg", "det")'),
    "words of all ranks": COUNTS.replace("WORDS", '"a b a c".split()'),
    "a list that all ranks turn": ORDER.replace("WHO", "world > 3").replace("tasks =", "world = 2\ntasks ="),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(found(code, "DW405")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert found(code, "DW405") == []


def test_types_on_the_sides_of_a_condition_on_data() -> None:
    code = """
dist.init_process_group("gloo")
values = [[0.5, 1.5], []][dist.get_rank()]
if values:
    stats = torch.tensor([sum(values) / len(values), float(len(values))])
else:
    stats = torch.tensor(EMPTY)
dist.all_reduce(stats)
"""
    assert len(found(code.replace("EMPTY", "[0, 0]"), "DW441")) == 1
    assert found(code.replace("EMPTY", "[0.0, 0.0]"), "DW441") == []
    assert found(code.replace("EMPTY", "[0, 0], dtype=torch.float32"), "DW441") == []


@pytest.mark.parametrize("taken", ["task = todo.popleft()", "todo.popleft()", "task = todo.pop()"])
@pytest.mark.parametrize("test", ["todo", "len(todo) > 0"])
def test_elements_that_are_taken_until_none_is_left(taken: str, test: str) -> None:
    code = f"""
from collections import deque
dist.init_process_group("gloo")
todo = deque(GIVEN)
while {test}:
    {taken}
    dist.barrier()
"""
    assert len(found(code.replace("GIVEN", "['a', 'b'] if dist.get_rank() == 0 else ['a']"), "DW217")) == 1
    assert found(code.replace("GIVEN", "['a', 'b']"), "DW217") == []


def test_short_pieces_of_parts_that_may_be_equal() -> None:
    code = """
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
data = GIVEN
model = DDP(torch.nn.Linear(2, 1))
for x in data[rank::world].split(4):
    if len(x) < 4:
        continue
    model(x).sum().backward()
"""
    assert len(found(code.replace("GIVEN", "torch.randn(15, 2)"), "DW406")) == 1
    assert found(code.replace("GIVEN", 'torch.load("data.pt")[: 8 * world]'), "DW406") == []


def test_a_copy_that_one_rank_updates() -> None:
    code = """
import copy
from torch.nn.parallel import DistributedDataParallel as DDP

class Agent:
    def __init__(self, rank):
        self.rank = rank
        self.q = DDP(torch.nn.Linear(2, 2))
        self.target = copy.deepcopy(self.q.module)

    def train(self, sync_every=2):
        for step in range(10):
            with torch.no_grad():
                y = self.target(torch.ones(1, 2))
            (self.q(torch.ones(1, 2)) - y).sum().backward()
            if WHO:
                self.target.load_state_dict(self.q.module.state_dict())

dist.init_process_group("gloo")
Agent(dist.get_rank()).train()
"""
    some = code.replace("WHO", "self.rank == 0 and step % sync_every == 0")
    assert len(found(some, "DW256")) == 1
    assert found(some, "DW225") == []
    assert found(code.replace("WHO", "step % sync_every == 0"), "DW256") == []
