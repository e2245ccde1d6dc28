"""The patches for ranks that part: what is changed, and what is left to a person."""

import textwrap

import pytest
from helpers.review_snippets import refused, repaired

START = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
rank = dist.get_rank()
world = dist.get_world_size()
loader = DataLoader(data, sampler=DistributedSampler(data))
"""
MODEL = "model = DDP(torch.nn.Linear(2, 2))\n"

PATCHED: dict[str, tuple[str, str, str]] = {
    "a break by data of one rank": (
        "DW405",
        """
        for x in loader:
            dist.barrier()
            if x.max().item() > 3:
                break
        """,
        """
        for x in loader:
            dist.barrier()
            stop = torch.tensor(float(x.max().item() > 3))
            if dist.is_initialized():
                dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            if stop.item():
                break
        """,
    ),
    "a batch that one rank skips": (
        "DW406",
        """
        for x in loader:
            if torch.isnan(x.sum()):
                continue
            dist.all_reduce(x)
        """,
        """
        for x in loader:
            agreed = torch.tensor(float(bool(torch.isnan(x.sum()))))
            if dist.is_initialized():
                dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
            if agreed.item():
                continue
            dist.all_reduce(x)
        """,
    ),
    "a value that is shown before the program ends": (
        "DW406",
        """
        for x in loader:
            if x.sum().item() > 3:
                print(x)
                exit()
            dist.all_reduce(x)
        """,
        """
        for x in loader:
            agreed = torch.tensor(float(x.sum().item() > 3))
            if dist.is_initialized():
                dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
            if agreed.item():
                print(x)
                exit()
            dist.all_reduce(x)
        """,
    ),
    "a value that the branch needs": (
        "DW406",
        """
        def sizes(boxes):
            if len(boxes) > 2:
                dist.all_reduce(torch.tensor(float(len(boxes))))
        for x in loader:
            sizes(x.nonzero())
        """,
        """
        def sizes(boxes):
            agreed = torch.tensor(float(len(boxes) > 2))
            if dist.is_initialized():
                dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
            if agreed.item():
                dist.all_reduce(torch.tensor(float(len(boxes))))
        for x in loader:
            sizes(x.nonzero())
        """,
    ),
    "an error that is caught": (
        "DW406",
        """
        def step(x):
            if x.sum().item() > 3:
                raise ValueError("too large")
            dist.all_reduce(x)
        for x in loader:
            try:
                step(x)
            except ValueError:
                print("skipped")
        """,
        """
        def step(x):
            agreed = torch.tensor(float(x.sum().item() > 3))
            if dist.is_initialized():
                dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
            if agreed.item():
                raise ValueError("too large")
            dist.all_reduce(x)
        for x in loader:
            try:
                step(x)
            except ValueError:
                print("skipped")
        """,
    ),
    "a break of one rank": (
        "DW404",
        """
        for number in range(5):
            if rank == 1 and number == 3:
                break
            dist.barrier()
        """,
        """
        for number in range(5):
            stop = torch.tensor(float(bool(rank == 1 and number == 3)))
            if dist.is_initialized():
                dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            if stop.item():
                break
            dist.barrier()
        """,
    ),
    "ranks that leave": (
        "DW404",
        """
        def save(model, path):
            if rank != 0 and not args.every_rank:
                return
            # the state
            state = model.state_dict()
            torch.save(state, path)
            dist.barrier()
            print("saved")
        save(model, "last.pt")
        """,
        """
        def save(model, path):
            # the state
            if not (rank != 0 and not args.every_rank):
                state = model.state_dict()
                torch.save(state, path)
            dist.barrier()
            if not (rank != 0 and not args.every_rank):
                print("saved")
        save(model, "last.pt")
        """,
    ),
    "ranks that end": (
        "DW404",
        """
        if rank == 1:
            sys.exit(0)
        dist.barrier()
        """,
        """
        dist.barrier()
        """,
    ),
    "a sum before a barrier of all": (
        "DW401",
        """
        if rank == 0:
            dist.all_reduce(data)
            print(data)
        dist.barrier()
        """,
        """
        dist.all_reduce(data)
        if rank == 0:
            print(data)
        dist.barrier()
        """,
    ),
    "a state of Accelerate": (
        "DW403",
        """
        from accelerate import Accelerator
        accelerator = Accelerator()
        for epoch in range(3):
            if accelerator.is_main_process:
                path = f"state-{epoch}"
                accelerator.save_state(path)
                print("saved")
        """,
        """
        from accelerate import Accelerator
        accelerator = Accelerator()
        for epoch in range(3):
            path = f"state-{epoch}"
            accelerator.save_state(path)
            if accelerator.is_main_process:
                print("saved")
        """,
    ),
    "an evaluation in a comprehension": (
        "DW402",
        MODEL
        + """
