"""DW102 and DW494 to DW498: attributes that nothing sets, current GPUs, stale lengths, and sums of all ranks."""

import pytest
from helpers.review_snippets import lines

RESUMED = """
class Trainer:
    def __init__(self, model, path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.model = model
        {}

    def load(self, path):
        {}

dist.init_process_group("nccl")
Trainer(torch.nn.Linear(1, 1), "last.pt").load("last.pt")
"""
UNSET = {
    "the number of a GPU": ("pass", 'torch.load(path, map_location=f"cuda:{self.gpu_id}")'),
    "a device": ("pass", "self.model.to(self.device)"),
    "the global rank": ("self.world_size = 2", "print(self.global_rank, self.world_size)"),
    "a flag": ("pass", "if self.is_main_process:\n            torch.save(self.model.state_dict(), path)"),
}
SET = {
    "in the constructor": ("self.gpu_id = self.local_rank", "torch.load(path, map_location=self.gpu_id)"),
    "later": ("pass", "self.device = path\n        print(self.device)"),
    "from outside": ("pass", "print(self.rank)\n\ndef set_up(trainer):\n    trainer.rank = 0"),
    "by its name": ('setattr(self, "rank", 0)', "print(self.rank)"),
    "a property": ("pass", "print(self.device)\n\n    @property\n    def device(self):\n        return 0"),
    "if it is there": ("pass", 'if hasattr(self, "rank"):\n            print(self.rank)'),
    "in an attempt": ("pass", "try:\n            print(self.rank)\n        except AttributeError:\n            pass"),
    "another kind of name": ("pass", "print(self.epochs)"),
}


@pytest.mark.parametrize(("first", "then"), UNSET.values(), ids=UNSET.keys())
def test_an_attribute_that_nothing_sets_is_found(first: str, then: str) -> None:
    code = RESUMED.replace("{}", "%s") % (first, then)
    assert len(lines(code, "DW494")) == 1


@pytest.mark.parametrize(("first", "then"), SET.values(), ids=SET.keys())
def test_an_attribute_that_something_sets_is_not(first: str, then: str) -> None:
    assert lines(RESUMED.replace("{}", "%s") % (first, then), "DW494") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Trainer:", "class Trainer(Base):"),
        ("Trainer(torch", "print(torch"),
        ("Trainer(torch", "class Other(Trainer):\n    rank = 0\n\nTrainer(torch"),
        ("def __init__", "def set_up"),
    ],
)
def test_an_attribute_that_another_class_may_set_is_not(old: str, new: str) -> None:
    code = RESUMED.replace("{}", "%s") % ("pass", "print(self.rank)")
    assert lines(code, "DW494")
    assert lines(code.replace(old, new), "DW494") == []


LOADERS = """
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
data = list(range(8))
sampler = DistributedSampler(data)
{}
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("loader = DataLoader(data, batch_sampler=sampler)", 1),
        ("loader = DataLoader(data, batch_sampler=sampler if os.environ.get('RANK') else None)", 1),
        ("def make(held):\n    return DataLoader(held, batch_sampler=DistributedSampler(held))\nmake(data)", 1),
        ("loader = DataLoader(data, sampler=sampler, batch_size=2)", 0),
        ("loader = DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(sampler, 2, False))", 0),
    ],
)
def test_a_distributed_sampler_gives_no_batches(code: str, found: int) -> None:
    assert len(lines(LOADERS.format(code), "DW495")) == found


PREPARED = """
from accelerate import Accelerator

class Trainer:
    def __init__(self, model, optimizer, store, epochs):
        self.accelerator = Accelerator()
        train_loader = store.create_loader(4)
        before = epochs * len(train_loader)
        self.model, self.optimizer, {} = self.accelerator.prepare(model, optimizer, train_loader)
        {}
"""
STALE = {
    "steps": "self.total_steps = epochs * len(train_loader)",
    "updates": "updates = math.ceil(len(train_loader) / 4)",
    "a mean": "mean = self.summed / len(train_loader)",
}
FRESH = {
    "of what prepare returns": "self.total_steps = epochs * len(self.train_loader)",
    "divided by the processes": "steps = len(train_loader) // self.accelerator.num_processes",
    "of the dataset": "count = len(train_loader.dataset)",
    "in the log": "print(len(train_loader))",
    "of another loader": "train_loader = self.train_loader\n        steps = len(train_loader)",
}


@pytest.mark.parametrize("code", STALE.values(), ids=STALE.keys())
def test_the_length_of_a_loader_before_prepare_is_found(code: str) -> None:
    assert lines(PREPARED.format("self.train_loader", code), "DW496") == [code]


@pytest.mark.parametrize("code", FRESH.values(), ids=FRESH.keys())
def test_the_length_of_a_prepared_loader_is_not(code: str) -> None:
    assert lines(PREPARED.format("self.train_loader", code), "DW496") == []


def test_the_length_under_the_same_name_is_not() -> None:
    assert lines(PREPARED.format("train_loader", STALE["steps"]), "DW496") == []


STEP = """
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))

def step(batch, labels):
    loss = F.cross_entropy(model(batch), labels)
    loss.backward()
    {}

step(torch.ones(2, 2), torch.ones(2).long())

class Correlation(torch.nn.Module):
    def forward(self, a, b):
        count = a.size(0)
        c = a.T @ b
        {}
        return torch.diagonal(c).add_(-1).pow_(2).sum()
