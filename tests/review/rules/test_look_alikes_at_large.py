"""Code that looks like a bug and is right, as whole repositories contain it, and the bug that it looks like."""

from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.types import ReviewFinding
from helpers.built_in_knowledge import built_in_knowledge
from helpers.review_snippets import found

START = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("nccl")
rank = dist.get_rank()
"""


class Pair(NamedTuple):
    """A healthy program, and the replacement that makes it a bug of a rule."""

    healthy: str
    replaced: str
    by: str
    rule: str


PAIRS = {
    "two stages of a model, each with an optimizer that its rank steps": Pair(
        """
        def first_stage(layer, optimizer):
            layer(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        def last_stage(layer, optimizer):
            layer(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        layer = torch.nn.Linear(4, 8) if rank == 0 else torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        (first_stage if rank == 0 else last_stage)(layer, optimizer)
        """,
        """layer(torch.ones(2, 8)).sum().backward()
            optimizer.step()""",
        "layer(torch.ones(2, 8)).sum().backward()",
        "DW229",
    ),
    "a loop that runs no round unless something is wrong": Pair(
        """
        def save(model, options):
            dist.barrier()
            for name in options:
                raise ValueError(name)
            if rank == 0:
                torch.save(model.state_dict(), "last.pt")
        """,
        "if rank == 0:",
        "if model is not None:",
        "DW501",
    ),
    "rounds over the part of a rank": Pair(
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        def train(model, part):
            model = DDP(model)
            for number, batch in enumerate(part(rank)):
                model(batch).sum().backward()
                if number % 100 == 0 and rank == 0:
                    torch.save(model.state_dict(), "last.pt")
        """,
        "if number % 100 == 0 and rank == 0:",
        "if number % 100 == 0 and local_rank == 0:",
        "DW502",
    ),
    "an address of this host with a port of the options": Pair(
        """
        def main(port):
            dist.init_process_group("nccl", "tcp://127.0.0.1:{}".format(port))
            DDP(torch.nn.Linear(2, 2).cuda(rank), device_ids=[rank])
        """,
        '"tcp://127.0.0.1:{}".format(port)',
        '"env://"',
        "DW101",
    ),
    "a model that is on the CPU when it is saved": Pair(
        """
        def train(model):
            dist.barrier()
            model.cpu()
            if rank == 0:
                torch.save(model.state_dict(), "last.pt")
        def evaluate(model):
            dist.barrier()
            model.load_state_dict(torch.load("last.pt"))
        """,
        "            model.cpu()\n",
        "",
        "DW504",
    ),
    "a checkpoint that the first rank of a node loads": Pair(
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        def evaluate(model):
            dist.barrier()
            if local_rank == 0:
                model.load_state_dict(torch.load("last.pt")["model"])
        """,
        "if local_rank == 0:",
        "if model is not None:",
        "DW504",
    ),
    "all of the data on each rank, as its arguments say": Pair(
        """
        def validation(data):
            dist.barrier()
            return DataLoader(data, sampler=DistributedSampler(data, num_replicas=1, rank=0))
        """,
        "num_replicas=1, rank=0",
        "num_replicas=dist.get_world_size(), rank=0",
        "DW232",
    ),
    "a function that keeps its results": Pair(
        """
        import functools
        @functools.cache
        def score(number):
            value = torch.ones(2) * number
            dist.all_reduce(value)
            return value
        def search():
            best = max(range(4), key=score)
            if rank == 0:
                print(score(best))
        """,
        "        @functools.cache\n",
        "",
        "DW401",
    ),
    "a meter that is reduced before it is read": Pair(
        """
        class Meter:
            def __init__(self):
                self.total = 0.0
            def update(self, value):
                self.total += value
            def reduce(self):
                total = torch.tensor([self.total])
                dist.all_reduce(total)
                self.total = total.item()
        def train(loader, best):
            model = DDP(torch.nn.Linear(2, 2))
            meter = Meter()
            for batch in loader:
                meter.update(model(batch).sum().item())
            meter.reduce()
            if meter.total > best:
                dist.barrier()
        """,
        "dist.all_reduce(total)",
        "total.mul_(2)",
        "DW406",
    ),
    "ranks that leave before the others make their group": Pair(
        """
        def main(parts):
            first = int(os.environ["RANK"])
            if first % 2 != 0:
                exit(0)
            os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) // 2)
            dist.barrier()
        """,
        'os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) // 2)',
        "print(first)",
        "DW404",
    ),
    "labels that a data set has on all ranks or on none": Pair(
        """
        def evaluate(loader, labelled):
            held = None
            model = DDP(torch.nn.Linear(2, 2))
            for batch in loader:
                model(batch).sum().backward()
                if labelled:
                    held = batch["labels"].sum()
                if held is None:
                    continue
                dist.all_reduce(held)
        """,
        "if labelled:",
        "if batch['size'].sum() > 3:",
        "DW406",
    ),
    "an error that the handler around does not take": Pair(
        """
        class OutOfData(Exception):
            pass
        def step(model, batch, kept):
            model(batch).sum().backward()
            if rank == 0 and kept is None:
                raise ValueError("nothing kept")
        def train(loader, kept):
            model = DDP(torch.nn.Linear(2, 2))
            for batch in loader:
                try:
                    step(model, batch, kept)
                except OutOfData:
                    break
        """,
        "except OutOfData",
        "except ValueError",
        "DW405",
    ),
    "a checkpoint of each rank": Pair(
        """
        def resume(optimizer):
            path = os.path.join("checkpoints", f"optimizer_{rank}.pt")
            optimizer.load_state_dict(torch.load(path, weights_only=True))
        """,
        "_{rank}",
        "",
        "DW504",
    ),
    "an attribute of an object that is made with a set": Pair(
        """
        import library
        def load():
            names = set(os.listdir("data"))
            return library.build(names), list(names)
        model, names = load()
        for name in model.layers:
            dist.broadcast(model.layers[name], src=0)
        """,
        "in model.layers:",
        "in set(os.listdir('data')):",
        "DW233",
    ),
    "a list that each rank puts into another order": Pair(
        """
        import random
        def annotate(folder):
            dist.barrier()
            paths = os.listdir(folder)
            random.shuffle(paths)
            for path in paths:
                if os.path.exists(path + ".pt"):
                    continue
                torch.save(path, path + ".pt")
        """,
        "random.shuffle(paths)",
        "paths.sort()",
        "DW501",
    ),
    "reductions whose errors are those of all ranks": Pair(
        """
        def mean(value):
            dist.all_reduce(value)
            return value
        def evaluate(loss, accuracy, steps):
            for _ in range(steps):
                try:
                    loss = mean(loss).item()
                    accuracy = mean(accuracy).item()
                except Exception:
                    pass
        """,
        "accuracy = mean(accuracy).item()",
        "accuracy = parse(accuracy); accuracy = mean(accuracy).item()",
        "DW411",
    ),
    "the number of elements of a batch": Pair(
        """
        def train(loader, limit):
            model = DDP(torch.nn.Linear(2, 2))
            seen = 0
            for batch in loader:
                model(batch).sum().backward()
                seen += torch.numel(batch)
                if seen > limit:
                    break
        """,
        "torch.numel(batch)",
        "torch.sum(batch)",
        "DW405",
    ),
    "a default that no call changes": Pair(
        """
        def step(model, batch, raise_on_error=True):
            loss = model(batch).sum()
            if loss.item() > 9:
                if raise_on_error:
                    raise ValueError("diverged")
                return
            loss.backward()
        def train(loader):
            model = DDP(torch.nn.Linear(2, 2))
            for batch in loader:
                step(model, batch)
        train(DataLoader(torch.ones(8, 2), shuffle=True))
        """,
        "step(model, batch)",
        "step(model, batch, raise_on_error=False)",
        "DW406",
    ),
    "an assert that keeps the other ranks out": Pair(
        """
        def prepare(path):
            if rank != 0:
                dist.barrier()
            if os.path.exists(path):
                if rank == 0:
                    dist.barrier()
            else:
                assert rank == 0, "only the first process writes"
                torch.save({}, path)
                dist.barrier()
        prepare("data.pt")
        """,
        '                assert rank == 0, "only the first process writes"\n',
        "",
        "DW401",
    ),
    "a loader that ends on all ranks in one round": Pair(
        """
        class Prefetcher:
            def __init__(self, loader):
                self.loader = iter(loader)
                self.preload()
            def preload(self):
                try:
                    self.following = next(self.loader)
                except StopIteration:
                    self.following = None
                    return
            def next(self):
                batch = self.following
                self.preload()
                return batch
        def train(data):
            model = DDP(torch.nn.Linear(2, 2))
            prefetcher = Prefetcher(DataLoader(data, sampler=DistributedSampler(data)))
            batch = prefetcher.next()
            while batch is not None:
                model(batch).sum().backward()
                batch = prefetcher.next()
        train(torch.ones(8, 2))
        """,
        "while batch is not None:",
        "while batch.sum().item() < 9:",
        "DW405",
    ),
    "a group of one process": Pair(
        """
        import argparse
        args = argparse.Namespace(world_size=1, rank=0)
        dist.init_process_group("nccl", world_size=args.world_size, rank=args.rank)
        torch.save({}, "converted.pt")
        """,
        "world_size=1, rank=0)",
        "rank=0)",
        "DW501",
    ),
    "a file of its own that each rank moves to its place": Pair(
        """
        import shutil
        import uuid
        def download(path):
            own = f"{path}.{os.getpid()}"
            os.replace(own, path)
        download("model.pt")
        """,
        "os.replace(own, path)",
        'shutil.copyfile("cached.pt", path)',
        "DW501",
    ),
    "data that each node gets on its disk": Pair(
        """
        import shutil
        def prepare(args):
            if int(os.environ["LOCAL_RANK"]) == 0:
                shutil.copyfile("shared.zip", "local.zip")
            dist.barrier()
        prepare(None)
        """,
        'shutil.copyfile("shared.zip", "local.zip")',
        'torch.save({}, "last.pt"); shutil.copyfile("last.pt", "best.pt")',
        "DW502",
    ),
    "a cache that the ranks of each node read": Pair(
        """
        def features(path):
            if int(os.environ["LOCAL_RANK"]) == 0:
                torch.save({}, path)
            dist.barrier()
            return torch.load(path)
        features("cache.pt")
        """,
        "return torch.load(path)",
        'return torch.load("other.pt")',
        "DW502",
    ),
    "a method that spawned processes of one node run": Pair(
        """
        import torch.multiprocessing as mp
        class Trainer:
            def start(self):
                mp.spawn(self.fit, args=("out",), nprocs=2)
            def fit(self, local_rank, directory):
                dist.init_process_group("nccl")
                if local_rank == 0:
                    torch.save({}, "last.pt")
        """,
        'mp.spawn(self.fit, args=("out",), nprocs=2)',
        'self.fit(int(os.environ["LOCAL_RANK"]), "out")',
        "DW502",
    ),
    "a file that may be gone already": Pair(
        """
        import contextlib
        with contextlib.suppress(FileNotFoundError):
            os.remove("scores.txt")
        """,
        "contextlib.suppress(FileNotFoundError)",
        "torch.no_grad()",
        "DW412",
    ),
    "the inner model where there is one": Pair(
        """
        def validate(model, loader):
            with torch.no_grad():
                for batch in loader:
                    if hasattr(model, "module"):
                        out = model.module(batch)
                    else:
                        out = model(batch)
        model = DDP(torch.nn.BatchNorm1d(2))
        loader = DataLoader(torch.ones(8, 2), shuffle=True)
        if rank == 0:
            validate(model, loader)
        """,
        "out = model.module(batch)",
        "out = model(batch)",
        "DW402",
    ),
    "a writer that a constructor above makes": Pair(
        """
        class Saver:
            def __init__(self, path, to_disk=None):
                self.path = path
                self.to_disk = to_disk
            def save(self):
                if not self.to_disk:
                    return
                torch.save({}, self.path)
        class ModelSaver(Saver):
            def __init__(self, path, to_disk=None):
                super().__init__(path, to_disk)
        ModelSaver("last.pt", rank == 0).save()
        """,
        "rank == 0)",
        "True)",
        "DW501",
    ),
    "a metric that several ranks reduce": Pair(
        """
        def reduced(value, world_size):
            if world_size > 1:
                copy = value.clone()
                dist.all_reduce(copy)
                return copy / world_size
            return value
        def train(loader, world_size):
            model = DDP(torch.nn.Linear(2, 2))
            for epoch in range(9):
                for batch in loader:
                    loss = model(batch).sum()
                    loss.backward()
                loss = reduced(loss, world_size)
                if loss.item() < 3:
                    break
        train(DataLoader(torch.ones(8, 2), shuffle=True), dist.get_world_size())
        """,
        "dist.all_reduce(copy)",
        "pass",
        "DW405",
    ),
    "a decision that is shared where there are several ranks": Pair(
        """
        def train(args, loader):
            args.several = False
            if "WORLD_SIZE" in os.environ:
                args.several = int(os.environ["WORLD_SIZE"]) > 1
            model = DDP(torch.nn.Linear(2, 2))
            for batch in loader:
                loss = model(batch).sum()
                loss.backward()
                done = torch.zeros(1) + loss.item()
                if args.several:
                    dist.broadcast(done, 0)
                if done[0]:
                    break
        """,
        "dist.broadcast(done, 0)",
        "pass",
        "DW405",
    ),
    "batches with the same names on every rank": Pair(
        """
        def collect(loader, model):
            has_masks = False
            for batch in loader:
                result = model(batch)
                if isinstance(result, dict):
                    if "masks" in result.keys():
                        has_masks = True
            if has_masks:
                dist.barrier()
        collect(DataLoader(torch.ones(8, 2), shuffle=True), torch.nn.Linear(2, 2))
        """,
        "isinstance(result, dict)",
        "result.sum().item() > 3",
        "DW406",
    ),
    "a model without buffers on one rank": Pair(
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Block(2)
            def forward(self, x):
                return self.inner(x)
        class Block(torch.nn.Module):
            def __init__(self, size):
                super().__init__()
                self.linear = torch.nn.Linear(size, size)
            def forward(self, x):
                return self.linear(x)
        model = DDP(Net().cuda())
        if rank == 0:
            with torch.no_grad():
                print(model(torch.ones(2, 2)))
        """,
        "self.linear = torch.nn.Linear(size, size)",
        "self.linear = torch.nn.BatchNorm1d(size)",
        "DW402",
    ),
    "metrics of which only the time differs": Pair(
        """
        import time
        def validate(loader, best):
            model = DDP(torch.nn.Linear(2, 2))
            total = torch.zeros(1)
            for batch in loader:
                total = total + model(batch).sum()
            dist.all_reduce(total)
            metrics = {"loss": total.item(), "seconds": time.time()}
            if metrics["loss"] < best:
                dist.barrier()
        validate(DataLoader(torch.ones(8, 2), shuffle=True), 9.0)
        """,
        'if metrics["loss"] < best:',
        'if metrics["seconds"] < best:',
        "DW406",
    ),
    "a branch for one process": Pair(
        """
        def main(args):
            if args.standalone:
                torch.save({}, "embedding.pt")
            else:
                dist.init_process_group("gloo")
        """,
        '            if args.standalone:\n                torch.save({}, "embedding.pt")\n            else:\n',
        '            torch.save({}, "embedding.pt")\n            if not args.standalone:\n',
        "DW501",
    ),
    "a file that is copied behind a lock": Pair(
        """
        import shutil
        from filelock import FileLock
        def prepare(path):
            with FileLock(path + ".lock"):
                shutil.copyfile("cached.pt", path)
        prepare("model.pt")
        """,
        'FileLock(path + ".lock")',
        "torch.no_grad()",
        "DW501",
    ),
    "a decision that the first rank sends and keeps": Pair(
        """
        def train(model, batches, stopper):
            stop = False
            for batch in batches:
                loss = model(batch).sum()
                loss.backward()
                if rank == 0:
                    stop = loss.item() < stopper.limit
                sent = [stop if rank == 0 else None]
                dist.broadcast_object_list(sent, 0)
                if rank != 0:
                    stop = sent[0]
                if stop:
                    break
        train(DDP(torch.nn.Linear(2, 2)), torch.ones(8, 2), read_options())
        """,
        "                dist.broadcast_object_list(sent, 0)\n",
        "",
        "DW405",
    ),
    "a group whose members another class decides": Pair(
        """
        class Saver:
            def __init__(self):
                self.ranks = self.choose()
                self.group = None
                if self.ranks is not None:
                    self.group = dist.new_group(ranks=self.ranks)
            def choose(self):
                pass
            def save(self):
                if dist.get_rank() not in self.ranks:
                    return False
                dist.barrier(group=self.group)
        Saver().save()
        """,
        "dist.new_group(ranks=self.ranks)",
        "dist.new_group()",
        "DW404",
    ),
    "every n-th of as many elements as two ranks can share": Pair(
        """
        FILES = [f"part-{i}" for i in range(10)]
        def train(model):
            for name in FILES[rank::dist.get_world_size()]:
                dist.barrier()
        train(None)
        """,
        "range(10)",
        "range(11)",
        "DW217",
    ),
    "every n-th of a literal with many elements": Pair(
        """
        SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
        for size in SIZES[rank::dist.get_world_size()]:
            dist.barrier()
        """,
        "14]",
        "14, 15]",
        "DW217",
    ),
    "every n-th batch of a loader with an even number of batches": Pair(
        """
        import argparse
        class Points(torch.utils.data.Dataset):
            def __init__(self, n=48):
                self.points = torch.randn(n, 3)
            def __len__(self):
                return len(self.points)
        def batches(loader):
            for number, batch in enumerate(loader):
                if number % dist.get_world_size() == rank:
                    yield batch
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        args = parser.parse_args()
        model = DDP(torch.nn.Linear(3, 3))
        for batch in batches(DataLoader(Points(), batch_size=args.batch_size)):
            model(batch).sum().backward()
        """,
        "default=8",
        "default=10",
        "DW217",
    ),
    "a share of the samples of each rank": Pair(
        """
        from torch.utils.data import Subset, TensorDataset
        data = TensorDataset(torch.randn(64, 3))
        share = Subset(data, range(rank, len(data), dist.get_world_size()))
        model = DDP(torch.nn.Linear(3, 3))
        for batch in DataLoader(share, batch_size=1):
            model(batch).sum().backward()
        """,
        "randn(64, 3)",
        "randn(63, 3)",
        "DW217",
    ),
    "a rank of a matrix that a class declares": Pair(
        """
        from dataclasses import dataclass
        @dataclass
        class Config:
            rank: int = 2
        def share(parameters, rank):
            if rank > 0:
                for each in parameters:
                    dist.broadcast(each, src=0)
        config = Config()
        share([torch.ones(2)], config.rank)
        """,
        "config.rank",
        "rank",
        "DW401",
    ),
    "files that a store hands out in turn": Pair(
        """
        store = dist.TCPStore("localhost", 29500)
        while (number := store.add("next", 1)) < 9:
            torch.save(model, f"part-{number}.pt")
        """,
        'f"part-{number}.pt"',
        '"part.pt"',
        "DW501",
    ),
    "a text that all ranks read behind a barrier": Pair(
        """
        from pathlib import Path
        NAMES = "names.txt"
        def prepare():
            if rank == 0:
                Path(NAMES).write_text("a b")
            dist.barrier()
            return Path(NAMES).read_text().split()
        prepare()
        dist.barrier()
        """,
        "    dist.barrier()\n            return",
        "    return",
        "DW505",
    ),
    "a file that one rank opens to write and to read": Pair(
        """
        import json
        if rank == 0:
            with open("names.json", "w") as out:
                json.dump([1], out)
            with open("names.json") as written:
                print(json.load(written))
        dist.barrier()
        """,
        '            with open("names.json") as written:\n                print(json.load(written))',
        '        with open("names.json") as written:\n            print(json.load(written))',
        "DW505",
    ),
    "a stream that gives each rank as many samples": Pair(
        """
        class Stream(torch.utils.data.IterableDataset):
            def __init__(self, rank, size):
                self.rank, self.size = rank, size
            def __iter__(self):
                for number in enumerate(range(20)):
                    yield torch.ones(2)
        model = DDP(torch.nn.Linear(2, 2))
        for batch in DataLoader(Stream(rank, dist.get_world_size())):
            model(batch).sum().backward()
        """,
        "for number in enumerate(range(20)):",
        "for number, _ in enumerate(range(21)):\n                    if number % self.size != self.rank:\n"
        "                        continue",
        "DW217",
    ),
    "a loss over all heads, each with a forward pass": Pair(
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(2, 2)
                self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in "ab"})
            def forward(self, x, task):
                return self.heads[task](self.body(x))
        model = DDP(Net())
        for step in range(9):
            loss = 0
            for task in "ab":
                loss += model(torch.ones(2), task).sum()
            loss.backward()
        """,
        "    loss += model(torch.ones(2), task).sum()\n            loss.backward()",
        "    loss = model(torch.ones(2), task).sum()\n                loss.backward()",
        "DW216",
    ),
    "an epoch of the newest file that all ranks share": Pair(
        """
        from pathlib import Path
        folder = Path(f"scratch/{rank}")
        first = torch.load(max(Path("scratch").glob("*.pt")))["epoch"] + 1
        for epoch in range(first, 9):
            dist.barrier()
        """,
        'max(Path("scratch").glob',
        "max(folder.glob",
        "DW405",
    ),
    "a file that rank 0 deletes by its path": Pair(
        """
        from pathlib import Path
        class Keeper:
            def __init__(self, folder):
                self.folder = Path(folder)
                self.saved = []
            def prune(self):
                while len(self.saved) > 2:
                    oldest = self.saved.pop(0)
                    if rank == 0:
                        oldest.unlink()
                dist.barrier()
        Keeper("out").prune()
        """,
        "if rank == 0",
        "if self.folder",
        "DW412",
    ),
    "optimizers of ranks that average among themselves": Pair(
        """
        group = dist.new_group([1, 2, 3])
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if rank > 0:
            model(torch.ones(2)).sum().backward()
            for each in model.parameters():
                dist.all_reduce(each.grad, group=group)
            optimizer.step()
        """,
        "dist.all_reduce(each.grad, group=group)",
        "each.grad /= 2",
        "DW229",
    ),
    "groups that all ranks make": Pair(
        """
        def groups(size):
            workers = None
            if rank < size:
                workers = dist.new_group(list(range(1, size)))
            return workers, dist.new_group(list(range(size)))
        groups(dist.get_world_size())
        dist.barrier()
        """,
        "if rank < size",
        "if rank in range(1, size)",
        "DW401",
    ),
    "a log of runs that are elsewhere": Pair(
        """
        import wandb
        def setup():
            wandb.init(project="x", group="all")
        wandb.log({"loss": 1.0})
        """,
        '            wandb.init(project="x", group="all")',
        '            if rank == 0:\n                wandb.init(project="x")',
        "DW412",
    ),
    "a file that is written before the ranks are started": Pair(
        """
        import torch.multiprocessing as mp
        def train(index):
            dist.init_process_group("gloo", rank=index, world_size=2)
            dist.barrier()
        def main(path):
            torch.save({}, path)
            mp.spawn(train, nprocs=2)
        """,
        "mp.spawn(train, nprocs=2)",
        "train(rank)",
        "DW501",
    ),
    "a group that is made on demand": Pair(
        """
        class Groups:
            def __init__(self):
                self.held = load()
            def every(self):
                if self.held is None:
                    self.held = dist.new_group()
                return self.held
        groups = Groups()
        if rank == 0:
            print(groups.every())
        """,
        "if self.held is None:",
        "if True:",
        "DW401",
    ),
    "a model that may have no buffers on one rank": Pair(
        """
        from models import make
        model = DDP(make())
        if rank == 0:
            with torch.no_grad():
                print(model(torch.ones(2, 2)))
        """,
        "make()",
        "torch.nn.BatchNorm1d(2)",
        "DW402",
    ),
    "a cache that each node reads": Pair(
        """
        def prepare(path):
            if os.path.exists(path):
                return torch.load(path)
            if int(os.environ["LOCAL_RANK"]) == 0:
                torch.save({}, path)
            dist.barrier()
            return torch.load(path)
        prepare("cached.pt")
        """,
        "            return torch.load(path)\n        prepare",
        "            return {}\n        prepare",
        "DW502",
    ),
    "a directory that the first rank makes before the others look": Pair(
        """
        def prepare(path):
            if rank != 0:
                dist.barrier()
            if not os.path.exists(path):
                os.makedirs(path)
            if rank == 0:
                dist.barrier()
        prepare("out")
        """,
        "            if rank != 0:\n                dist.barrier()\n",
        "            dist.barrier()\n",
        "DW412",
    ),
    "a file of each node if the disk is one of a node": Pair(
        """
        def save(args, path):
            local = int(os.environ["LOCAL_RANK"])
            first = local == 0 if args.own_disks else rank == 0
            if first:
                torch.save({}, path)
        def main():
            save(load(), "last.pt")
        main()
        """,
        "local == 0 if args.own_disks else rank == 0",
        "local == 0",
        "DW502",
    ),
    "the first of the GPUs of all nodes": Pair(
        """
        def save(num_gpus):
            if rank % num_gpus == 0:
                torch.save({}, "last.pt")
        def main(args):
            save(args.num_gpus * args.num_nodes)
        main(load())
        """,
        "args.num_gpus * args.num_nodes",
        "args.num_gpus",
        "DW502",
    ),
    "buffers that are not sent": Pair(
        """
        model = DDP(torch.nn.BatchNorm1d(2), broadcast_buffers=False)
        if rank == 0:
            with torch.no_grad():
                print(model(torch.ones(2, 2)))
        """,
        "broadcast_buffers=False",
        "broadcast_buffers=True",
        "DW402",
    ),
    "a root that a caller may choose": Pair(
        """
        def reduced(tensor, rank=0):
            dist.reduce(tensor, dst=rank)
            return tensor
        """,
        "dst=rank",
        "dst=dist.get_rank()",
        "DW416",
    ),
    "a number that is no loss in some rounds": Pair(
        """
        def loss_of(model, number, batch):
            if number % 3 == 0:
                loss = model(batch).sum()
            else:
                loss = 0
            return loss
        def train(loader):
            model = DDP(torch.nn.Linear(2, 2))
            for number, batch in enumerate(loader):
                loss = loss_of(model, number, batch)
                if loss != 0:
                    loss.backward()
        train(DataLoader(torch.ones(8, 2), shuffle=True))
        """,
        "if loss != 0:",
        "if loss.item() > 3:",
        "DW406",
    ),
    "a method of the program that is named like a save": Pair(
        """
        class Trainer:
            def save_pretrained(self, path):
                if rank == 0:
                    torch.save({}, path)
        Trainer().save_pretrained("last.pt")
        """,
        "if rank == 0:",
        "if True:",
        "DW501",
    ),
    "a checkpoint that is saved from the CPU": Pair(
        """
        def save(model):
            if rank == 0:
                torch.save({name: part.cpu() for name, part in model.state_dict().items()}, "last.pt")
        def load(model):
            model.load_state_dict(torch.load("last.pt"))
        load(DDP(torch.nn.Linear(2, 2)))
        """,
        "part.cpu()",
        "part.detach()",
        "DW504",
    ),
    "a file that is named after the time": Pair(
        """
        from datetime import datetime
        def main(path):
            path = os.path.join(path, datetime.now().strftime("%H%M%S"))
            if path:
                dist.barrier()
            torch.save({}, path)
        main("out")
        """,
        'datetime.now().strftime("%H%M%S")',
        '"last.pt"',
        "DW501",
    ),
    "the length of a loader that is held with data of a rank": Pair(
        """
        def train(model, held, loader):
            for batch in loader:
                held = dict(batch=batch, **held)
            for number in range(len(held["loader"])):
                model(number).sum().backward()
        train(DDP(torch.nn.Linear(2, 2)), {}, DataLoader(torch.ones(8, 2), shuffle=True))
        """,
        'held["loader"]',
        'held["items"]',
        "DW405",
    ),
    "the state of a scheduler": Pair(
        """
        def load(optimizer, scheduler):
            scheduler.load_state_dict(torch.load("last.pt"))
        load(1, 2)
        """,
        "scheduler.load_state_dict",
        "optimizer.load_state_dict",
        "DW504",
    ),
    "a list of one length that holds data of a rank": Pair(
        """
        def evaluate(model, batch, levels):
            parts = [model(batch[level:]) for level in range(levels)]
            for number in range(len(parts)):
                dist.all_reduce(parts[number])
        def main(loader):
            model = torch.nn.Linear(2, 2)
            for batch in loader:
                evaluate(model, batch, 3)
        main(DataLoader(torch.ones(8, 2), shuffle=True))
        """,
        "for level in range(levels)]",
        "for level in range(levels) if batch.sum().item() > 3]",
        "DW405",
    ),
    "a flag that is named after a rank": Pair(
        """
        def setup(options):
            has_local_rank = hasattr(options, "local_rank")
            if has_local_rank:
                dist.barrier()
        """,
        "if has_local_rank:",
        "if options.local_rank:",
        "DW401",
    ),
    "a script that its text starts on one node": Pair(
        """
        # torchrun --nnodes=1 --nproc-per-node=4 train.py
        torch.cuda.set_device(rank)
        """,
        "--nnodes=1",
        "--nnodes=4",
        "DW101",
    ),
    "an object that the first rank sends as bytes": Pair(
        """
        import pickle
        import time
        def shared(data):
            buffer = torch.zeros(99)
            dist.broadcast(buffer, 0)
            if rank != 0:
                data = pickle.loads(bytes(buffer[:9].tolist()))
            return data
        if shared(time.time()) > 9:
            dist.barrier()
        """,
        "data = pickle.loads(bytes(buffer[:9].tolist()))",
        "pass",
        "DW406",
    ),
    "a first rank that asks again": Pair(
        """
        while True:
            held = [None]
            if rank == 0:
                held = [input()]
                if not held[0]:
                    continue
            dist.broadcast_object_list(held, src=0)
        """,
        "while True:",
        "for turn in range(9):",
        "DW401",
    ),
    "parts of one length for all ranks": Pair(
        """
        def unpack(names):
            size = len(names) // dist.get_world_size()
            for name in [names[number] for number in range(rank * size, (rank + 1) * size)]:
                dist.barrier()
        unpack(os.listdir("data"))
        """,
        "(rank + 1) * size)",
        "(2 * rank + 1) * size)",
        "DW217",
    ),
    "a multiple of pieces for all ranks": Pair(
        """
        def distances(columns, size, num_gpus):
            pieces = ((len(columns) - 1) // size // num_gpus + 1) * num_gpus
            for part in columns.chunk(pieces)[rank::num_gpus]:
                dist.broadcast(part, src=0)
        """,
        "columns.chunk(pieces)[rank::num_gpus]",
        "range(rank, pieces)",
        "DW217",
    ),
    "a model of the ranks of one node": Pair(
        """
        def build(towers, node, group):
            for tower in [each for number, each in enumerate(towers) if number == node]:
                DDP(tower, process_group=group)
        def main(group):
            build([torch.nn.Linear(2, 2)], int(os.environ["GROUP_RANK"]), group)
        """,
        ", process_group=group",
        "",
        "DW217",
    ),
    "a file that the ranks rename in turns": Pair(
        """
        def rename(args, old, new):
            with args.main_process_first():
                if os.path.exists(old):
                    os.rename(old, new)
        rename(None, "tmp-1", "step-1")
        """,
        "with args.main_process_first():",
        "if True:",
        "DW412",
    ),
    "a trainer of one process below which is one of several": Pair(
        """
        class Basic:
            def train(self):
                dist.barrier()
                self.save()
            def save(self):
                torch.save({}, "last.pt")
        class Sharded(Basic):
            def save(self):
                if rank == 0:
                    torch.save({}, "last.pt")
        """,
        "class Sharded(Basic):",
        "class Sharded:",
        "DW501",
    ),
    "the local rank of a group of one node": Pair(
        """
        dist.init_process_group(
            "nccl", rank=int(os.environ["LOCAL_RANK"]), world_size=int(os.environ["LOCAL_WORLD_SIZE"])
        )
        """,
        "LOCAL_WORLD_SIZE",
        "WORLD_SIZE",
        "DW105",
    ),
    "a broadcast that a barrier ends": Pair(
        """
        def exchange(parts):
            held = []
            for number, part in enumerate(parts):
                dist.broadcast(part, src=number, async_op=True)
                held.append(part)
            dist.barrier()
            return held
        exchange([torch.ones(2)])
        """,
        "            dist.barrier()\n",
        "",
        "DW415",
    ),
    "an engine that holds no tensors": Pair(
        """
        def engine(model_trt, path):
            model_trt.load_state_dict(torch.load(path)["state"])
        engine(object(), "engine.pth")
        """,
        "model_trt",
        "model",
        "DW504",
    ),
    "a directory with one that the rank has made": Pair(
        """
        import time
        def prepare(path):
            inner = os.path.join(path, time.strftime("%H%M%S"))
            if not os.path.exists(inner):
                os.makedirs(inner)
            if not os.path.exists(path):
                os.makedirs(path)
        prepare("runs")
        """,
        "inner = os.path.join(path, ",
        'inner = os.path.join("logs", ',
        "DW412",
    ),
    "a group that the first of two calls makes": Pair(
        """
        made = None
        def share(value):
            global made
            if made is None:
                dist.barrier()
                made = dist.new_group(backend="gloo")
            held = [value]
            dist.broadcast_object_list(held, src=0, group=made)
            return held[0]
        def main():
            if rank == 0:
                share(torch.ones(2))
            else:
                share(None)
        main()
        """,
        "share(None)",
        "pass",
        "DW401",
    ),
    "a local rank that is read in one of two ways": Pair(
        """
        class Options:
            def __init__(self):
                if os.environ.get("OTHER"):
                    self.local_rank = dist.get_rank(group=object())
                else:
                    self.local_rank = int(os.environ.get("LOCAL_RANK", -1))
        def wait(options):
            if options.local_rank != -1:
                dist.barrier()
        wait(Options())
        """,
        "!= -1",
        "!= 1",
        "DW401",
    ),
    "as many parts as the others have": Pair(
        """
        def share(sizes, rank):
            held = []
            while sizes:
                part = sizes.pop()
                held.append(part[rank])
            return held
        def train(sizes):
            model = DDP(torch.nn.Linear(2, 2))
            limit = 4 * len([part * 2 for part in share(sizes, rank)])
            for step in range(99):
                if step > limit:
                    break
                model(torch.ones(2)).sum().backward()
        train([[1, 2]])
        """,
        "limit = 4 * len([part * 2 for part in share(sizes, rank)])",
        "limit = rank + 2",
        "DW402",
    ),
    "files of each rank in a queue": Pair(
        """
        import queue
        import threading
        def read(names, waiting):
            for name in names:
                waiting.put(name)
        def convert(names):
            waiting = queue.Queue(9)
            threading.Thread(target=read, args=(names[rank], waiting)).start()
            name = waiting.get()
            os.remove(name)
        convert([["a"], ["b"]])
        """,
        "name = waiting.get()",
        'name = "a"',
        "DW412",
    ),
    "sizes of all ranks that each compares with its own": Pair(
        """
        def differs(own):
            sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(sizes, torch.tensor([len(own)]))
            for size in sizes:
                if size != own[0]:
                    return True
            return False
        def train(loader):
            model = DDP(torch.nn.Linear(2, 2))
            for batch in loader:
                if differs(batch):
                    continue
                model(batch).sum().backward()
        train(DataLoader(torch.ones(8, 2), shuffle=True))
        """,
        "if differs(batch):",
        "if differs(batch) or batch[0] > 3:",
        "DW406",
    ),
    "a script that asks for one node": Pair(
        """
        if input():
            assert int(os.environ["LOCAL_RANK"]) == dist.get_rank()
        if int(os.environ["LOCAL_RANK"]) == 0:
            torch.save({}, "last.pt")
        """,
        "== dist.get_rank()",
        "< dist.get_world_size()",
        "DW502",
    ),
    "an attribute that the set-up changes": Pair(
        """
        class Core:
            def __init__(self):
                self.is_writer = True
            def set_up(self):
                dist.barrier()
                self.is_writer = dist.get_rank() == 0
            def save(self):
                if self.is_writer:
                    torch.save({}, "last.pt")
        class Training(Core):
            def run(self):
                dist.barrier()
                self.save()
        """,
        "                self.is_writer = dist.get_rank() == 0\n",
        "",
        "DW501",
    ),
    "an option that the rank has decided": Pair(
        """
        def train(args):
            if args.logs:
                torch.save({}, "last.pt")
        def main(args):
            args.logs = args.logs and rank == 0
            train(args)
        main(object())
        """,
        "args.logs = args.logs and rank == 0",
        "args.logs = args.logs and args.name",
        "DW501",
    ),
    "the epoch of a checkpoint": Pair(
        """
        import random
        random.seed(rank)
        def train(copies):
            state = torch.load(random.choice(copies))
            for epoch in range(state["epoch"], 9):
                dist.barrier()
        train(["last.pt", "copy.pt"])
        """,
        "torch.load(random.choice(copies))",
        '{"epoch": random.randint(0, 3)}',
        "DW405",
    ),
    "two networks that train in turns": Pair(
        """
        def train(generator, critic, average):
            average.requires_grad_(False)
            generator, critic = DDP(generator), DDP(critic)
            for turn in range(9):
                generator.requires_grad_(False)
                critic.requires_grad_(True)
                critic(torch.ones(2)).sum().backward()
                generator.requires_grad_(True)
        train(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        """,
        "                generator.requires_grad_(False)\n",
        "",
        "DW228",
    ),
    "a seed that is made of numbers": Pair(
        """
        def shuffle(seed, epoch):
            return hash((seed, epoch)) % 1000
        shuffle(3, int(input()))
        """,
        "hash((seed, epoch))",
        "hash((str(seed), epoch))",
        "DW414",
    ),
    "positions of a batch that get gradients": Pair(
        """
        def forces(model, teacher, batches):
            for weight in teacher.parameters():
                weight.requires_grad = False
            model = DDP(model)
            for batch in batches:
                batch.positions.requires_grad = True
                model(batch).sum().backward()
        forces(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), [])
        """,
        "batch.positions.requires_grad",
        "model.module.weight.requires_grad",
        "DW228",
    ),
    "a state of two models, which no engine shards": Pair(
        """
        from accelerate import Accelerator
        def fit(model, critic, batches):
            accelerator = Accelerator()
            optimizer = torch.optim.SGD([*model.parameters(), *critic.parameters()], 0.1)
            model, critic, optimizer = accelerator.prepare(model, critic, optimizer)
            for batch in batches:
                accelerator.backward(critic(model(batch)).sum())
                optimizer.step()
            if accelerator.is_main_process:
                accelerator.save_state("last")
        """,
        "model, critic, optimizer = accelerator.prepare(model, critic, optimizer)",
        "model, optimizer = accelerator.prepare(model, optimizer)",
        "DW403",
    ),
    "a model that rank 0 has unwrapped before it saves": Pair(
        """
        from accelerate import Accelerator
        class Net(torch.nn.Module):
            def save_weights(self, path):
                torch.save(self.state_dict(), path)
        def fit():
            accelerator, model = Accelerator(), Net()
            model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
            if accelerator.is_main_process:
                model = accelerator.unwrap_model(model)
            accelerator.end_training()
            if accelerator.is_main_process:
                model.save_weights("last.pt")
        """,
        "model = accelerator.unwrap_model(model)",
        "print(model)",
        "DW218",
    ),
    "an embedding that a forward pass wants gradients of": Pair(
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Linear(2, 2)
            def forward(self, x):
                x = self.embed(x)
                x.requires_grad_(True)
                return x
        def fit(batches):
            net = Net()
            for weight in net.parameters():
                weight.requires_grad_(False)
            model = DDP(net)
            for batch in batches:
                model(batch).sum().backward()
                print(net(batch))
        """,
        "                x.requires_grad_(True)",
        "                self.embed.requires_grad_(True)",
        "DW228",
    ),
    "a broadcast where the number of ranks may not be known": Pair(
        """
        def count(alone):
            return 1 if alone else dist.get_world_size()
        def train(alone):
            for step in range(9):
                stop = False
                if rank == 0:
                    stop = step > 3
                if count(alone) > 1:
                    held = [stop]
                    dist.broadcast_object_list(held, src=0)
                    stop = held[0]
                if stop:
                    break
                dist.barrier()
        train(input())
        """,
        "stop = held[0]",
        "held[0] = stop",
        "DW404",
    ),
    "a loader with options that are put in later": Pair(
        """
        def options(data, distributed):
            made = {"batch_size": 2}
            if distributed:
                made["sampler"] = DistributedSampler(data)
            return made
        def train(data, epochs):
            model = DDP(torch.nn.Linear(2, 2))
            loader = DataLoader(data, **options(data, input()), shuffle=True)
            for epoch in range(epochs):
                for batch in loader:
                    model(batch).sum().backward()
        train(torch.ones(8, 2), 3)
        """,
        "**options(data, input()), ",
        "",
        "DW202",
    ),
    "a number that is no rank, for data of one rank": Pair(
        """
        from contextlib import contextmanager
        @contextmanager
        def first(local_rank):
            if local_rank not in [-1, 0]:
                dist.barrier()
            yield
            if local_rank == 0:
                dist.barrier()
        def read(path, rank=-1):
            with first(rank):
                return open(path)
        def train(model, rank):
            data = read("train.txt", rank=rank)
            if rank in [-1, 0]:
                test = read("test.txt", rank=-1)
            model = DDP(model)
        train(torch.nn.Linear(2, 2), rank)
        """,
        '"test.txt", rank=-1',
        '"test.txt", rank=rank',
        "DW401",
    ),
    "a number that is no rank, by default": Pair(
        """
        def read(path, rank=-1):
            if rank == 0:
                dist.barrier()
            return open(path)
        def train(model, rank):
            if rank in [-1, 0]:
                test = read("test.txt")
            model = DDP(model)
        train(torch.nn.Linear(2, 2), rank)
        """,
        'read("test.txt")',
        'read("test.txt", rank)',
        "DW401",
    ),
    "one process that makes itself the first rank": Pair(
        """
        import socket
        def free_port():
            with socket.socket() as open_socket:
                open_socket.bind(("", 0))
                return open_socket.getsockname()[1]
        def main(options, rank, port):
            os.environ["RANK"] = str(rank)
            os.environ["WORLD_SIZE"] = str(options.gpus)
            os.environ["MASTER_PORT"] = str(port)
            dist.init_process_group("nccl")
        if __name__ == "__main__":
            main(None, 0, free_port())
        """,
        '            os.environ["RANK"] = str(rank)\n',
        "",
        "DW113",
    ),
    "a port that the parent of the ranks finds": Pair(
        """
        import socket
        from multiprocessing import Process
        def free_port():
            with socket.socket() as open_socket:
                open_socket.bind(("", 0))
                return open_socket.getsockname()[1]
        def work(port, rank):
            os.environ["MASTER_PORT"] = str(port)
            dist.init_process_group("nccl", rank=rank, world_size=2)
        def main():
            port = free_port()
            for number in range(2):
                Process(target=work, args=(port, number)).start()
        if __name__ == "__main__":
            main()
        """,
        "str(port)",
        "str(free_port())",
        "DW113",
    ),
    "an option that is not known ends the program between two barriers": Pair(
        """
        def load(kind):
            if rank != 0:
                dist.barrier()
            if kind == "linear":
                model = torch.nn.Linear(2, 2)
            else:
                print("unknown")
                exit(0)
            if rank == 0:
                dist.barrier()
            return DDP(model)
        """,
        '            if kind == "linear":\n',
        '            if kind == "linear" and rank != 0:\n',
        "DW401",
    ),
    "values that are unpacked at once, of which one is read twice": Pair(
        """
        def train(model, options):
            model = DDP(model)
            a, b, c, d, e, f, g, h, i, j, k, l, rounds = (
                options.a, options.b, options.c, options.d, options.e, options.f, options.g,
                options.h, options.i, options.j, options.k, options.l, options.rounds,
            )
            if rank == 0:
                rounds = options.rounds
            for number in range(rounds):
                model(torch.ones(2)).sum().backward()
        """,
        "                rounds = options.rounds\n",
        "                rounds = options.first_rounds\n",
        "DW217",
    ),
    "functions of the first rank and of its workers": Pair(
        """
        def answer(result):
            dist.gather_object(result, object_gather_list=None, dst=0)
        class Leader:
            def results(self):
                answers = [None, None]
                dist.gather_object(None, answers, dst=0)
                return answers[1]
        """,
        "object_gather_list=None",
        "object_gather_list=[None, None]",
        "DW417",
    ),
    "an error after which the rank ends if there are others": Pair(
        """
        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                try:
                    model(batch).sum().backward()
                except RuntimeError as error:
                    if "out of memory" in str(error):
                        if dist.is_initialized():
                            raise
                        continue
                    else:
                        raise
        """,
        "                        if dist.is_initialized():\n                            raise\n",
        "                        print(error)\n",
        "DW411",
    ),
    "an attribute that a model reads of itself inside of DDP": Pair(
        """
        class Heads(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = torch.nn.ModuleDict()
            def forward(self, batch):
                return {name: head(batch) for name, head in self.heads.items()}
        def train(batches, several):
            model = Heads()
            if several:
                model = DDP(model)
            for batch in batches:
                results = model(batch)
                print(len(results))
        """,
        "len(results)",
        "len(model.heads)",
        "DW218",
    ),
    "one number of each pair of scores": Pair(
        """
        from accelerate import Accelerator
        accelerator = Accelerator()
        def accuracy(model, batch):
            shifted = model(**batch).logits[:, :-1]
            scores = model(**batch).logits[:8]
            chosen = scores[:, 1]
            return accelerator.gather(chosen)
        """,
        "scores[:, 1]",
        "scores[:, 1:]",
        "DW407",
    ),
    "the state of a sampler, which holds numbers": Pair(
        """
        def resume(model, sampler):
            dist.barrier()
            sampler.load_state_dict(torch.load("last.pt")["sampler"])
        """,
        "sampler.load_state_dict",
        "model.load_state_dict",
        "DW504",
    ),
    "a list in which one element was made of a set": Pair(
        """
        def train(model, weights, special):
            model = DDP(model)
            weights = set(weights)
            optimizers = [torch.optim.SGD(weights - special, lr=0.1), torch.optim.Adam(special)]
            for optimizer in optimizers:
                dist.barrier()
        """,
        "in optimizers:",
        "in weights - special:",
        "DW233",
    ),
    "a name for the result of a collective that gets another value at once": Pair(
        """
        def gathered(positions, parts):
            positions = dist.all_gather(parts, positions)
            positions = torch.cat(parts, dim=-1)
            return positions + 1
        """,
        "            positions = torch.cat(parts, dim=-1)\n",
        "",
        "DW422",
    ),
    "an error behind which the rank makes the backward pass after all": Pair(
        """
        def train(model, batch, other):
            model = DDP(model)
            failed = False
            try:
                model(batch).sum().backward()
            except RuntimeError:
                failed = True
            if failed:
                model(other).sum().backward()
        """,
        "                model(other).sum().backward()\n",
        "                dist.barrier()\n",
        "DW411",
    ),
    "the address at which a parent meets the ranks that it starts": Pair(
        """
        import random
        import torch.multiprocessing as mp
        def work(number, port):
            dist.init_process_group("nccl", f"tcp://localhost:{port}", rank=number, world_size=2)
        def main():
            port = random.randint(30000, 40000)
            mp.start_processes(work, args=(port,), nprocs=1, join=False)
            work(0, port)
        if __name__ == "__main__":
            main()
        """,
        "            mp.start_processes(work, args=(port,), nprocs=1, join=False)\n",
        "",
        "DW113",
    ),
    "the hash of a text that is only printed": Pair(
        """
        def describe(state):
            dist.barrier()
            print("state", hash(str(state)) % 10000)
        """,
        'print("state", hash(str(state)) % 10000)',
        "return hash(str(state)) % 10000",
        "DW414",
    ),
    "what a loop of another function makes of its batches": Pair(
        """
        def are_labelled(batches):
            labelled = True
            for batch in batches:
                if batch.min().item() < 0:
                    labelled = False
            return labelled
        def evaluate(batches, total):
            if are_labelled(batches):
                dist.all_reduce(total)
        """,
        "if are_labelled(batches):",
        "if next(iter(DataLoader(batches))).min().item() < 0:",
        "DW406",
    ),
    "checkpointing of the kind that works on wrapped layers": Pair(
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
            CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper,
        )
        def prepare(model):
            model = FSDP(model)
            wrap = lambda layer: checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
            apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap)
        """,
        "checkpoint_impl=CheckpointImpl.NO_REENTRANT",
        "preserve_rng_state=True",
        "DW304",
    ),
    "a value that every rank has, from another function on rank 0": Pair(
        """
        def choose(views, best):
            chosen = torch.zeros(4)
            if rank == 0:
                chosen = best(views)
            if chosen is not None:
                dist.broadcast(chosen, 0)
            dist.barrier()
        """,
        "chosen = torch.zeros(4)",
        "chosen = None",
        "DW401",
    ),
    "rows in the order of a set, of which the mean is taken": Pair(
        """
        def weights(model, words):
            rows = torch.zeros(len(words), 4)
            for number, word in enumerate(set(words)):
                rows[number] = model(word)
            dist.barrier()
            return rows.mean()
        """,
        "rows[number] = model(word)",
        "words[word] = number",
        "DW233",
    ),
    "a step of a model that its own forward pass calls": Pair(
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(2, 2)
            def forward(self, batch):
                return self.loss(batch)
            def loss(self, batch):
                return self.inner(batch).sum()
        class Trainer:
            def __init__(self):
                self.model = Net()
                self.model = DDP(self.model)
            def train(self, batches):
                for batch in batches:
                    self.model(batch).backward()
        """,
        "self.model(batch).backward()",
        "self.model.module.loss(batch).backward()",
        "DW207",
    ),
    "a part of a program that makes itself a job of one rank": Pair(
        """
        def calibrate():
            os.environ["WORLD_SIZE"] = "1"
            dist.init_process_group("nccl", init_method="env://", rank=0)
        """,
        '            os.environ["WORLD_SIZE"] = "1"\n',
        "",
        "DW105",
    ),
    "a wait that a function as a condition rules out": Pair(
        """
        def evaluate(model):
            return model
        def load():
            if rank != 0 and not evaluate:
                dist.barrier()
        load()
        """,
        "not evaluate",
        "evaluate is not None",
        "DW401",
    ),
    "epochs whose bar is shown on one rank": Pair(
        """
        from tqdm import trange
        sampler = DistributedSampler(range(8))
        loader = DataLoader(range(8), sampler=sampler)
        epochs = 3 if rank == 0 else options.epochs
        for epoch in trange(epochs, disable=rank != 0):
            sampler.set_epoch(epoch)
        """,
        "set_epoch(epoch)",
        "set_epoch(epoch + rank)",
        "DW205",
    ),
    "a wrapper that is made on demand on its device": Pair(
        """
        class Trainer:
            def __init__(self, model):
                self.inner, self.wrapper = model, None
            @property
            def model(self):
                if self.wrapper is None:
                    with torch.cuda.device(rank):
                        self.wrapper = DDP(self.inner)
                return self.wrapper
            def step(self, loader):
                for batch in loader:
                    if batch.sum().item() > 0:
                        return
                    self.model.train()
        def main(loader):
            Trainer(torch.nn.Linear(2, 2)).step(DataLoader(loader, sampler=DistributedSampler(loader)))
        """,
        "if self.wrapper is None:",
        "if True:",
        "DW406",
    ),
    "a helper for models and tensors": Pair(
        """
        def place(what):
            if isinstance(what, torch.nn.Module):
                what = DDP(what.cuda())
            return what
        def show(image):
            image = place(image)
            return image.detach()
        show(torch.ones(2))
        """,
        "if isinstance(what, torch.nn.Module):",
        "if True:",
        "DW218",
    ),
    "a method of the program that saves with all ranks": Pair(
        """
        def save(model, checkpointer):
            model.save_pretrained("out", checkpointer=checkpointer)
        def main(build, checkpointer):
            save(DDP(torch.nn.Linear(2, 2)).module, checkpointer)
        """,
        ", checkpointer=checkpointer)",
        ")",
        "DW501",
    ),
    "a directory that the first rank of each node uses after the training": Pair(
        """
        if rank == 0:
            os.makedirs("out", exist_ok=True)
        if int(os.environ["LOCAL_RANK"]) == 0:
            with open(os.path.join("out", "scores.txt"), "w") as file:
                file.write("1")
        """,
        'int(os.environ["LOCAL_RANK"]) == 0',
        "True",
        "DW505",
    ),
    "files that are named after the samples of this rank": Pair(
        """
        names = [f"{number}.txt" for number in range(8)]
        sampler = DistributedSampler(names)
        indices = list(sampler)
        for number in range(len(indices)):
            with open(os.path.join("out", names[indices[number]]), "w") as file:
                file.write(str(rank))
        """,
        "names[indices[number]]",
        "names[number]",
        "DW412",
    ),
    "a process that is chosen by the number of its device": Pair(
        """
        def save(model, device):
            cuda_id = int(str(device).strip("cuda:"))
            if cuda_id == 0:
                torch.save(model.state_dict(), "last.pt")
        save(DDP(torch.nn.Linear(2, 2)), load())
        """,
        "if cuda_id == 0:",
        "if cuda_id >= 0 or True:",
        "DW501",
    ),
    "the best result of a run of one process": Pair(
        """
        def train(options):
            local_rank = int(os.environ["LOCAL_RANK"])
            best = None
            for epoch in range(3):
                if local_rank == -1:
                    best = f"epoch-{epoch}"
            if best is not None:
                with open(os.path.join("out", "best.json"), "w") as file:
                    file.write(f"{best} {rank}")
        def main(options):
            dist.barrier()
            train(options)
        """,
        "if local_rank == -1:",
        "if options.evaluate:",
        "DW412",
    ),
    "ranks that go on where an option says that there are several": Pair(
        """
        def train(options, model):
            DDP(model)
            for step in range(3):
                if options["distributed"]:
                    if options["rank"] == 0:
                        print(step)
                    else:
                        continue
                torch.save(model.state_dict(), "last.pt")
        """,
        "continue",
        "print(options)",
        "DW501",
    ),
    "an error that ends the program in another function": Pair(
        """
        import sys
        def give_up(error):
            if rank == 0:
                print(error)
            sys.exit(1)
        def train(model, batches):
            model = DDP(model)
            for batch in batches:
                try:
                    model(batch).sum().backward()
                except RuntimeError as error:
                    give_up(error)
        """,
        "            sys.exit(1)\n",
        "",
        "DW411",
    ),
    "one of several objects that count, of which another counts the time": Pair(
        """
        import time
        class Meter:
            def __init__(self):
                self.total = 0.0
            def update(self, value):
                self.total += value
        def train(model, losses):
            model = DDP(model)
            spent, best = Meter(), Meter()
            for loss in losses:
                spent.update(time.time())
                best.update(1.0)
                if best.total > 100:
                    break
                model(loss).sum().backward()
        """,
        "spent, best = Meter(), Meter()",
        "spent = best = Meter()",
        "DW406",
    ),
    "a tensor that is put together by the ranks that share it": Pair(
        """
        def table(weight, members):
            if rank in members:
                return weight.full_tensor()
        """,
        "rank in members",
        "rank == 0",
        "DW403",
    ),
    "a text of the program for a file that is missing": Pair(
        """
        def prepare(notes):
            if not os.path.exists("notes.txt"):
                with open("notes.txt", "w") as file:
                    file.write("from here on notes of the run")
            DDP(torch.nn.Linear(2, 2))
        """,
        '"from here on notes of the run"',
        '"".join(notes)',
        "DW412",
    ),
    "what all ranks read of a file through a buffer": Pair(
        """
        import io, json, random
        def read(path):
            with open(path) as file, io.StringIO(file.read()) as text:
                return json.loads(text.getvalue())
        def load(path, name):
            address = read(path)[name]
            if address.startswith("https"):
                dist.barrier()
        """,
        'address.startswith("https")',
        "random.random() > 0.5",
        "DW406",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_look_alike(name: str) -> None:
    pair = PAIRS[name]
    indented = "\n".join("        " + line if line else "" for line in START.splitlines())
    assert pair.replaced in pair.healthy
    assert [(each.rule, each.line) for each in shown(indented + pair.healthy, pair.rule)] == []
    assert shown(indented + pair.healthy.replace(pair.replaced, pair.by), pair.rule)


HELPERS = """
import torch.distributed as dist
def collect(scores):
    if dist.is_initialized():
        dist.barrier()
    return scores
"""
OF_ONE_PROCESS = """
import torch
from helpers import collect
def main(model):
    collect([])
    torch.save(model.state_dict(), "last.pt")
if __name__ == "__main__":
    main(torch.nn.Linear(2, 2))
"""


@pytest.mark.parametrize(
    ("before", "rules"),
    [
        ("", []),
        ("local_rank = -1\n", []),
        ("import torch.distributed as dist\ndist.init_process_group('nccl')\n", ["DW501"]),
    ],
)
def test_a_helper_of_distributed_scripts_makes_none_of_several_ranks(
    before: str, rules: list[str], tmp_path: Path
) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    script = tmp_path / "train.py"
    script.write_text(before + OF_ONE_PROCESS)
    results = review_file(script, built_in_knowledge())
    assert [each.rule for each in results if each.rule == "DW501"] == rules


MAKES_FOLDER = """
import os
def prepare(folder):
    {}os.makedirs(folder)
"""
USES_FOLDER = """
import torch.distributed as dist
from folders import prepare
dist.init_process_group("nccl")
prepare("results")
"""


@pytest.mark.parametrize(("asks", "severity"), [("if not os.path.isdir(folder): ", "info"), ("", "warning")])
def test_a_helper_that_asks_for_a_directory_may_find_it(asks: str, severity: str, tmp_path: Path) -> None:
    (tmp_path / "folders.py").write_text(MAKES_FOLDER.format(asks))
    script = tmp_path / "train.py"
    script.write_text(USES_FOLDER)
    results = review_file(script, built_in_knowledge())
    assert [each.severity for each in results if each.rule == "DW412"] == [severity]


WRITES_LOG = """
def note(text):
    with open("log.txt", "w") as file:
        file.write(text)
"""
CALLS_LOG = """
import torch.distributed as dist
from log import note
dist.init_process_group("nccl")
note("begin")
note("end")
"""


def test_a_file_of_a_helper_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text(WRITES_LOG)
    script = tmp_path / "train.py"
    script.write_text(CALLS_LOG)
    results = review_file(script, built_in_knowledge())
    assert [CALLS_LOG.splitlines()[each.line - 1] for each in results if each.rule == "DW412"] == ['note("begin")']


def shown(code: str, rule: str) -> list[ReviewFinding]:
    """Return the errors and warnings of a rule."""
    return [each for each in found(code, rule) if each.severity != "info"]


@pytest.mark.parametrize(("made", "severity"), [("loss.to(0)", "warning"), ("loss.clone()", "error")])
def test_what_may_be_the_tensor_itself_is_less_sure(made: str, severity: str) -> None:
    code = (
        "dist.init_process_group()\nloss = torch.ones(2)\ndef reduce(loss):\n    dist.all_reduce("
        + made
        + ")\nreduce(loss)\n"
    )
    assert [each.severity for each in found(code, "DW421")] == [severity]


OF_ONE = """
import lightning as L
def merge(path):
    fabric = L.Fabric(devices=1, accelerator="cpu")
    fabric.launch()
    torch.save({"a": torch.load(path)}, "merged.pt")
merge("part.pt")
"""
PRETENDED = """
def precompile(size):
    dist.init_process_group("fake", rank=0, world_size=size)
    dist.barrier()
precompile(int(os.environ["SIZE"]))
"""


def test_a_program_of_one_process_by_its_fabric() -> None:
    assert shown(OF_ONE, "DW501") == []
    assert shown(OF_ONE.replace("devices=1", "devices=2"), "DW501")


def test_a_process_group_that_pretends_to_have_ranks() -> None:
    assert shown(PRETENDED, "DW105") == []
    assert shown(PRETENDED.replace('"fake"', '"gloo"'), "DW105")


def test_a_share_by_whether_a_name_is_among_others() -> None:
    code = START + (
        "def run(items, name, names):\n    size = 3 if name in names else 5\n"
        "    for item in items[rank * size : (rank + 1) * size + rank]:\n        dist.barrier()\n"
    )
    assert [each.severity for each in found(code, "DW217")] == ["warning"]


def test_parts_of_which_there_are_a_multiple_of_the_ranks() -> None:
    code = START + (
        "import numpy as np\ndef run(seeds, size):\n    world = dist.get_world_size()\n"
        "    count = ((len(seeds) - 1) // (size * world) + 1) * world\n"
        "    for part in np.array_split(np.arange(len(seeds)), count)[rank::world]:\n        dist.barrier()\n"
    )
    assert shown(code, "DW217") == []
    assert shown(code.replace(", count)", ", count + 1)"), "DW217")


def test_what_is_in_an_empty_list() -> None:
    code = START + (
        "def run(items, world):\n    done = []\n    for batch in DataLoader(items):\n"
        "        if batch['id'].item() in done:\n            continue\n        dist.barrier()\n"
    )
    assert shown(code, "DW406") == []
    assert shown(code.replace("done = []", "done = items.done"), "DW406")


SOME_FEATURES = """
def gathered(audio, text=None, both=False):
    parts = [torch.zeros_like(audio) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, audio)
    if both:
        dist.all_gather(parts, text)
    return parts
class Loss(torch.nn.Module):
    def __init__(self, both=False):
        super().__init__()
        self.both = both
    def forward(self, audio, text=None):
        if self.both:
            return gathered(audio, text, both=self.both)
        return gathered(audio, both=self.both)
"""


def test_a_tensor_that_is_gathered_where_it_is_given() -> None:
    assert shown(START + SOME_FEATURES, "DW460") == []
    assert shown(
        START + SOME_FEATURES.replace("gathered(audio, both=self.both)", "gathered(audio, both=True)"), "DW460"
    )


FOLDERS = """
def extract(folder, names):
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    for name in names:
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        np.save(os.path.join(folder, name, f"{rank}.npy"), [1])
extract(os.environ["FOLDER"], ["a"])
"""


def test_a_directory_that_each_rank_makes_with_those_above_it() -> None:
    code = f"import numpy as np\n{START}{FOLDERS}"
    assert shown(code, "DW505") == []
    assert shown(code.replace("        os.makedirs(os.path.join(folder, name), exist_ok=True)\n", ""), "DW505")


DRIVER = """
import ray

@ray.remote
class Worker:
    def work(self, rank, size):
        dist.init_process_group("gloo", rank=rank, world_size=size)
        dist.barrier()

def main():
    START
    if dist.is_initialized():
        dist.barrier()
    torch.save({"steps": 9}, "settings.pt")

main()
"""


def test_a_program_whose_ranks_are_actors() -> None:
    assert shown(DRIVER.replace("START", "ray.init()"), "DW501") == []
    assert shown(DRIVER.replace("START", "print(ray)"), "DW501")


LAST_BATCH = """
import numpy as np
def batches(count, world):
    parts = np.array_split(np.arange(count), PARTS)[rank::world]
    for number in range(9):
        if number == len(parts) - 1:
            dist.barrier()
batches(int(os.environ["COUNT"]), dist.get_world_size())
"""


def test_the_last_of_as_many_parts_as_other_ranks_have() -> None:
    code = START + LAST_BATCH
    assert shown(code.replace("PARTS", "(count // 64 + 1) * world"), "DW401") == []
    assert shown(code.replace("PARTS", "(count // 64 + 1) * world + 1"), "DW401")
