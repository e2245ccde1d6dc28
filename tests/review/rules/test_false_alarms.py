"""Healthy code that looks like a bug of a rule, and the bug that it looks like."""

import pytest
from helpers.review_snippets import found, lines

INDEX = """
import numpy as np
from megatron import mpu
GROUP
def mapping(name):
    if dist.get_rank() == 0 and not os.path.isfile(name):
        np.save(name, np.zeros(4))
    WAIT
    return np.load(name)
"""
COUNT = "counts = torch.cuda.LongTensor([1])\n    dist.all_reduce(counts, group={})"


@pytest.mark.parametrize(
    "wait",
    [
        COUNT.format("mpu.get_data_parallel_group()"),
        "dist.barrier(group=mpu.get_data_parallel_group())",
        "dist.barrier(mpu.get_data_parallel_group())",
        "dist.barrier()",
    ],
)
def test_a_wait_in_a_group_that_is_not_known_may_be_for_the_writer(wait: str) -> None:
    assert lines(INDEX.replace("WAIT", wait).replace("GROUP", ""), "DW505") == []


@pytest.mark.parametrize("wait", ["pass", "dist.barrier(group=others)", COUNT.format("others")])
def test_a_wait_in_a_group_of_some_ranks_is_not_for_the_others(wait: str) -> None:
    code = INDEX.replace("WAIT", wait).replace("GROUP", "others = dist.new_group([1, 2])")
    assert lines(code, "DW505") == ["return np.load(name)"]


MERGE = """
import argparse

def set_up():
    dist.init_process_group("gloo")
    return dist.get_rank()

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--merge", default="serial", choices=["serial", "distributed"])
    parser.add_argument("--path")
    args = parser.parse_args()
    if args.merge == "distributed":
        args.number = set_up()
    return args

def main():
    args = options()
    if ASKS:
        dist.barrier()
    else:
        with open(args.path, "wb") as file:
            file.write(os.urandom(4))

main()
"""


@pytest.mark.parametrize("asks", ['args.merge == "distributed"', 'args.merge == "distributed" or args.path is None'])
def test_the_side_without_a_process_group_is_of_one_process(asks: str) -> None:
    assert lines(MERGE.replace("ASKS", asks), "DW412") == []


@pytest.mark.parametrize("asks", ["args.path is None", 'args.merge == "distributed" and args.path is None'])
def test_the_side_of_another_condition_is_of_all_ranks(asks: str) -> None:
    assert lines(MERGE.replace("ASKS", asks), "DW412") == ['with open(args.path, "wb") as file:']


def test_a_sampler_chosen_by_the_same_condition_is_there() -> None:
    code = """
    import argparse
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler
    parser = argparse.ArgumentParser()
    parser.add_argument("--several", action="store_true")
    args = parser.parse_args()
    if args.several:
        dist.init_process_group("gloo")
    data = torch.utils.data.TensorDataset(torch.rand(8, 2))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    loader = DataLoader(data, sampler=DistributedSampler(data) if args.several else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        SET
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    guarded = "if args.several:\n            loader.sampler.set_epoch(epoch)"
    assert lines(code.replace("SET", guarded), "DW203") == []
    assert len(lines(code.replace("SET", "pass"), "DW203")) == 1


REDUCED = """
from torch.utils.data import DataLoader
dist.init_process_group("gloo")