def evaluate(net):
    with torch.no_grad():
        return [net(x) for x in data]
if rank == 0:
    evaluate(model)
dist.barrier()
""",
        MODEL
        + """
def evaluate(net):
    with torch.no_grad():
        return [net(x) for x in data]
if rank == 0:
    evaluate(model.module)
dist.barrier()
""",
    ),
    "a list that gets empty": (
        "DW217",
        """
        todo = [n for n in range(9) if n % world == rank]
        while todo:
            # one after the other
            todo.pop()
            dist.barrier()
        """,
        """
        todo = [n for n in range(9) if n % world == rank]
        while True:
            go_on = torch.tensor(float(bool(todo)))
            if dist.is_initialized():
                dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
            if not go_on.item():
                break
            # one after the other
            todo.pop()
            dist.barrier()
        """,
    ),
    "a part of the data": (
        "DW217",
        """
        for number, x in enumerate(data[rank::world]):
            dist.all_reduce(x)
        """,
        """
        own_part = data[rank::world]
        rounds = torch.tensor(len(own_part))
        if dist.is_initialized():
            dist.all_reduce(rounds, op=dist.ReduceOp.MIN)
        for number, x in enumerate(islice(own_part, int(rounds.item()))):
            dist.all_reduce(x)
        """,
    ),
    "rounds by the rank": (
        "DW217",
        """
        for number in range(rank + 1):
            dist.barrier()
        """,
        """
        rounds = torch.tensor(rank + 1)
        if dist.is_initialized():
            dist.all_reduce(rounds, op=dist.ReduceOp.MIN)
        for number in range(int(rounds.item())):
            dist.barrier()
        """,
    ),
    "rounds from a number on": (
        "DW217",
        """
        last = rank + 5
        for number in range(2, last):
            dist.barrier()
        """,
        """
        last = rank + 5
        rounds = torch.tensor(last - 2)
        if dist.is_initialized():
            dist.all_reduce(rounds, op=dist.ReduceOp.MIN)
        for number in range(2, 2 + int(rounds.item())):
            dist.barrier()
        """,
    ),
    "an evaluation on one rank": (
        "DW402",
        MODEL
        + """
def evaluate(net, x):
    with torch.no_grad():
        return net(x)
if rank == 0:
    print(evaluate(model, torch.ones(2)))
""",
        MODEL
        + """
def evaluate(net, x):
    with torch.no_grad():
        return net(x)
if rank == 0:
    print(evaluate(model.module, torch.ones(2)))
