"""Code of projects that is right, or whose bug is not sure, and the bug that it looks like."""

from pathlib import Path

import pytest
from ddpwizard.app.review import uncalled_functions
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.training_script.model.libraries_in_use import libraries_in_use
from helpers.review_snippets import KNOWLEDGE, found, lines

ROUNDS = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(model, loader, optimizer):
    batches = iter(loader)
    for _ in range(len(loader)):
        loss = model(next(batches)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def evaluate(model, loader):
    batches = iter(loader)
    with torch.no_grad():
        for _ in range(len(loader)):
            model(next(batches))

dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
loader = DataLoader(data, 2{})
held_out = DataLoader(data, 2)
for epoch in range(3):
    train(model, loader, optimizer)
    evaluate(model, held_out)
"""


def test_the_batches_of_another_loop_are_not_those_of_the_training() -> None:
    assert lines(ROUNDS.format(", sampler=sampler"), "DW202") == []
    assert lines(ROUNDS.format(""), "DW202") == ["loader = DataLoader(data, 2)"]


OWNER = """
dist.init_process_group("nccl")
def send(held, name, like):
    tensor = torch.empty_like(like)
    here = held[name]
    if isinstance(here, torch.Tensor):
        tensor.copy_(here)
        dist.broadcast(tensor, src=dist.get_rank())
    else:
        dist.broadcast(tensor, src={})
for name, like in names:
    send(held, name, like)
"""


def test_the_owner_names_itself_where_the_others_name_it() -> None:
    assert lines(OWNER.format("here"), "DW416") == []
    assert lines(OWNER.format("0"), "DW416") == ["dist.broadcast(tensor, src=dist.get_rank())"]


GATHERED = """
from torch.nn.parallel import DistributedDataParallel as DDP

def gathered(local):
    output = local.new_empty(local.shape[0] * dist.get_world_size(), *local.shape[1:])
    dist.all_gather_into_tensor(output, local)
    return output

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local):
        return gathered(local)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]

dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2).cuda())
for x, y in loader:
    out = model(x)
    losses = {}((out - y).pow(2))
    (losses.mean() + out.mean()).backward()
"""


def test_a_helper_gathers_for_a_function_of_autograd() -> None:
    assert lines(GATHERED.format("Gather.apply"), "DW420") == []
    assert lines(GATHERED.format("gathered"), "DW420") == ["dist.all_gather_into_tensor(output, local)"]


ATTRIBUTES = """
class Worker:
    def __init__(self, config):
        self.is_wide = config.width > 8

    def configure(self, rank):
        given = {{"rank": rank, "is_wide": rank == 0}}
        self.__dict__.update({})

    def save(self):
        if self.is_wide:
            dist.barrier()

dist.init_process_group("nccl")
worker = Worker(config)
worker.configure(dist.get_rank())
worker.save()
"""


def test_a_comprehension_forms_the_names_of_the_attributes_that_it_sets() -> None:
    assert lines(ATTRIBUTES.format('{f"_{name}": given.get(name) for name in names()}'), "DW401") == []
    assert lines(ATTRIBUTES.format("given"), "DW401") == ["dist.barrier()"]


SHARE = """
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(2, 2).cuda())
size = {}
for x in data[rank:size:world]:
    model(x).sum().backward()
"""


def test_a_share_up_to_a_number_that_may_be_a_multiple() -> None:
    assert lines(SHARE.format("padded_size()"), "DW217") == []
    assert lines(SHARE.format("len(data)"), "DW217") == ["for x in data[rank:size:world]:"]


DIVIDED = """
import deepspeed

def copied(parameter):
    if {}:
        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().cpu().clone()
    return parameter.detach().cpu().clone()

engine, *_ = deepspeed.initialize(model=model, config=config)
if dist.get_rank() == 0:
    weights = [copied(each) for each in engine.module.parameters()]