def over_ranks(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors

def train(model, loader, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        extra = EXTRA
        if isinstance(loss, (list, tuple)):
            loss, extra = loss
        if extra:
            extra = over_ranks(extra)
        loss.backward()

train(torch.nn.Linear(2, 1), DataLoader(read("train")), make_criterion())
"""


def test_a_name_that_may_be_none_asks_if_there_is_something_to_reduce() -> None:
    assert lines(REDUCED.replace("EXTRA", "None"), "DW456") == []


SUMS = """
dist.init_process_group("gloo")
def balance(scores, rounds):
    rows = scores.shape[0]
    total = torch.sum(scores, dim=1)
    dist.all_reduce(total)
    for _ in range(rounds):
        FIRST
        scores = scores / rows
        total = torch.sum(scores, dim=1)
        dist.all_reduce(total)
    return scores
balance(torch.load(f"part{dist.get_rank()}.pt"), 3)
"""


def test_the_next_round_reads_what_the_last_statement_of_a_loop_has_reduced() -> None:
    assert lines(SUMS.replace("FIRST", "scores = scores / total"), "DW421") == []
    assert lines(SUMS.replace("FIRST", "total = torch.sum(scores)\n        scores = scores / total"), "DW421") == [
        "dist.all_reduce(total)"
    ]


STEP = """
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")

def main():
    model = DDP(torch.nn.Linear(2, 1))
    inner = model.module
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in range(4):
        inner(torch.rand(4, 2)).sum().backward()
        for p in inner.parameters():
            HAND
        optimizer.step()
        optimizer.zero_grad()

main()
"""


def test_a_loss_past_the_wrapper_is_right_where_the_program_reduces_the_gradients() -> None:
    by_hand = "held = p.grad\n            dist.all_reduce(held, op=dist.ReduceOp.AVG)"
    assert lines(STEP.replace("HAND", by_hand), "DW207") == []
    assert len(lines(STEP.replace("HAND", "print(p.grad.norm())"), "DW207")) == 1


EVALUATED = """
import lightning as L

class Model(L.LightningModule):
    def validation_step(self, batch, index):
        return self.net(batch)

    def on_validation_epoch_end(self):
        scores = self.of_all(self.scores)
        self.log("accuracy", scores.mean())

    def of_all(self, scores):
        return GATHER

L.Trainer(devices=2, strategy="ddp").fit(Model())
"""


def test_a_helper_that_gathers_makes_the_logged_value_one_of_all_ranks() -> None:
    assert lines(EVALUATED.replace("GATHER", "self.all_gather(scores)"), "DW508") == []
    assert lines(EVALUATED.replace("GATHER", "torch.cat(scores)"), "DW508") == ['self.log("accuracy", scores.mean())']


VISION = """
from accelerate import Accelerator

class Trainer:
    def __init__(self):
        self.accelerator = Accelerator()
        if self.accelerator.is_main_process:
            self.folder = "out"

    def show(self):
        return os.path.join(self.folder, "shown.png")

    def train(self):
        self.accelerator.wait_for_everyone()
        CALL
"""


def test_an_attribute_of_one_rank_in_a_method_that_nothing_calls_is_info() -> None:
    assert [each.severity for each in found(VISION.replace("CALL", "pass"), "DW437")] == ["info"]
    assert "error" in [each.severity for each in found(VISION.replace("CALL", "print(self.folder)"), "DW437")]


def test_a_number_of_rounds_that_is_too_deep_to_be_known_is_not_of_one_rank() -> None:
    code = (
        "from torch.utils.data import DataLoader, DistributedSampler\ndist.init_process_group('gloo')\n"
        "rows = torch.load('train.pt')\nkept = next(iter(DataLoader(rows, sampler=DistributedSampler(rows))))\n"
        + "kept = torch.relu(kept)\n" * 50
        + "for _ in range(len(kept)):\n    dist.all_reduce(torch.ones(1))\n"
    )
    assert lines(code, "DW405") == []


TIMED = """
dist.init_process_group("nccl")
def measure(size, rounds):
    tensor = torch.randn(size, device="cuda")
    CHANGE
    for _ in range(rounds):
        dist.all_reduce(tensor.clone())
    torch.cuda.synchronize()
measure(1 << 20, 50)
"""


def test_a_tensor_of_a_size_without_data_loses_nothing() -> None:
    assert lines(TIMED.replace("CHANGE", "pass"), "DW421") == []
    for change in ("tensor[0] = dist.get_rank()", "tensor.fill_(dist.get_rank())", "tensor += dist.get_rank()"):
        assert lines(TIMED.replace("CHANGE", change), "DW421") == ["dist.all_reduce(tensor.clone())"]


SAMPLERS = """
from torch.utils.data import DataLoader, DistributedSampler
def make(train, held_out):
    first = DistributedSampler(train)
    second = DistributedSampler(held_out)
    print(len(held_out))
    return DataLoader(train, sampler=first), USE
"""


def test_a_sampler_of_data_that_nothing_loads_is_no_mistake() -> None:
    assert lines(SAMPLERS.replace("USE", "None"), "DW245") == []
    assert lines(SAMPLERS.replace("USE", "DataLoader(held_out)"), "DW245") == ["second = DistributedSampler(held_out)"]


SCHEDULE = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
def main():
    dist.init_process_group("gloo")
    data = torch.load("train.pt")
    loader = DataLoader(data, batch_size=SIZE, sampler=DistributedSampler(data))
    model = DDP(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(data) * 3 // 64)
    for epoch in range(3):
        for x in loader:
            model(x).sum().backward()
            optimizer.step()
            schedule.step()
main()
"""


def test_a_batch_that_the_ranks_share_makes_a_schedule_over_all_samples_right() -> None:
    assert lines(SCHEDULE.replace("SIZE", "64 // dist.get_world_size()"), "DW247") == []
    assert len(lines(SCHEDULE.replace("SIZE", "64"), "DW247")) == 1


SCORE = """
from torch.utils.data import DataLoader, DistributedSampler

def is_other():
    return "OTHER" in os.environ

def size():
    return other.size() if is_other() else dist.get_world_size()

def over_ranks(t):
    if size() < 2:
        return t
    if is_other():
        t = other.sum(t)
    else:
        REDUCE
    return t

def evaluate(loader, model):
    right = torch.tensor(0)
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum()
    return over_ranks(right.float()).item()

dist.init_process_group("gloo")
data = torch.load("data.pt")
score = evaluate(DataLoader(data, sampler=DistributedSampler(data)), torch.nn.Linear(2, 2))
if dist.get_rank() == 0:
    print(score)
"""


@pytest.mark.parametrize("reduce", ["dist.reduce(t, dst=0)", "dist.all_reduce(t)"])
def test_a_helper_that_returns_the_sum_of_one_process_as_it_is_sums_up_over_ranks(reduce: str) -> None:
    assert lines(SCORE.replace("REDUCE", reduce), "DW434") == []
    assert len(lines(SCORE.replace("REDUCE", "t = t.float()"), "DW434")) == 1


GATHERED = """
from torch.nn.parallel import DistributedDataParallel as DDP

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        return tuple(parts)

    @staticmethod
    def backward(ctx, *grads):
        return grads[dist.get_rank()]

def gather(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
rows = torch.cat(CALL(model(torch.rand(3, 4))))
torch.nn.functional.cross_entropy(rows @ rows.t(), torch.arange(len(rows))).backward()
"""


def test_a_gather_with_a_backward_pass_of_its_own_hands_on_gradients() -> None:
    assert lines(GATHERED.replace("CALL", "Gather.apply"), "DW420") == []
    assert lines(GATHERED.replace("CALL", "gather"), "DW420") == ["dist.all_gather(parts, tensor)"]


OWNED = """
dist.init_process_group("gloo")
def fetch(param, rank_id=None):
    if rank_id:
        dist.broadcast(param, src=ROOT)
class Layer:
    def forward(self):
        fetch(self.weight, rank_id=self.weight.rank_id)
Layer().forward()
"""


def test_the_rank_that_a_broadcast_is_from_is_not_the_own_one() -> None:
    assert lines(OWNED.replace("ROOT", "rank_id"), "DW401") == []
    assert lines(OWNED.replace("ROOT", "0"), "DW401") == ["dist.broadcast(param, src=0)"]


SIGNAL = """
dist.init_process_group("gloo")
def share(item, kind):
    tensor = torch.tensor([item], dtype=kind)
    parts = [torch.zeros(1, dtype=KIND) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
share(3, torch.int32)
"""


def test_a_tensor_of_the_type_of_another_one_fits() -> None:
    for kind in ("tensor.dtype", "kind", "torch.int32"):
        assert lines(SIGNAL.replace("KIND", kind), "DW441") == []
    for kind in ("torch.float32", "torch.ones(1).dtype"):
        assert lines(SIGNAL.replace("KIND", kind), "DW441") == ["dist.all_gather(parts, tensor)"]


HEADS = """
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")

def epoch(training, model, heads, loader):
    for x, y in loader:
        with torch.no_grad():
            outputs = model(x)
            FIRST
        if training:
            outputs = [head(outputs) for head in heads]
        scores = [(each.argmax(1) == y).sum() for each in outputs]
        for score in scores:
            dist.all_reduce(score)

data = torch.load("data.pt")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
epoch(len(os.environ) > 9, torch.nn.Linear(2, 2), [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)], loader)
"""


def test_one_score_for_each_model_is_as_many_on_all_ranks() -> None:
    made = "if not training:\n                outputs = [head(outputs) for head in heads]"
    assert lines(HEADS.replace("FIRST", made), "DW405") == []
    some = "outputs = [head(outputs) for head in heads if outputs.sum() > 0]"
    found_at = lines(
        HEADS.replace("FIRST", "pass").replace("outputs = [head(outputs) for head in heads]", some), "DW405"
    )
    assert found_at == ["for score in scores:"]


OWN_GROUP = """
import numpy as np
dist.init_process_group("gloo")
GROUP = None
for first in range(0, dist.get_world_size(), 2):
    ranks = [first, first + 1]
    made = dist.new_group(ranks)
    if dist.get_rank() in ranks:
        GROUP = made
name = "index.npy"
if dist.get_rank() == 0:
    np.save(name, np.zeros(4))
WAIT
np.load(name)
"""


def test_a_wait_in_the_own_group_may_be_for_the_writer() -> None:
    assert lines(OWN_GROUP.replace("WAIT", "dist.barrier(group=GROUP)"), "DW505") == []
    assert lines(OWN_GROUP.replace("WAIT", "print(GROUP)"), "DW505") == ["np.load(name)"]


RESUMED = """
import horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
WRAP
if hvd.rank() == 0:
    state = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
for step in range(3):
    model(torch.rand(4, 2)).sum().backward()
    optimizer.step()
print(hvd.allreduce(torch.ones(1)))
"""


def test_an_optimizer_whose_gradients_nothing_reduces_is_one_for_each_process() -> None:
    assert lines(RESUMED.replace("WRAP", "# hvd.DistributedOptimizer(optimizer)"), "DW225") == []
    reduced = "    for p in model.parameters():\n        hvd.allreduce(p.grad)\n    optimizer.step"
    code = RESUMED.replace("WRAP", "pass").replace("    optimizer.step", reduced)
    assert lines(code, "DW225") == ['optimizer.load_state_dict(state["optimizer"])']