"""
NO_CORRELATION = "c.div_(count)"
SHOWN = "shown = loss.detach()\n    dist.all_reduce(shown)\n"
MEANS = {
    "in the log": "shown = loss.detach().clone()\n    dist.all_reduce(shown)\n    print('loss', shown.item())",
    "with a sum by name": "shown = loss.detach()\n    dist.all_reduce(shown, op=dist.ReduceOp.SUM)\n"
    "    print(f'{shown.item():.3f}')",
    "of a tensor": "right = (batch == labels).float().mean()\n    dist.all_reduce(right)\n    print(right)",
    "through a name": SHOWN + "    number = shown.item()\n    print(number)",
}
DIVIDED = {
    "behind the sum": SHOWN + "    print(shown / dist.get_world_size())",
    "in place": SHOWN + "    shown /= dist.get_world_size()\n    print(shown)",
    "before the sum": "shown = loss.detach() / dist.get_world_size()\n    dist.all_reduce(shown)\n    print(shown)",
    "an average": "shown = loss.detach()\n    dist.all_reduce(shown, op=dist.ReduceOp.AVG)\n    print(shown)",
    "by the caller": SHOWN + "    return shown",
    "by a name of its own": SHOWN + "    shown = shown / parts\n    print(shown)",
    "a sum": "shown = (batch == labels).sum()\n    dist.all_reduce(shown)\n    print(shown)",
    "a loss that is a sum": "shown = F.cross_entropy(model(batch), labels, reduction='sum')\n"
    "    dist.all_reduce(shown)\n    print(shown)",
    "shown as a sum": "total = loss.detach().clone()\n    dist.all_reduce(total)\n    print(total.item())",
    "only compared": SHOWN + "    if shown > 3:\n        print('large')",
}


@pytest.mark.parametrize("code", MEANS.values(), ids=MEANS.keys())
def test_a_mean_that_is_summed_is_found(code: str) -> None:
    assert len(lines(STEP.format(code, NO_CORRELATION), "DW497")) == 1


@pytest.mark.parametrize("code", DIVIDED.values(), ids=DIVIDED.keys())
def test_a_mean_that_is_divided_is_not(code: str) -> None:
    assert lines(STEP.format(code, NO_CORRELATION), "DW497") == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("c.div_(count)\n        dist.all_reduce(c)", 1),
        ("c.div_(count)\n        if dist.get_world_size() > 1:\n            dist.all_reduce(c)", 1),
        ("c.div_(count * dist.get_world_size())\n        dist.all_reduce(c)", 0),
        ("c.div_(count)\n        dist.all_reduce(c)\n        c.div_(dist.get_world_size())", 0),
    ],
)
def test_a_mean_that_a_loss_is_made_of(code: str, found: int) -> None:
    assert len(lines(STEP.format("pass", code), "DW497")) == found


ON_GPUS = """
from torch.nn.parallel import DistributedDataParallel as DDP

{first}
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
model = DDP(torch.nn.Linear(2, 2).to(local_rank), device_ids=[local_rank])
{use}
"""
CURRENT = {
    "of the cache": "torch.cuda.empty_cache()",
    "of the stream": "torch.cuda.synchronize()",
    "of an object": "kept = [None] * 2\ndist.all_gather_object(kept, local_rank)",
}


@pytest.mark.parametrize("use", CURRENT.values(), ids=CURRENT.keys())
def test_what_works_on_the_current_gpu_needs_one(use: str) -> None:
    assert lines(ON_GPUS.format(first="", use=use), "DW102") == ['dist.init_process_group("nccl")']
    selected = "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"
    assert lines(ON_GPUS.format(first=selected, use=use), "DW102") == []
    assert lines(ON_GPUS.format(first="import accelerate", use=use), "DW102") == []
    assert lines(ON_GPUS.format(first="", use="torch.cuda.synchronize(local_rank)"), "DW102") == []


EVALUATION = """
dist.init_process_group("gloo")

def evaluate(model, loader, rank):
    correct, total, seen = torch.zeros(1), 0, 0
    for batch, labels in loader:
        correct += (model(batch).argmax(1) == labels).sum()
        total += labels.size(0)
        seen += 1
    {}
"""
OWN_COUNT = {
    "the sum alone": "dist.all_reduce(correct)\n    return correct / total",
    "as a number": "dist.all_reduce(correct, op=dist.ReduceOp.SUM)\n    return correct.item() / float(total)",
    "guarded against 0": "dist.all_reduce(correct)\n    return correct / max(total, 1)",
    "through a name": "dist.all_reduce(correct)\n    right = correct.item()\n    return right / total",
}
COUNT_OF_ALL = {
    "both are summed": "total = torch.tensor(total)\n    dist.all_reduce(correct)\n    dist.all_reduce(total)\n"
    "    return correct / total",
    "by a helper": "dist.all_reduce(correct)\n    total = sum_of_ranks(total)\n    return correct / total",
    "by the length of all data": "dist.all_reduce(correct)\n    return correct / len(loader.dataset)",
    "times the ranks": "dist.all_reduce(correct)\n    return correct / (total * dist.get_world_size())",
    "of this rank": "mine = correct / total\n    dist.all_reduce(correct)\n    return mine",
    "averaged": "dist.all_reduce(correct, op=dist.ReduceOp.AVG)\n    return correct / total",
    "rounds": "dist.all_reduce(correct)\n    return correct / seen",
}


@pytest.mark.parametrize("code", OWN_COUNT.values(), ids=OWN_COUNT.keys())
def test_a_sum_of_all_by_the_count_of_one_is_found(code: str) -> None:
    assert len(lines(EVALUATION.format(code), "DW498")) == 1


@pytest.mark.parametrize("code", COUNT_OF_ALL.values(), ids=COUNT_OF_ALL.keys())
def test_a_sum_by_the_count_of_all_is_not(code: str) -> None:
    assert lines(EVALUATION.format(code), "DW498") == []