"""


@pytest.mark.parametrize(
    ("test", "severity"),
    [('hasattr(parameter, "ds_id")', "info"), ('getattr(parameter, "ds_id", None)', "info"), ("gathers", "warning")],
)
def test_parameters_are_gathered_where_they_are_divided(test: str, severity: str) -> None:
    assert [each.severity for each in found(DIVIDED.format(test), "DW403")] == [severity]


SCRIPT = """import torch
import torch.distributed as dist

def dump(model):
    dist.all_reduce(model.weight.data)
    torch.save(model.state_dict(), "model.pt")

def main():
    dist.init_process_group("nccl")
    model = torch.nn.Linear(2, 2)
    dist.all_reduce(model.weight.data)
    {}

if __name__ == "__main__":
    main()
"""


def _severities(path: Path, rule: str) -> list[str]:
    return [each.severity for each in review_file(path, KNOWLEDGE) if each.rule == rule]


@pytest.mark.parametrize(
    ("call", "severity"), [("# dump(model)", "info"), ("dump(model)", "error"), ("register(dump)", "error")]
)
def test_a_function_of_a_script_that_nothing_calls(call: str, severity: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(call))
    assert _severities(path, "DW501") == [severity]


MODULE = """import torch
import torch.distributed as dist

def dump(model):
    dist.all_reduce(model.weight.data)
    torch.save(model.state_dict(), "model.pt")
"""


@pytest.mark.parametrize(
    ("user", "is_called"),
    [
        ("from saving import dump\n# dump(model)\n", False),
        ("from saving import dump\n\ndef end(model):\n    dump(model)\n", True),
        ('CALLBACKS = ["dump"]\n', True),
    ],
)
def test_a_function_of_a_module_that_its_project_calls_or_not(user: str, is_called: bool, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "saving.py").write_text(MODULE)
    (tmp_path / "training.py").write_text(user)
    (severity,) = _severities(tmp_path / "saving.py", "DW501")
    assert (severity == "info") is not is_called


def test_a_project_too_large_to_be_read_may_call_any_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncalled_functions, "MOST_ENTRIES", 10)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "saving.py").write_text(MODULE)
    assert _severities(tmp_path / "saving.py", "DW501") == ["info"]
    libraries_in_use().words.clear()
    for number in range(10):
        (tmp_path / f"image{number}.jpg").touch()
    assert _severities(tmp_path / "saving.py", "DW501") != ["info"]


def test_a_package_hands_a_function_on(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    package = tmp_path / "tools"
    package.mkdir()
    (package / "saving.py").write_text(MODULE)
    (package / "__init__.py").write_text("from .saving import dump\n")
    assert _severities(package / "saving.py", "DW501") != ["info"]


READS = """import json
import torch
import torch.distributed as dist
from evaluation import evaluate

def main():
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        with open("results.json", "w") as file:
            json.dump({}, file)
    CALL
    with open("results.json") as file:
        print(json.load(file))

main()
"""
EVALUATES = """import torch.distributed as dist

def evaluate():
    dist.barrier()
    dist.barrier()
"""


@pytest.mark.parametrize(("call", "reported"), [("evaluate()", False), ("pass", True)])
@pytest.mark.parametrize("steps", [30_000, 1])
def test_a_function_that_is_not_followed_may_wait(
    call: str, reported: bool, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpwizard.app.training_script.model.evaluated.MOST_ABROAD", steps)
    (tmp_path / "evaluation.py").write_text(EVALUATES)
    path = tmp_path / "train.py"
    path.write_text(READS.replace("CALL", call))
    assert bool(_severities(path, "DW505")) is reported


DECIDED = """
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = DDP(model), loader

    def train(self):
        for batch in self.loader:
            out = self.model(batch["x"])
            loss = out.sum()
            {}
                dist.all_reduce(out)

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
Trainer(torch.nn.Linear(2, 2).cuda(), torch.utils.data.DataLoader(data, 4, sampler=sampler)).train()
"""


@pytest.mark.parametrize(
    ("test", "severity"),
    [
        ('if batch["labels"]:', "info"),
        ('if batch["labels"] and epoch > 3:', "info"),
        ('if batch["mask"] is not None and not batch["labels"]:', "info"),
        ("if torch.isnan(loss):", "warning"),
        ("if loss.item() > 3:", "warning"),
        ("large = loss.item() > 3\n            if large:", "warning"),
        ('if batch["labels"] and loss.item() > 3:', "warning"),
    ],
)
def test_what_is_there_on_one_rank_is_there_on_all(test: str, severity: str) -> None:
    assert [each.severity for each in found(DECIDED.format(test), "DW406")] == [severity]


SHARES = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples
    def __iter__(self):
        yield from self.samples

class Pieces(IterableDataset):
    def __init__(self, samples):
        self.samples = samples
    def __iter__(self):
        yield from self.samples[::2]

class Samples(Dataset):
    def __init__(self, samples):
        self.samples = samples
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        return self.samples[index]

def load(samples, streams):
    data = Stream(samples) if streams else {}(samples)
    return DataLoader(data, 4)

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DDP(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in load(read(), streams):
    model(x).sum().backward()
    optimizer.step()
"""


