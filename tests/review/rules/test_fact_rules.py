"""Rules on the facts of a program: what each finds, and look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import found, lines, refused, repaired, script

START = """
dist.init_process_group("nccl")
rank = dist.get_rank()
"""
WRAP = """
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
"""
FSDP = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = torch.nn.Linear(2, 2)
"""
ACCUMULATED = (
    WRAP
    + """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number, x in enumerate(data):
    if number % accumulated != 0:
        with model.no_sync():
            model(x).sum().backward()
    else:
        model(x).sum().backward()
    if (number + 1) % accumulated == 0:
        optimizer.step()
"""
)
LOADER = """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
"""

EITHER_WRAPPER = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
sharded = bool(os.environ.get("SHARDED"))
model = torch.nn.Linear(2, 2)
if sharded:
    model = FSDP(model)
else:
    model = DDP(model)
"""

PREPARED = """
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP
accelerator = Accelerator()
def inner(first, second=None):
    return (each.module if type(each) == DDP else each for each in [first, second] if each is not None)
net, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
net, other, optimizer = accelerator.prepare(net, other, torch.optim.SGD(net.parameters(), 0.1))
"""

FOUND: dict[str, tuple[str, str, str]] = {
    "a step of models that a helper takes out of their wrappers": (
        "DW207",
        PREPARED,
        """
        net, other = inner(net, other)
        for batch in data:
            accelerator.backward(other(net(batch)).sum())
            if accelerator.sync_gradients:
                optimizer.step()
        """,
    ),
    "the state of FSDP where it is chosen": (
        "DW402",
        START + EITHER_WRAPPER,
        'if rank == 0 and sharded:\n    torch.save(model.state_dict(), "last.pt")',
    ),
    "a step also at the end of the data, synchronised only at the end of a window": (
        "DW213",
        START,
        ACCUMULATED.replace("number % accumulated != 0", "(number + 1) % accumulated != 0").replace(
            "% accumulated == 0", "% accumulated == 0 or number == len(data) - 1"
        ),
    ),
    "a state loaded by a helper before DDP, from a path of an option": (
        "DW219",
        START,
        """
        from pathlib import Path
        from torch.nn.parallel import DistributedDataParallel
        def resume(net, path):
            net.load_state_dict(torch.load(path, map_location="cpu"), strict=False)
            return net
        def save(net, path):
            if rank == 0:
                torch.save(net.state_dict(), path)
        first = DistributedDataParallel(torch.nn.Linear(2, 2))
        save(first, Path(args.checkpoint))
        second = DistributedDataParallel(resume(torch.nn.Linear(2, 2), Path(args.checkpoint)))
        """,
    ),
    "a loader with a generator that all ranks seed alike": (
        "DW202",
        START + WRAP + LOADER,
        """
        loader = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3))
        def batches(loader):
            yield from loader
        for epoch in range(3):
            for x in batches(loader):
                model(x).sum().backward()
        """,
    ),
    "a loss of a method of the inner model": (
        "DW207",
        START,
        """
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)
            def embed(self, x):
                return self.layer(x), self.layer(-x)
            def forward(self, x):
                return self.embed(x)
        model = DistributedDataParallel(Encoder())
        for x in data:
            first, second = model.module.embed(x)
            (first - second).mean().backward()
        """,
    ),
    "a save on every rank": ("DW501", START, 'torch.save(model.state_dict(), "last.pt")'),
    "a save two calls deep": (
        "DW501",
        START,
        """
        def write(state, path):
            torch.save(state, path)
        def finish(model):
            write(model.state_dict(), os.path.join("out", "last.pt"))
        finish(model)
        """,
    ),
    "a save behind a limit of the loss": (
        "DW501",
        START + WRAP,
        """
        def train(best):
            for epoch in range(3):
                loss = model(torch.ones(2, 2)).sum()
                if loss.item() < best:
                    torch.save(model.state_dict(), "best.pt")
        train(9.0)
        """,
    ),
    "a copy on every rank": ("DW501", START, 'import shutil\nshutil.copyfile("last.pt", "best.pt")'),
    "a save of the first rank of each node": (
        "DW502",
        START,
        'if int(os.environ["LOCAL_RANK"]) == 0:\n    torch.save(model.state_dict(), "last.pt")',
    ),
    "a load onto the GPU of rank 0": (
        "DW504",
        START,
        'state = torch.load("last.pt")\nmodel.load_state_dict(state["model"])',
    ),
    "a directory of every rank": (
        "DW412",
        START,
        'if not os.path.exists("out"):\n    os.makedirs("out")',
    ),
    "a directory that every rank deletes": ("DW412", START, 'import shutil\nshutil.rmtree("cache")'),
    "parts in a directory that rank 0 has just made": (
        "DW505",
        START,
        """
        if rank == 0:
            os.makedirs("out", exist_ok=True)
        torch.save(model.state_dict(), os.path.join("out", f"part-{rank}.pt"))
        """,
    ),
    "parts in a directory that rank 0 has just emptied": (
        "DW505",
        START,
        """
        import shutil
        if rank == 0:
            shutil.rmtree("out")
        os.makedirs(f"out/{rank}", exist_ok=True)
        with open(os.path.join("out", str(rank), "log.txt"), "w") as file:
            file.write("1")
        """,
    ),
    "a model that every rank uploads": ("DW412", START, 'model.push_to_hub("me/model")'),
    "a run of MLflow for each rank": ("DW412", START, "import mlflow\nmlflow.start_run()"),
    "a directory that every rank moves": ("DW412", START, 'import shutil\nshutil.move("out", "old")'),
    "an archive that every rank unpacks": (
        "DW412",
        START,
        'import shutil\nshutil.unpack_archive("data.zip", "data")',
    ),
    "numbers for the run of rank 0, from the first rank of each node": (
        "DW412",
        START,
        """
        import wandb
        if rank == 0:
            wandb.init(project="x")
        for step in range(3):
            if int(os.environ["LOCAL_RANK"]) == 0:
                wandb.log({"step": step})
        """,
    ),
    "the one load of a function that does not say where to": (
        "DW504",
        "",
        """
        def restore(model, optimizer, folder, device):
            model.load_state_dict(torch.load(folder + "/model.pt", map_location=device))
            state = torch.load(folder + "/optimizer.pt")
            optimizer.load_state_dict(state)
        """,
    ),
    "checkpoints that every rank finds and deletes": (
        "DW412",
        START,
        """
        import shutil
        old = sorted(each for each in os.listdir("out") if each.startswith("checkpoint"))
        for each in old[:-3]:
            shutil.rmtree(os.path.join("out", each))
        """,
    ),
    "a table of every rank": ("DW412", START, 'table.to_csv("out/results.csv")\nprint(rank)'),
    "a table of every epoch": (
        "DW412",
        START,
        'for epoch in range(3):\n    table.to_csv(f"out/results-{epoch}.csv")',
    ),
    "a text of every rank": ("DW412", START, 'from pathlib import Path\nPath("out/args.txt").write_text("1")'),
    "a data set that every rank downloads": (
        "DW412",
        START + "from torchvision import datasets\n",
        'data = datasets.MNIST("data", download=True)',
    ),
    "curves of every rank": (
        "DW412",
        START + "from torch.utils.tensorboard import SummaryWriter\n",
        'writer = SummaryWriter("runs")\nwriter.add_scalar("loss", 1.0, 0)',
    ),
    "a tensor on the CPU for NCCL": (
        "DW435",
        "",
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--backend", default="nccl")
        args = parser.parse_args()
        dist.init_process_group(args.backend)
        counts = torch.zeros(2)
        dist.all_reduce(counts)
        """,
    ),
    "a file to which every rank appends": (
        "DW412",
        START,
        'with open("log.txt", "a") as file:\n    file.write(str(rank))',
    ),
    "a file of all ranks but the first, in a loop that a user may end": (
        "DW412",
        START + LOADER,
        """
        folder = ""
        if int(os.environ["LOCAL_RANK"]) == 0:
            folder = os.path.join("out", os.environ["RUN"])
        try:
            for epoch in range(3):
                with open(os.path.join(folder, "metrics.csv"), mode="a") as file:
                    file.write(f"{epoch}\\n")
        except KeyboardInterrupt:
            pass
        """,
    ),
    "a file of the ranks that have no directory of their own": (
        "DW412",
        START,
        """
        import time
        folder = os.path.join("out", time.strftime("%H%M")) if rank == 0 else ""
        with open(os.path.join(folder, "metrics.csv"), "a") as file:
            file.write("1")
        """,
    ),
    "an experiment for each rank": ("DW412", START, 'import wandb\nwandb.init(project="x")'),
    "features of all of the data from every rank": (
        "DW202",
        START + LOADER,
        """
        loader = DataLoader(dataset, batch_size=8)
        for number, batch in enumerate(loader):
            torch.save(batch.mean(), f"features-{rank}-{number}.pt")
        """,
    ),
    "an attribute of a model that was taken out of a dictionary before it was wrapped": (
        "DW218",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def train(model, device):
            if isinstance(model, dict):
                model = model["model"]
            if device.type != "cpu":
                model = DDP(model)
            model(torch.ones(1)).sum().backward()
            if rank == 0:
                print(model.names)
        """,
    ),
    "a link that every rank makes": ("DW412", START, 'os.symlink("last.pt", "best.pt")'),
    "a file that every rank renames": ("DW412", START, 'os.rename("new.txt", "old.txt")'),
    "images of each rank in one file": (
        "DW412",
        START,
        "from torchvision.utils import save_image\nsave_image(torch.full((3, 8, 8), rank), 'sample.png')",
    ),
    "an experiment where only a missing library is passed over": (
        "DW412",
        START,
        'try:\n    import wandb\n    wandb.init(project="x")\nexcept ImportError:\n    wandb = None',
    ),
    "a rank where there is a global rank": (
        "DW105",
        "",
        """
        def work(global_rank, rank, world_size):
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
        """,
    ),
    "the local rank as the rank": (
        "DW105",
        "",
        'local_rank = int(os.environ["LOCAL_RANK"])\ndist.init_process_group("nccl", rank=local_rank, world_size=8)',
    ),
    "the end on one rank": (
        "DW409",
        START,
        "dist.barrier()\nif rank == 0:\n    dist.destroy_process_group()",
    ),
    "the end in a finally block": (
        "DW409",
        START,
        "try:\n    dist.barrier()\nfinally:\n    dist.destroy_process_group()",
    ),
    "no sampler": (
        "DW202",
        START + WRAP + LOADER,
        """
        loader = DataLoader(data, batch_size=4, shuffle=True)
        for epoch in range(3):
            for x in loader:
                model(x).sum().backward()
        """,
    ),
    "a sampler and shuffle": (
        "DW204",
        START + LOADER,
        "loader = DataLoader(data, sampler=DistributedSampler(data), shuffle=True)",
    ),
    "clipped before it is unscaled": (
        "DW221",
        START + WRAP,
        """
        scaler = torch.cuda.amp.GradScaler()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in data:
            scaler.scale(model(x).sum()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
    ),
    "a method of the model, on one rank": ("DW218", START + WRAP, "if rank == 0:\n    model.generate()"),
    "a method of a model that an option wraps, in one of two ways": (
        "DW218",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def wrapped(net):
            if os.environ.get("STATIC"):
                return DDP(net, static_graph=True)
            return DDP(net)
        net = torch.nn.Linear(2, 2)
        if torch.cuda.is_available() and os.environ.get("WRAP"):
            net = wrapped(net)
        print(net.in_features)
        """,
    ),
    "a sampler if there are ranks, and a loader of the module": (
        "DW203",
        START + WRAP + LOADER,
        """
        def train(epoch):
            for batch in loader:
                model(batch).sum().backward()
        several = int(os.environ.get("RANK", -1)) != -1
        sampler = DistributedSampler(data) if several else None
        loader = DataLoader(data, sampler=sampler)
        for epoch in range(3):
            train(epoch)
        """,
    ),
    "a sampler behind what checks the arguments": (
        "DW203",
        START + WRAP + LOADER,
        """
        def main(args):
            if (args.text is not None and args.folder is not None) or (args.text is None and args.folder is None):
                raise ValueError("one of --text and --folder")
            engine = find(args)
            loader = {"train": DataLoader(args.folder, sampler=DistributedSampler(args.folder))}
            for epoch in range(3):
                for batch in loader["train"]:
                    engine(batch).backward()
        main(parse())
        """,
    ),
    "a sampler behind a function that fails where a package lacks": (
        "DW203",
        START + WRAP + LOADER,
        """
        def is_installed(name):
            try:
                __import__(name)
            except ModuleNotFoundError:
                return False
            return True
        def choose():
            if not is_installed("fast_ranks"):
                raise RuntimeError("install fast_ranks")
        def main(data):
            choose()
            loader = DataLoader(data, sampler=DistributedSampler(data))
            for epoch in range(3):
                for batch in loader:
                    model(batch).sum().backward()
        main(read())
        """,
    ),
    "a save of each node that the next start reads": (
        "DW502",
        START,
        """
        local_rank = int(os.environ["LOCAL_RANK"])
        path = os.environ["SNAPSHOT"]
        if os.path.exists(path):
            model.load_state_dict(torch.load(path, map_location="cpu"))
        for epoch in range(3):
            if local_rank == 0 and epoch % 2 == 0:
                torch.save(model.state_dict(), path)
        """,
    ),
    "the end in a function that a finally block calls": (
        "DW409",
        START,
        """
        def leave():
            dist.destroy_process_group()
        try:
            dist.barrier()
        finally:
            leave()
        """,
    ),
    "a method of the model": ("DW218", START + WRAP, "print(model.in_features)"),
    "a file of every rank": ("DW412", START, 'with open("log.txt", "w") as log:\n    print(1, file=log)\nprint(rank)'),
    "tensors on one GPU": ("DW104", START + WRAP, 'x = torch.ones(2, 2).to("cuda:0")'),
    "a model on one GPU": (
        "DW104",
        START,
        'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\ntorch.nn.Linear(2, 2).to(device)',
    ),
    "a tensor before the GPU is selected": (
        "DW104",
        'torch.ones(1, device="cuda").cpu()\n' + START,
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
    ),
    "a GPU that no rank selects": ("DW102", START, "model = torch.nn.Linear(2, 2).cuda()"),
    "every round reduces": (
        "DW212",
        START + WRAP,
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number, x in enumerate(data):
            model(x).sum().backward()
            if (number + 1) % 4 == 0:
                optimizer.step()
        """,
    ),
    "one round too late": ("DW213", START, ACCUMULATED),
    "a batch for the GPUs of a node": (
        "DW220",
        START,
        'world_size = int(os.environ["WORLD_SIZE"])\nbatch_size = 64\nbatch_size //= torch.cuda.device_count()',
    ),
    "an optimizer before the wrap": (
        "DW302",
        START + FSDP,
        "optimizer = torch.optim.AdamW(model.parameters(), 0.1)\nmodel = FSDP(model)",
    ),
    "the norm of one shard": (
        "DW303",
        START + FSDP,
        "model = FSDP(model)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "activation checkpointing after the wrap": (
        "DW304",
        START + FSDP,
        "model = FSDP(model)\nmodel.gradient_checkpointing_enable()",
    ),
    "a state saved without DDP and loaded into it": (
        "DW219",
        START + WRAP,
        """
        model.load_state_dict(torch.load("newest.pt", map_location="cpu")["model"])
        if rank == 0:
            torch.save({"model": model.module.state_dict()}, "newest.pt")
        """,
    ),
    "a state saved with DDP and loaded before it": (
        "DW219",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel
        def resume(net, folder):
            saved = torch.load(f"{folder}/newest.pt", map_location="cpu")
            net.load_state_dict(saved["model"])
        def train(net, folder):
            resume(net, folder)
            if dist.get_world_size() > 1:
                net = DistributedDataParallel(net)
            if rank == 0:
                torch.save({"model": net.state_dict()}, os.path.join(folder, "newest.pt"))
        train(torch.nn.Linear(2, 2), "out")
        """,
    ),
    "a training step with the model inside of DDP": (
        "DW207",
        START + WRAP,
        """
        def step(net, x):
            return net(x).sum()
        net = model.module
        for x in data:
            loss = step(net, x)
            loss.backward()
        """,
    ),
    "a loss of a Trainer from a part of the unwrapped model": (
        "DW207",
        "from transformers import Trainer\n",
        """
        class Tuner(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                if self.lean:
                    loss = self.lean_loss(model, inputs)
                    return (loss, None) if return_outputs else loss
                return model(**inputs).loss
            def lean_loss(self, model, inputs):
                inner = self.accelerator.unwrap_model(model)
                if hasattr(inner, "get_decoder"):
                    part = inner.get_decoder()
                else:
                    part = getattr(inner, inner.base_model_prefix, inner)
                return self.head_loss(part(input_ids=inputs["input_ids"]).last_hidden_state)
        """,
    ),
    "the global rank as a GPU in one of several modes": (
        "DW101",
        "",
        """
        def wrap(model, dist_mode="ddp"):
            rank = dist.get_rank()
            if dist_mode == "dp":
                model = torch.nn.DataParallel(model)
            elif dist_mode == "ddp":
                model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
            else:
                raise ValueError(dist_mode)
            return model
        """,
    ),
    "texts of this rank's own length gathered": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        for batch in accelerator.prepare(loader):
            tokens = accelerator.gather(batch["input_ids"]).numel()
        """,
    ),
    "logits for each token gathered, from one of two results of a function": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        def run(model, batch):
            out = model(**pad_to_length(batch))
            all_logits = out.logits
            first, second = all_logits[:4, :-1, :], all_logits[4:, :-1, :]
            if model.sparse:
                return first, second, out.loss, out.penalty
            return first, second, out.loss
        for batch in accelerator.prepare(loader):
            first, second, loss = run(model, batch)[:3]
            mean = accelerator.gather(first).mean()
        """,
    ),
    "activation checkpointing after the wrap by an option": (
        "DW304",
        START + FSDP,
        """
        import sys
        class Net(torch.nn.Module):
            def gradient_checkpointing_enable(self):
                self.lean = True
        model = Net()
        if len(sys.argv) > 1:
            model = FSDP(model) if "shard" in sys.argv else WRAPPERS[sys.argv[1]](model)
        model.gradient_checkpointing_enable()
        """,
    ),
    "a load that ignores where to load to": (
        "DW504",
        "",
        """
        def read(path, map_location=None):
            with open(path, "rb") as file:
                return torch.load(file)
        """,
    ),
    "a load in a class that another script uses": (
        "DW504",
        "",
        """
        class Average:
            def __init__(self, model, path):
                self.model = model
                self.load(path)
            def load(self, path):
                saved = torch.load(path)
                renamed = {}
                for name, value in saved["model"].items():
                    renamed[name.removeprefix("module.")] = value
                self.model.load_state_dict(renamed)
        def mean(value):
            dist.all_reduce(value)
            return value / dist.get_world_size()
        """,
    ),
}

SILENT: dict[str, tuple[str, str, str]] = {
    "a step of wrapped models that a helper takes out for evaluation": (
        "DW207",
        PREPARED,
        """
        for batch in data:
            accelerator.backward(other(net(batch)).sum())
            if accelerator.sync_gradients:
                optimizer.step()
        net, other = inner(net, other)
        with torch.no_grad():
            print(other(net(data[0])).sum())
        """,
    ),
    "the state of DDP where FSDP is not chosen": (
        "DW402",
        START + EITHER_WRAPPER,
        """
        state = model.state_dict() if sharded else None
        if rank == 0:
            torch.save(state if sharded else model.state_dict(), "last.pt")
        """,
    ),
    "the state of DDP behind an operator": (
        "DW402",
        START + EITHER_WRAPPER,
        """
        def save(model, sharded):
            if rank == 0:
                torch.save(not sharded and model.state_dict(), "last.pt")
        save(model, sharded)
        """,
    ),
    "one rank writes": ("DW501", START, 'if rank == 0:\n    torch.save(model.state_dict(), "last.pt")'),
    "the others have left": (
        "DW501",
        START,
        """
        def write(model):
            if rank != 0:
                return
            torch.save(model.state_dict(), "last.pt")
        write(model)
        """,
    ),
    "the rank is in the path": ("DW501", START, 'torch.save(x, f"part-{rank}.pt")\ntorch.save(x, "p{}".format(rank))'),
    "the rank is in the directory": (
        "DW501",
        START,
        'from pathlib import Path\nout = Path("run") / str(rank)\ntorch.save(x, out / "last.pt")',
    ),
    "the guard is in the function that saves": (
        "DW501",
        START,
        """
        def is_main_process():
            return dist.get_rank() == 0
        def save_on_master(*args):
            if is_main_process():
                torch.save(*args)
        save_on_master(model.state_dict(), "last.pt")
        """,
    ),
    "a decorator lets one rank through": (
        "DW501",
        START,
        """
        @rank_zero_only
        def write(model):
            torch.save(model.state_dict(), "last.pt")
        write(model)
        """,
    ),
    "a decorator that is not known": (
        "DW501",
        START,
        """
        from tools import once
        @once
        def write(model):
            torch.save(model.state_dict(), "last.pt")
        write(model)
        """,
    ),
    "a condition on the rank that is not known": (
        "DW501",
        START,
        'from tools import chosen\nif chosen(rank):\n    torch.save(model.state_dict(), "last.pt")',
    ),
    "a condition whose words are of ranks": (
        "DW501",
        START,
        'from tools import config\nif config.saving_process:\n    torch.save(model.state_dict(), "last.pt")',
    ),
    "a rank in a group": (
        "DW501",
        START,
        'if mpu.get_data_parallel_rank() == 0:\n    torch.save(model.state_dict(), "last.pt")',
    ),
    "the number that mp.spawn gives": (
        "DW501",
        "",
        """
        import torch.multiprocessing as mp
        def work(gpu, size):
            dist.init_process_group("nccl", rank=gpu, world_size=size)
            if gpu == 0:
                torch.save({}, "last.pt")
        mp.spawn(work, args=(2,), nprocs=2)
        """,
    ),
    "into memory": ("DW501", START, "import io\nbuffer = io.BytesIO()\ntorch.save(x, buffer)"),
    "into a file of this process": (
        "DW501",
        START,
        "import tempfile\nwith tempfile.NamedTemporaryFile() as file:\n    torch.save(x, file)",
    ),
    "a script without other ranks": ("DW501", "rank = 0\n", 'torch.save(model.state_dict(), "last.pt")'),
    "saved by the library": (
        "DW501",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        'model.save_pretrained("out", is_main_process=accelerator.is_main_process, save_function=accelerator.save)',
    ),
    "a global rank": ("DW502", START, 'if rank == 0:\n    torch.save(model.state_dict(), "last.pt")'),
    "loaded to the CPU": (
        "DW504",
        START,
        'model.load_state_dict(torch.load("b", map_location="cpu"))\nmodel.load_state_dict(torch.load("a", "cpu"))',
    ),
    "data, no checkpoint": ("DW504", START, 'data = torch.load("data.pt")\nprint(data)'),
    "loaded under gloo": (
        "DW504",
        'dist.init_process_group("gloo")\n',
        'model.load_state_dict(torch.load("last.pt"))',
    ),
    "a directory that may exist": ("DW412", START, 'os.makedirs("out", exist_ok=True)'),
    "an error is passed over": (
        "DW412",
        START,
        'try:\n    os.makedirs("out")\nexcept FileExistsError:\n    pass',
    ),
    "a directory of this rank": ("DW412", START, 'os.makedirs(os.path.join("out", str(rank)))'),
    "one experiment": ("DW412", START, 'import wandb\nif rank == 0:\n    wandb.init(project="x")'),
    "experiments in a group": ("DW412", START, 'import wandb\nwandb.init(project="x", group="all")'),
    "features of the rank's part of the data": (
        "DW202",
        START + LOADER,
        """
        loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))
        for number, batch in enumerate(loader):
            torch.save(batch.mean(), f"features-{rank}-{number}.pt")
        """,
    ),
    "features of the batches of this rank": (
        "DW202",
        START + LOADER,
        """
        for number, batch in enumerate(DataLoader(dataset, batch_size=8)):
            if number % dist.get_world_size() == rank:
                torch.save(batch.mean(), f"features-{rank}-{number}.pt")
        """,
    ),
    "features that every rank reads": (
        "DW202",
        START + LOADER,
        """
        for number, batch in enumerate(DataLoader(dataset, batch_size=8)):
            print(batch, open(f"features-{rank}-{number}.txt").read())
        """,
    ),
    "a link of this rank": ("DW412", START, 'os.symlink(f"last-{rank}.pt", "best.pt" if rank == 0 else f"{rank}.pt")'),
    "a file of this rank that is renamed": ("DW412", START, 'os.replace(f"new-{rank}.txt", "all.txt")'),
    "an experiment where any error is passed over": (
        "DW412",
        START,
        'import wandb\ntry:\n    wandb.init(project="x")\nexcept Exception:\n    wandb = None',
    ),
    "the global rank where there is another rank": (
        "DW105",
        "",
        """
        def work(global_rank, rank, world_size):
            rank = global_rank
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
        """,
    ),
    "numbers of mp.spawn": (
        "DW105",
        "",
        """
        import torch.multiprocessing as mp
        def work(local_rank):
            dist.init_process_group("nccl", rank=local_rank, world_size=2)
        mp.spawn(work, nprocs=2)
        """,
    ),
    "all ranks end": ("DW409", START, "dist.barrier()\ndist.destroy_process_group()"),
    "both sides end": (
        "DW409",
        START,
        "if rank == 0:\n    print(1)\n    dist.destroy_process_group()\nelse:\n    dist.destroy_process_group()",
    ),
    "a loader that is prepared": (
        "DW202",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n" + WRAP + LOADER,
        """
        loader = accelerator.prepare(DataLoader(data, batch_size=4, shuffle=True))
        for x in loader:
            model(x).sum().backward()
        """,
    ),
    "a dataset that shares out": (
        "DW202",
        START + WRAP + LOADER,
        """
        class Part(torch.utils.data.Dataset):
            def __init__(self):
                self.items = list(range(100))[dist.get_rank() :: dist.get_world_size()]
        loader = DataLoader(Part(), batch_size=4, shuffle=True)
        for x in loader:
            model(x).sum().backward()
        """,
    ),
    "an order by the rank": (
        "DW202",
        START + WRAP + LOADER,
        """
        torch.manual_seed(7 + rank)
        loader = DataLoader(data, batch_size=4, shuffle=True)
        for x in loader:
            model(x).sum().backward()
        """,
    ),
    "a loader of an evaluation": (
        "DW202",
        START + WRAP + LOADER,
        "loader = DataLoader(data, batch_size=4, shuffle=True)\nfor x in loader:\n    print(model(x))",
    ),
    "shuffle without a sampler": (
        "DW204",
        START + LOADER,
        "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler, shuffle=(sampler is None))",
    ),
    "a sampler for one epoch": (
        "DW203",
        START + WRAP + LOADER,
        """
        loader = DataLoader(data, sampler=DistributedSampler(data))
        for epoch in range(1):
            for x in loader:
                model(x).sum().backward()
        """,
    ),
    "a sampler under a condition": (
        "DW204",
        START + LOADER,
        "sampler = DistributedSampler(data) if args.shard else None\n"
        "loader = DataLoader(data, sampler=sampler, shuffle=True)",
    ),
    "unscaled before it is clipped": (
        "DW221",
        START + WRAP,
        """
        scaler = torch.cuda.amp.GradScaler()
        for x in data:
            scaler.scale(model(x).sum()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
        """,
    ),
    "clipped where nothing is scaled": (
        "DW221",
        START + WRAP,
        """
        scaler = torch.cuda.amp.GradScaler()
        for x in data:
            if args.half:
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
            else:
                model(x).sum().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        """,
    ),
    "a method of a model that one of several objects has wrapped": (
        "DW218",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        class Task:
            def __init__(self, net):
                self.net = net
            def wrap(self):
                self.net = DDP(self.net)
            def show(self):
                print(self.net.in_features)
        trained, shown = Task(torch.nn.Linear(2, 2)), Task(torch.nn.Linear(2, 2))
        trained.wrap()
        shown.show()
        """,
    ),
    "a method where the model is not wrapped": (
        "DW218",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(wraps, cuda):
            net = torch.nn.Linear(2, 2)
            if wraps and cuda:
                net = DDP(net)
            if not wraps:
                print(net.in_features)
        """,
    ),
    "an attribute of DDP": ("DW218", START + WRAP, "model.train()\nprint(model.module.in_features, model._buckets)"),
    "an attribute that is set": ("DW218", START + WRAP, "model.epoch = 3\nprint(model.epoch)"),
    "an attribute that is asked for": (
        "DW218",
        START + WRAP,
        'if hasattr(model, "in_features"):\n    print(model.in_features)',
    ),
    "an attribute of a model that may not be wrapped": (
        "DW218",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = torch.nn.Linear(2, 2)
        if args.wrap:
            model = DDP(model)
        if not args.wrap:
            print(model.in_features)
        """,
    ),
    "a file of this rank": ("DW412", START, 'open(f"log-{rank}.txt", "w")\nopen(os.devnull, "w")'),
    "a file of one rank": ("DW412", START, 'if rank == 0:\n    open("log.txt", "w")'),
    "a data set that rank 0 has downloaded": (
        "DW412",
        START + "from torchvision import datasets\n",
        """
        if rank == 0:
            datasets.MNIST("data", download=True)
        dist.barrier()
        data = datasets.MNIST("data", download=True)
        """,
    ),
    "a data set that is there": (
        "DW412",
        START + "from torchvision import datasets\n",
        'data = datasets.MNIST("data", download=False)',
    ),
    "curves of one rank": (
        "DW412",
        START + "from torch.utils.tensorboard import SummaryWriter\n",
        'writer = SummaryWriter("runs")\nif rank == 0:\n    writer.add_scalar("loss", 1.0, 0)',
    ),
    "a tensor on the CPU for gloo": ("DW435", "", 'dist.init_process_group("gloo")\ndist.all_reduce(torch.zeros(2))'),
    "a tensor for either backend": ("DW435", "", "dist.init_process_group()\ndist.all_reduce(torch.zeros(2))"),
    "a tensor that is moved": (
        "DW435",
        "",
        'dist.init_process_group("nccl")\nvalue = torch.zeros(2).cuda()\ndist.all_reduce(value)',
    ),
    "a tensor of another tensor": (
        "DW435",
        "",
        'dist.init_process_group("nccl")\nvalue = torch.tensor(loss)\ndist.all_reduce(value)',
    ),
    "a file that is read": ("DW412", START, 'open("log.txt").read()'),
    "parts in a directory that all ranks make": (
        "DW505",
        START,
        """
        if rank == 0:
            os.makedirs("out", exist_ok=True)
        os.makedirs("out", exist_ok=True)
        torch.save(model.state_dict(), os.path.join("out", f"part-{rank}.pt"))
        """,
    ),
    "parts in a directory, after a barrier": (
        "DW505",
        START,
        """
        if rank == 0:
            os.makedirs("out", exist_ok=True)
        dist.barrier()
        torch.save(model.state_dict(), os.path.join("out", f"part-{rank}.pt"))
        """,
    ),
    "a file in a directory of the same rank": (
        "DW505",
        START,
        """
        if rank == 0:
            os.makedirs("out", exist_ok=True)
            torch.save(model.state_dict(), os.path.join("out", "model.pt"))
        """,
    ),
    "a model that rank 0 uploads": ("DW412", START, 'if rank == 0:\n    model.push_to_hub("me/model")'),
    "numbers for the run of rank 0": (
        "DW412",
        START,
        """
        import wandb
        if rank == 0:
            wandb.init(project="x")
        for step in range(3):
            if rank == 0:
                wandb.log({"step": step})
        """,
    ),
    "the load of a schedule, which has no tensors": (
        "DW504",
        "",
        """
        def restore(model, scheduler, folder, device):
            model.load_state_dict(torch.load(folder + "/model.pt", map_location=device))
            scheduler.load_state_dict(torch.load(folder + "/scheduler.pt"))
        """,
    ),
    "an attribute that is set on DDP": (
        "DW218",
        START + WRAP,
        """
        class Net(torch.nn.Module):
            pass
        def train(device, options):
            net = Net().to(device)
            if rank != -1:
                net = DDP(net)
            net.weights = [1.0]
            for epoch in range(3):
                if options.weighted:
                    print(net.weights)
        """,
    ),
    "a file named by a variable of some launcher": (
        "DW412",
        START,
        """
        number = "0"
        for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
            if name in os.environ:
                number = os.environ[name]
        with open(f"log-{number}.txt", "w") as file:
            file.write("1")
        """,
    ),
    "a picture for each sample": (
        "DW412",
        START,
        """
        for sample in samples:
            with open(os.path.join("out", sample["name"]), "wb") as file:
                file.write(sample["picture"])
            with open(make_path(sample), "wb") as file:
                file.write(sample["picture"])
        """,
    ),
    "a table of this rank": ("DW412", START, 'table.to_csv(f"out/results-{rank}.csv")'),
    "a table as a text": ("DW412", START, "print(table.to_csv())"),
    "a device that is replaced": (
        "DW104",
        START,
        """
        device = torch.device("cuda:0")
        if "LOCAL_RANK" in os.environ:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.nn.Linear(2, 2).to(device)
        """,
    ),
    "one GPU is visible": (
        "DW104",
        'os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]\n' + START,
        'torch.ones(1).to("cuda:0")',
    ),
    "GPU 0 for one rank": ("DW104", START + WRAP, 'if rank == 0:\n    torch.ones(1).to("cuda:0")'),
    "GPU 0 without a process group": ("DW104", "", 'torch.ones(1).to("cuda:0")'),
    "GPU 0 under gloo": ("DW104", 'dist.init_process_group("gloo")\n', 'torch.ones(1).to("cuda:0")'),
    "a selected GPU": (
        "DW102",
        START,
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\nmodel = torch.nn.Linear(2, 2).cuda()',
    ),
    "a GPU by its number": ("DW102", START, "torch.nn.Linear(2, 2).cuda()\ntorch.ones(1).to(f'cuda:{rank}')"),
    "a GPU that another file may select": (
        "DW102",
        "from setup_gpu import prepare\nprepare()\n" + START,
        "torch.nn.Linear(2, 2).cuda()",
    ),
    "no GPU": ("DW102", START, "torch.nn.Linear(2, 2)"),
    "no_sync in the other rounds": ("DW212", START, ACCUMULATED),
    "a step in each round": (
        "DW212",
        START + WRAP,
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number, x in enumerate(data):
            model(x).sum().backward()
            optimizer.step()
            if number % 10 == 0:
                print(number)
        """,
    ),
    "regularisation in some rounds": (
        "DW212",
        START + WRAP,
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number, x in enumerate(data):
            model(x).sum().backward()
            optimizer.step()
            if number % 16 == 0:
                model(x).square().sum().backward()
                optimizer.step()
        """,
    ),
    "the condition of the step": ("DW213", START, ACCUMULATED.replace("if number %", "if (number + 1) %")),
    "a loader whose generator each rank seeds": (
        "DW202",
        START + WRAP + LOADER,
        """
        generator = torch.Generator()
        generator.manual_seed(3 + rank)
        loader = DataLoader(data, shuffle=True, generator=generator)
        for epoch in range(3):
            for x in loader:
                model(x).sum().backward()
        """,
    ),
    "a generator function that gives each rank every n-th batch": (
        "DW202",
        START + WRAP + LOADER,
        """
        loader = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3))
        def batches(loader):
            for number, batch in enumerate(loader):
                if number % dist.get_world_size() == rank:
                    yield batch
        for x in batches(loader):
            model(x).sum().backward()
        """,
    ),
    "a part of each batch for each rank": (
        "DW202",
        START + WRAP + LOADER,
        """
        loader = DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3))
        for x in loader:
            model(x.chunk(dist.get_world_size())[rank]).sum().backward()
        """,
    ),
    "a method of the inner model that computes nothing of the loss": (
        "DW207",
        START,
        """
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)
            def penalty(self, x):
                return x.mean()
            @torch.no_grad()
            def embed(self, x):
                return self.layer(x)
            def forward(self, x):
                return self.layer(x)
        model = DistributedDataParallel(Encoder())
        for x in data:
            (model(x) - model.module.embed(x)).mean().backward()
            print(model.module.penalty(x))
        """,
    ),
    "states of another path": (
        "DW219",
        START,
        """
        from pathlib import Path
        from torch.nn.parallel import DistributedDataParallel
        net = torch.nn.Linear(2, 2)
        net.load_state_dict(torch.load(Path(args.pretrained), map_location="cpu"), strict=False)
        net = DistributedDataParallel(net)
        if rank == 0:
            torch.save(net.state_dict(), Path(args.checkpoint))
        """,
    ),
    "synchronised and stepped also at the end of the data": (
        "DW213",
        START,
        ACCUMULATED.replace(
            "number % accumulated != 0", "(number + 1) % accumulated != 0 and number != len(data) - 1"
        ).replace("% accumulated == 0", "% accumulated == 0 or number == len(data) - 1"),
    ),
    "stepped also where a flag asks for it": (
        "DW213",
        START,
        ACCUMULATED.replace("number % accumulated", "(number + 1) % accumulated").replace(
            "% accumulated == 0", "% accumulated == 0 or flush"
        ),
    ),
    "GPUs that one process starts": (
        "DW220",
        START,
        'import torch.multiprocessing as mp\nprint(os.environ["RANK"])\n'
        "batch_size = args.batch_size // torch.cuda.device_count()\nmp.spawn(work, nprocs=2)",
    ),
    "a number of GPUs for the log": (
        "DW220",
        START,
        'print(os.environ["WORLD_SIZE"])\nprint(rank // torch.cuda.device_count())',
    ),
    "the original parameters": (
        "DW302",
        START + FSDP,
        "optimizer = torch.optim.AdamW(model.parameters(), 0.1)\nmodel = FSDP(model, use_orig_params=True)",
    ),
    "an optimizer after the wrap": (
        "DW302",
        START + FSDP,
        "model = FSDP(model)\noptimizer = torch.optim.AdamW(model.parameters(), 0.1)",
    ),
    "an optimizer of DDP": (
        "DW302",
        START + WRAP,
        "optimizer = torch.optim.AdamW(model.parameters(), 0.1)",
    ),
    "clipped by FSDP": ("DW303", START + FSDP, "model = FSDP(model)\nmodel.clip_grad_norm_(1.0)"),
    "clipped under FSDP2": (
        "DW303",
        START,
        """
        from torch.distributed.fsdp import fully_shard
        model = torch.nn.Linear(2, 2)
        fully_shard(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
    ),
    "shards that are not": (
        "DW303",
        START + FSDP,
        "model = FSDP(model, sharding_strategy=choose())\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "activation checkpointing before the wrap": (
        "DW304",
        START + FSDP,
        "model.gradient_checkpointing_enable()\nmodel = FSDP(model)",
    ),
    "a file for each rank": ("DW412", START, 'with open(f"log{rank}.txt", "a") as file:\n    file.write("x")'),
    "a file of the first rank of each node": (
        "DW412",
        START,
        """
        if int(os.environ["LOCAL_RANK"]) == 0:
            with open(os.path.join(os.environ["NODE_DISK"], "args.txt"), "a") as file:
                file.write("x")
        """,
    ),
    "a file that all ranks read": ("DW412", START, 'with open("args.txt", "r") as file:\n    print(file.read())'),
    "a file that may not be written": (
        "DW412",
        START,
        """
        try:
            with open("args.txt", "a") as file:
                file.write("x")
        except OSError:
            pass
        """,
    ),
    "a saver that only the first rank has": (
        "DW501",
        START,
        """
        class Saver:
            def save(self, model):
                torch.save(model.state_dict(), "last.pt")
        saver = None
        if rank == 0:
            saver = Saver()
        if saver is not None:
            saver.save(torch.nn.Linear(2, 2))
        """,
    ),
    "a state saved and loaded with DDP": (
        "DW219",
        START + WRAP,
        """
        model.load_state_dict(torch.load("newest.pt", map_location="cpu")["model"])
        if rank == 0:
            torch.save({"model": model.state_dict()}, "newest.pt")
        """,
    ),
    "a state saved and loaded without DDP": (
        "DW219",
        START + WRAP,
        """
        saved = torch.load("newest.pt", map_location="cpu")
        if hasattr(model, "module"):
            model.module.load_state_dict(saved["model"])
        else:
            model.load_state_dict(saved["model"])
        if rank == 0:
            inner = model.module if hasattr(model, "module") else model
            torch.save({"model": inner.state_dict()}, "newest.pt")
        """,
    ),
    "the state of another file loaded before DDP": (
        "DW219",
        START,
        """
        from torch.nn.parallel import DistributedDataParallel
        net = torch.nn.Linear(2, 2)
        net.load_state_dict(torch.load("backbone.pt", map_location="cpu"))
        net = DistributedDataParallel(net)
        if rank == 0:
            torch.save(net.state_dict(), "newest.pt")
        """,
    ),
    "the model inside of DDP for a teacher, an evaluation and a penalty": (
        "DW207",
        START + WRAP,
        """
        @torch.no_grad()
        def teach(x):
            return model.module(x)
        def evaluate(x):
            with torch.no_grad():
                return model.module(x).sum()
        for x in data:
            (model(x) - teach(x) + model.module(x).mean()).sum().backward()
            print(evaluate(x))
        """,
    ),
    "a model that Accelerate wraps once more": (
        "DW207",
        START + "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        net = torch.nn.Linear(2, 2)
        wrapped = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        wrapped, optimizer = accelerator.prepare(net, optimizer)
        for x in data:
            accelerator.backward(wrapped(x).sum())
            optimizer.step()
        """,
    ),
    "gradients that the script reduces itself": (
        "DW207",
        START + WRAP,
        """
        for x in data:
            model.module(x).sum().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        """,
    ),
    "a Trainer that unwraps the model to generate": (
        "DW207",
        "from transformers import Trainer\n",
        """
        class Tuner(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                inner = self.accelerator.unwrap_model(model)
                with torch.no_grad():
                    first = inner(**inputs).logits
                return (model(**inputs).logits - first - inner.generate(**inputs)).sum()
        """,
    ),
    "texts gathered behind padding, and numbers made of them": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        for batch in accelerator.prepare(loader):
            texts = accelerator.gather(accelerator.pad_across_processes(batch["input_ids"], dim=1))
            tokens = accelerator.gather(batch["attention_mask"].sum())
            classes = accelerator.gather_for_metrics(batch["labels"])
        """,
    ),
    "one row of logits for each sample gathered": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        for batch in accelerator.prepare(loader):
            logits = model(**batch).logits
            classes = accelerator.gather(logits[:, :5].argmax(-1))
            rows = accelerator.gather(logits)
        """,
    ),
    "numbers made of the logits for each token gathered": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        for batch in accelerator.prepare(loader):
            logits = model(**batch).logits[:, :-1, :]
            mean = accelerator.gather(logits.mean())
        """,
    ),
    "a save of each node in its own directory": (
        "DW502",
        START,
        """
        def write(args):
            if int(os.environ["LOCAL_RANK"]) == 0:
                torch.save(model.state_dict(), os.path.join(args.local_output_dir, "last.pt"))
        write(read_options())
        """,
    ),
    "a file with a name that no other process makes": (
        "DW501",
        START,
        """
        from toolbox.names import uuid4
        torch.save(model.state_dict(), f"out/batch-{uuid4()}.pt")
        """,
    ),
    "a save by an object that may be of another class": (
        "DW501",
        START + WRAP,
        """
        class Plain:
            def write(self, state):
                torch.save(state, "last.pt")
        class Saver:
            def __init__(self, plugin):
                if plugin is not None and plugin.saves():
                    self.writer = plugin.writer()
                else:
                    self.writer = Plain()
            def save(self, state):
                self.writer.write(state)
        saver = Saver(make_plugin())
        saver.save(model.state_dict())
        """,
    ),
    "texts of one length gathered": (
        "DW407",
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        """
        def encode(texts):
            return tokenizer(texts, padding="max_length", truncation=True)
        for batch in accelerator.prepare(DataLoader(texts, collate_fn=encode)):
            tokens = accelerator.gather(batch["input_ids"])
        """,
    ),
    "activation checkpointing where nothing is wrapped": (
        "DW304",
        START + FSDP,
        """
        import sys
        shard = len(sys.argv) > 1
        if shard:
            model = FSDP(model)
        if not shard:
            model.gradient_checkpointing_enable()
        """,
    ),
    "a load that passes on where to load to": (
        "DW504",
        "",
        """
        def read(path, map_location=None):
            with open(path, "rb") as file:
                return torch.load(file, map_location=map_location)
        """,
    ),
    "a load in a function of a script for one process": (
        "DW504",
        "",
        """
        def read(model, path):
            model.load_state_dict(torch.load(path)["model"])
        """,
    ),
    "data loaded next to a checkpoint": (
        "DW504",
        START,
        """
        def read(model):
            saved = torch.load("last.pt", map_location="cpu")
            model.load_state_dict(saved["model"])
        read(torch.nn.Linear(2, 2))
        features = torch.load("features.pt")
        """,
    ),
}


def code(start: str, snippet: str) -> str:
    return start + textwrap.dedent(snippet)


@pytest.mark.parametrize("name", FOUND)
def test_what_breaks_is_found(name: str) -> None:
    rule, start, snippet = FOUND[name]
    assert [each.rule for each in found(code(start, snippet), rule)] == [rule]


@pytest.mark.parametrize("name", SILENT)
def test_what_looks_like_it_is_not(name: str) -> None:
    rule, start, snippet = SILENT[name]
    assert lines(code(start, snippet), rule) == []


REPAIRED = {
    "the one load of a function that does not say where to": '"/optimizer.pt", map_location=device)',
    "a file of every rank": """