""",
    ),
    "a model that may be wrapped": (
        "DW402",
        """
        model = torch.nn.BatchNorm1d(2)
        if world > 1:
            model = DDP(model)
        if rank == 0:
            with torch.no_grad():
                print(model(torch.ones(2, 2)))
        """,
        """
        model = torch.nn.BatchNorm1d(2)
        if world > 1:
            model = DDP(model)
        if rank == 0:
            with torch.no_grad():
                print(getattr(model, "module", model)(torch.ones(2, 2)))
        """,
    ),
    "a model of a class": (
        "DW402",
        """
        class Trainer:
            def __init__(self):
                self.model = DDP(torch.nn.Linear(2, 2))
            def sample(self):
                if rank == 0:
                    with torch.no_grad():
                        self.model(torch.ones(2))
        Trainer().sample()
        """,
        """
        class Trainer:
            def __init__(self):
                self.model = DDP(torch.nn.Linear(2, 2))
            def sample(self):
                if rank == 0:
                    with torch.no_grad():
                        self.model.module(torch.ones(2))
        Trainer().sample()
        """,
    ),
}


@pytest.mark.parametrize("name", PATCHED)
def test_the_ranks_stay_together_after_the_patch(name: str) -> None:
    rule, before, after = PATCHED[name]
    patched = repaired(START + textwrap.dedent(before), rule)
    assert patched.endswith(textwrap.dedent(after))


REFUSED: dict[str, tuple[str, str, str]] = {
    "an elif": (
        "DW406",
        """
        for x in loader:
            if world == 3:
                dist.barrier()
            elif x.sum().item() > 3:
                dist.all_reduce(x)
        """,
        "elif",
    ),
    "a loop that ranks leave apart": (
        "DW406",
        MODEL
        + """
with model.join():
    for x in loader:
        if x.max().item() > 3:
            continue
        dist.barrier()
""",
        "join",
    ),
    "a collective of what only some ranks have": (
        "DW404",
        """
        def total(value):
            if value is None:
                return
            dist.all_reduce(value)
        total(data if rank == 0 else None)
        """,
        "a value for it",
    ),
    "work that the collective needs": (
        "DW404",
        """
        def total(x):
            if rank != 0:
                return
            y = torch.load("weights.pt").save()
            dist.all_reduce(y)
        total(data)
        """,
        "compute it on every rank",
    ),
    "a result": (
        "DW404",
        """
        def total(x):
            if rank != 0:
                return None
            dist.all_reduce(x)
            return x
        total(data)
        """,
        "returns a value",
    ),
    "a number of rounds that is not known": (
        "DW217",
        """
        for number in iter(range(rank)):
            dist.barrier()
        """,
        "not known before the loop",
    ),
    "a training step of one rank": (
        "DW402",
        MODEL
        + """
if rank == 0:
    model(torch.ones(2)).sum().backward()
""",
        "gradients",
    ),
    "a function that unwraps": (
        "DW402",
        MODEL
        + """
def evaluate(net, x):
    with torch.no_grad():
        net.module.eval()
        return net(x)
if rank == 0:
    print(evaluate(model, torch.ones(2)))
""",
        "`.module` itself",
    ),
    "different calls": (
        "DW401",
        """
        if rank == 0:
            dist.barrier()
            dist.all_reduce(data)
        else:
            dist.all_reduce(data)
            dist.barrier()
        """,
        "one order",
    ),
    "another library": (
        "DW405",
        """
        import horovod.torch as hvd
        for x in loader:
            hvd.allreduce(x)
            if x.max().item() > 3:
                break
        """,
        "another library",
    ),
    "a device that is not known": (
        "DW405",
        """
        dist.init_process_group("nccl")
        for x in loader:
            dist.barrier()
            if x.max().item() > 3:
                break
        """,
        "device",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_patch_can_decide_is_named(name: str) -> None:
    rule, code, reason = REFUSED[name]
    assert reason in refused(START + textwrap.dedent(code), rule)


def test_a_patch_reduces_where_the_process_group_can() -> None:
    loop = "for x in loader:\n    dist.barrier()\n    if x.max().item() > 3:\n        break\n"
    nccl = START.replace("gloo", "nccl")
    assert 'device="cuda")' in repaired(f"{nccl}torch.cuda.set_device(0)\n{loop}", "DW405")
    assert ", device=device)" in repaired(f"{nccl}device = choose()\nprint(device)\n{loop}", "DW405")
    unknown = START.replace('"gloo"', "args.backend")
    given = 'device="cuda" if torch.cuda.is_available() else "cpu"'
    assert given in repaired(f"{unknown}torch.cuda.set_device(0)\n{loop}", "DW405")