def test_one_of_two_data_sets_may_share_itself_out() -> None:
    assert lines(SHARES.format("Pieces"), "DW202") == []
    assert lines(SHARES.format("Samples").replace("Stream(samples) if streams else ", ""), "DW202")


BACKWARD = """
from accelerate import Accelerator

def train(config, model, optimizer, loader):
    accelerator = None
    if config.distributed:
        accelerator = Accelerator(mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x in loader:
        loss = model(x).sum()
        {}
        optimizer.step()
train(config, torch.nn.Linear(2, 2), optimizer, torch.utils.data.DataLoader(data))
"""


def test_the_backward_pass_of_a_run_without_accelerate() -> None:
    either = "if accelerator:\n            accelerator.backward(loss)\n        else:\n            loss.backward()"
    assert lines(BACKWARD.format(either), "DW499") == []
    assert lines(BACKWARD.format("loss.backward()"), "DW499") == ["loss.backward()"]


REPORTED = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(2, 2).cuda())
loader = DataLoader(data, 4, sampler=DistributedSampler(data))
total, batches = torch.zeros(1).cuda(), 0
for x in loader:
    total += model(x).sum()
    batches += 1
dist.all_reduce(total)
if rank == 0:
    print(total / {})
"""


def test_a_count_times_the_number_of_ranks() -> None:
    assert lines(REPORTED.format("(batches * world)"), "DW434") == []
    assert lines(REPORTED.format("batches"), "DW434") == ["print(total / batches)"]


DOWNLOADED = """
def fetch(path):
    if os.path.isfile(path):
        return path
    with open(path, "wb") as file:
        for part in response():
            file.write(part)
    return path

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    fetch("weights.bin")
{}
weights = fetch("weights.bin")
"""


def test_a_file_that_rank_0_has_made_before_the_barrier() -> None:
    assert lines(DOWNLOADED.format("dist.barrier()"), "DW412") == []
    assert lines(DOWNLOADED.format("print()"), "DW412")


MOVED = """
dist.init_process_group("nccl")
def report(model, batch, device):
    loss = model(batch).mean().detach()
    total = torch.tensor(len(batch))
    dist.all_reduce({})
    return loss, total
report(model, batch, device)
"""


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        ("loss.to(device)", "info"),
        ("loss.cuda()", "info"),
        ("total.to(device)", "warning"),
        ("loss.float()", "warning"),
    ],
)
def test_a_move_to_the_device_where_a_tensor_is_makes_no_copy(given: str, severity: str) -> None:
    assert [each.severity for each in found(MOVED.format(given), "DW421")] == [severity]


ROUNDS_OF_MODULE = """import torch

def run(accelerator, model, optimizer, loader):
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        {}
            loss = model(batch).sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""
STARTS = """import torch
from accelerate import Accelerator
from rounds import run

def main(args):
    {}
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run(accelerator, model, optimizer, torch.utils.data.DataLoader(torch.ones(8, 2)))

main(options())
"""