if not dist.is_initialized() or dist.get_rank() == 0:
    with open("log.txt", "w") as log:
        print(1, file=log)
if dist.is_initialized():
    dist.barrier()
""",
    "a table of every rank": "if not dist.is_initialized() or dist.get_rank() == 0:\n    table.to_csv(",
    "a save on every rank": "if not dist.is_initialized() or dist.get_rank() == 0:\n    torch.save(",
    "a load onto the GPU of rank 0": 'torch.load("last.pt", map_location="cpu")',
    "a state saved without DDP and loaded into it": "model.module.load_state_dict(torch.load(",
    "logits for each token gathered, from one of two results of a function": (
        "accelerator.gather(accelerator.pad_across_processes(first, dim=1)).mean()"
    ),
    "texts of this rank's own length gathered": 'gather(accelerator.pad_across_processes(batch["input_ids"], dim=1))',
    "a load that ignores where to load to": "torch.load(file, map_location=map_location)",
    "a directory of every rank": 'os.makedirs("out", exist_ok=True)',
    "a sampler and shuffle": "shuffle=False",
    "clipped before it is unscaled": "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip_grad_norm_",
    "the norm of one shard": "model.clip_grad_norm_(1.0)",
    "a method of the model": "print(model.module.in_features)",
    "tensors on one GPU": "torch.ones(2, 2).to(f\"cuda:{os.environ.get('LOCAL_RANK', 0)}\")",
    "a GPU that no rank selects": 'set_device(int(os.environ.get("LOCAL_RANK", 0)))\ndist.init_process_group(',
    "one round too late": "    if not ((number + 1) % accumulated == 0):\n        with model.no_sync():",
    "a batch for the GPUs of a node": "batch_size //= dist.get_world_size()",
    "no sampler": """
sampler = DistributedSampler(data) if dist.is_initialized() else None
loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None)
for epoch in range(3):
    if sampler is not None:
        sampler.set_epoch(epoch)
""",
    "an optimizer before the wrap": "\nmodel = FSDP(model)\noptimizer = torch.optim.AdamW(model.parameters(), 0.1)",
}


CLIPPED = """
scaler = torch.amp.GradScaler("cuda")
optimizer, other = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(heads.parameters(), 0.1)
for x in data:
    scaler.scale(model(x).sum()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
"""
END_OF_ONE = "dist.barrier()\nif {test}:\n    dist.destroy_process_group()\n"


@pytest.mark.parametrize(
    ("rule", "snippet", "after"),
    [
        ("DW221", CLIPPED, "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip"),
        ("DW409", END_OF_ONE.format(test="rank == 0"), "\nif dist.is_initialized():\n    dist.destroy_process_group()"),
    ],
    ids=["a scaler for a device", "the end on one rank"],
)
def test_more_that_patches_repair(rule: str, snippet: str, after: str) -> None:
    assert after in repaired(code(START + WRAP, snippet), rule)


@pytest.mark.parametrize(
    ("rule", "snippet", "why"),
    [
        ("DW221", CLIPPED + "    scaler.step(other)\n", "before the gradients are clipped"),
        ("DW409", END_OF_ONE.format(test="rank == 0") + "    print(1)\n", "behind what only some of them do"),
        ("DW501", 'if step % 2:\n    torch.save({}, "a.pt")\ntorch.load("a.pt")', "wait for that"),
    ],
    ids=["two optimizers", "an end among other work", "read next, and not always written"],
)
def test_what_is_left_to_people(rule: str, snippet: str, why: str) -> None:
    assert why in refused(code(START + WRAP, snippet), rule)


@pytest.mark.parametrize("name", REPAIRED)
def test_the_patch_leaves_no_finding(name: str) -> None:
    rule, start, snippet = FOUND[name]
    assert REPAIRED[name] in repaired(code(start, snippet), rule)


ORDER = {
    "another name": "optimizer = torch.optim.AdamW(model.parameters(), 0.1)\nwrapped = FSDP(model)",
    "used in between": """
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model = FSDP(model)
        """,
    "under a condition": """
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        if dist.is_initialized():
            model = FSDP(model)
        """,
}


@pytest.mark.parametrize("name", ORDER)
def test_an_optimizer_that_cannot_simply_move(name: str) -> None:
    assert "behind the wrap" in refused(code(START + FSDP, ORDER[name]), "DW302")


def test_the_rank_of_the_process_group_comes_from_the_environment() -> None:
    start = 'local_rank = int(os.environ["LOCAL_RANK"])\nworld_size = int(os.environ["WORLD_SIZE"])\n'
    group = 'dist.init_process_group("gloo", rank=local_rank, world_size=world_size)\n'
    assert 'rank=int(os.environ["RANK"]), world_size' in repaired(start + group, "DW105")
    assert "or neither" in refused(start + group.replace("=world_size", "=2"), "DW105")


def test_the_rank_of_the_process_group_is_found_by_its_place() -> None:
    start = 'local_rank = int(os.environ["LOCAL_RANK"])\nworld_size = int(os.environ["WORLD_SIZE"])\n'
    group = 'dist.init_process_group("gloo", None, None, world_size, local_rank)\n'
    assert 'world_size, int(os.environ["RANK"]))' in repaired(start + group, "DW105")
    assert lines(start + group.replace("local_rank", "world_size - 1"), "DW105") == []
    assert lines('dist.init_process_group("gloo", None, None, 4)\n', "DW117") == [
        'dist.init_process_group("gloo", None, None, 4)'
    ]
    assert lines('dist.init_process_group("gloo", None, None, -1, 4)\n', "DW117") == []


def test_a_call_for_all_ranks_is_named_where_another_call_is_for_one() -> None:
    snippet = START + textwrap.dedent(
        """
        def write(path):
            torch.save({}, path)
        if rank == 0:
            write("first.pt")
        write("last.pt")
        """
    )
    assert lines(snippet, "DW501") == ['write("last.pt")']


def test_what_is_saved_is_built_on_every_rank_under_fsdp() -> None:
    (finding,) = found(START + FSDP + 'model = FSDP(model)\ntorch.save(model.state_dict(), "last.pt")', "DW501")
    assert finding.fix
    assert not finding.fix.edits
    assert finding.fix.why_unsafe


def test_a_script_that_several_rules_read_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddpwizard.app.review.rule_context import Script
    from ddpwizard.app.training_script.model import evaluation

    runs: list[int] = []
    run_script = evaluation.Evaluation.run_script
    monkeypatch.setattr(
        evaluation.Evaluation, "run_script", lambda self, module: (runs.append(1), run_script(self, module))[1]
    )
    reviewed = Script(script(START + 'torch.save({}, "last.pt")'), "train.py")
    assert reviewed.divergences.complete
    assert reviewed.runs
    assert len(runs) == 1


SAVES_FOR_A_LOADER = """
model = DDP(torch.nn.Linear(2, 2))
def start(folder, load):
    path = os.path.join(folder, "first.pt")
    torch.save(model.state_dict(), path)
    {}(path)
start("out", print)
"""


@pytest.mark.parametrize(("used", "waits"), [("load", True), ("print", False)])
def test_the_others_wait_for_a_file_that_is_handed_on(used: str, waits: bool) -> None:
    after = repaired(START + WRAP.replace("model =", "first =") + SAVES_FOR_A_LOADER.format(used), "DW501")
    assert ("dist.barrier()" in after) == waits
    assert "dist.get_rank() == 0" in after