@pytest.mark.parametrize(
    ("around", "before", "reported"),
    [
        ("with accelerator.accumulate(model):", "pass", False),
        ("if True:", "assert args.gradient_accumulation_steps == 1", False),
        ("if True:", "pass", True),
    ],
)
def test_rounds_that_another_module_counts(around: str, before: str, reported: bool, tmp_path: Path) -> None:
    (tmp_path / "rounds.py").write_text(ROUNDS_OF_MODULE.format(around))
    path = tmp_path / "train.py"
    path.write_text(STARTS.format(before))
    assert bool(_severities(path, "DW315")) is reported


EVALUATED = """
from torch.nn.parallel import DistributedDataParallel as DDP

def gathered(local):
    parts = [torch.zeros_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local)
    return torch.cat(parts)

class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = DDP(model), loader

    def train(self):
        for batch in self.loader:
            loss = gathered(self.model(batch)).mean()
            loss.backward()
        {}:
            for batch in self.loader:
                out = self.model(batch)
                every = [torch.zeros_like(out) for _ in range(dist.get_world_size())]
                dist.all_gather(every, out)

dist.init_process_group("nccl")
Trainer(torch.nn.Linear(2, 2).cuda(), loader).train()
"""


def test_what_an_evaluation_gathers_needs_no_gradients() -> None:
    assert lines(EVALUATED.format("with torch.no_grad()"), "DW420") == ["dist.all_gather(parts, local)"]
    assert "dist.all_gather(every, out)" in lines(EVALUATED.format("if True"), "DW420")


LOADED = """
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "last.pt")
dist.barrier()
{}
"""


@pytest.mark.parametrize(
    ("load", "severity"),
    [
        ("model.load_state_dict(torch.load(weights()))", "info"),
        ('model.load_state_dict(torch.load(weights())["model"])', "warning"),
        ("optimizer.load_state_dict(torch.load(weights()))", "warning"),
        ('model.load_state_dict(torch.load("last.pt"))', "warning"),
    ],
)
def test_published_weights_are_one_state_as_a_whole(load: str, severity: str) -> None:
    assert [each.severity for each in found(LOADED.format(load), "DW504")] == [severity]


LOADERS = """
from torch.utils.data import DataLoader, DistributedSampler

class Trainer:
    def __init__(self, data_loader):
        self.data_loader = data_loader
        self.samples = sum([each.batch_size for each in self.data_loader])

    def train(self, most):
        for number, batch in enumerate(self.data_loader):
            if {} > most:
                dist.barrier()

dist.init_process_group("nccl")
Trainer(DataLoader(data, 4, sampler=DistributedSampler(data))).train(100)
"""


def test_the_size_of_a_batch_is_that_of_its_loader() -> None:
    assert lines(LOADERS.format("number * self.samples"), "DW406") == []
    assert lines(LOADERS.format("batch.sum().item()"), "DW406") == ["if batch.sum().item() > most:"]


SHARDED = """
from accelerate import Accelerator
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

accelerator = Accelerator()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
{}:
    state = model.state_dict()
if accelerator.is_main_process:
    torch.save(state, "last.pt")
"""


def test_the_state_of_a_sharded_model_has_the_names_of_the_model_inside() -> None:
    assert lines(SHARDED.format("with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"), "DW266") == []
    assert lines(SHARDED.format("if True"), "DW266") == ["state = model.state_dict()"]


FILLED = """
class Losses:
    def __init__(self):
        self.by_name = {}

    def add(self, name, loss):
        self.by_name.setdefault(name, []).append(loss)

    def gather(self):
        if TEST:
            return []
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, self.by_name)
        return gathered

dist.init_process_group("gloo")
losses = Losses()
for name in NAMES[dist.get_rank() :: dist.get_world_size()]:
    losses.add(name, 1.0)
losses.gather()
"""


@pytest.mark.parametrize("test", ["not self.by_name", "len(self.by_name) == 0"])
def test_a_mapping_that_ranks_fill_from_their_parts_of_the_data_may_be_empty_on_one(test: str) -> None:
    assert [each.severity for each in found(FILLED.replace("TEST", test), "DW406")] == ["warning"]
