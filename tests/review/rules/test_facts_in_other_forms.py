"""Forms of causes that rules miss or take for others when a fact is lost, each with programs that are right."""

import pytest
from helpers.review_snippets import found

LABELS = """
import torch, os
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel as DDP

def clip_loss(img, txt):
    r = dist.get_rank()
    parts = list(all_gather(txt))
BODY
    logits = img @ keys.t()
    return F.cross_entropy(logits, torch.arange(img.shape[0]))

def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    for _ in range(10):
        x = torch.randn(8, 4)
        loss = clip_loss(model(x), model(x + 1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()

main()
"""
BAD_LABELS = [
    pytest.param(
        """\
    keys = torch.cat(parts)
""",
        id="plain",
    ),
    pytest.param(
        """\
    parts[r] = txt
    keys = torch.cat(parts)
""",
        id="own put back",
    ),
    pytest.param(
        """\
    keys = torch.cat([*parts])
""",
        id="starred",
    ),
]
GOOD_LABELS = [
    pytest.param(
        """\
    parts[0], parts[r] = parts[r], parts[0]
    keys = torch.cat(parts)
""",
        id="swap",
    ),
    pytest.param(
        """\
    keys = torch.cat([txt] + [p for i, p in enumerate(parts) if i != r])
""",
        id="own first",
    ),
    pytest.param(
        """\
    keys = torch.cat([txt, *parts[:r], *parts[r + 1:]])
""",
        id="own first starred",
    ),
    pytest.param(
        """\
    keys = torch.cat(parts[r:] + parts[:r])
""",
        id="rotated",
    ),
    pytest.param(
        """\
    parts.insert(0, parts.pop(r))
    keys = torch.cat(parts)
""",
        id="pop",
    ),
    pytest.param(
        """\
    keys = torch.roll(torch.cat(parts), -r * len(txt), 0)
""",
        id="roll",
    ),
]


@pytest.mark.parametrize("body", BAD_LABELS)
def test_labels_that_are_wrong(body: str) -> None:
    assert found(LABELS.replace("BODY\n", body), "DW236")


@pytest.mark.parametrize("body", GOOD_LABELS)
def test_labels_that_are_right(body: str) -> None:
    assert found(LABELS.replace("BODY\n", body), "DW236") == []


RATES = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.7)
    for epoch in range(4):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
BODY
    dist.destroy_process_group()

main()
"""
BAD_RATES = [
    pytest.param(
        """\
        if rank == 0:
            sched.step()
""",
        id="plain",
    ),
    pytest.param(
        """\
        if rank == 0:
            sched.step()
        t = torch.tensor(opt.param_groups[0]["lr"])
        dist.broadcast(t, 0)
""",
        id="lr logged by broadcast",
    ),
]
GOOD_RATES = [
    pytest.param(
        """\
        if rank == 0:
            sched.step()
        t = torch.tensor(opt.param_groups[0]["lr"])
        dist.broadcast(t, 0)
        for g in opt.param_groups:
            g["lr"] = t.item()
""",
        id="tensor",
    ),
    pytest.param(
        """\
        if rank == 0:
            sched.step()
        box = [opt.param_groups[0]["lr"]]
        dist.broadcast_object_list(box, src=0)
        opt.param_groups[0]["lr"] = box[0]
""",
        id="object",
    ),
    pytest.param(
        """\
        if rank == 0:
            sched.step()
        box = [sched.state_dict() if rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        sched.load_state_dict(box[0])
""",
        id="state",
    ),
    pytest.param(
        """\
        if rank == 0:
            sched.step()
        box = [opt.state_dict()]
        dist.broadcast_object_list(box, src=0)
        opt.load_state_dict(box[0])
""",
        id="opt state",
    ),
]


@pytest.mark.parametrize("body", BAD_RATES)
def test_rates_that_are_wrong(body: str) -> None:
    assert found(RATES.replace("BODY\n", body), "DW229")


@pytest.mark.parametrize("body", GOOD_RATES)
def test_rates_that_are_right(body: str) -> None:
    assert found(RATES.replace("BODY\n", body), "DW229") == []


SKIPPED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def sample(gen):
    n = int(torch.randint(0, 4, (1,), generator=gen))
    return torch.randn(4, 12, generator=gen), torch.rand(n, 4, generator=gen)

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(12, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for step in range(40):
BODY
        loss = model(images).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()

main()
"""
BAD_SKIPPED = [
    pytest.param(
        """\
        images, boxes = sample(gen)
        if boxes.numel() == 0:
            continue
""",
        id="numel",
    ),
    pytest.param(
        """\
        images = torch.randn(4, 12, generator=gen)
        n = int(torch.randint(0, 4, (1,), generator=gen))
        if n == 0:
            continue
""",
        id="inline n",
    ),
    pytest.param(
        """\
        images = torch.randn(4, 12, generator=gen)
        n = int(torch.randint(0, 4, (1,), generator=gen))
        boxes = torch.rand(n, 4, generator=gen)
        if boxes.numel() == 0:
            continue
""",
        id="inline rand",
    ),
    pytest.param(
        """\
        images, boxes = sample(gen)
        if boxes.shape[0] == 0:
            continue
""",
        id="shape",
    ),
    pytest.param(
        """\
        images, boxes = sample(gen)
        if len(boxes) == 0:
            continue
""",
        id="len",
    ),
    pytest.param(
        """\
        images, boxes = sample(gen)
        if not boxes.size(0):
            continue
""",
        id="size",
    ),
    pytest.param(
        """\
        images = torch.randn(4, 12, generator=gen)
        keep = images[images[:, 0] > 0]
        if keep.numel() == 0:
            continue
""",
        id="mask",
    ),
    pytest.param(
        """\
        images, boxes = sample(gen)
        if boxes.sum() == 0:
            continue
""",
        id="sum",
    ),
]
GOOD_SKIPPED = [
    pytest.param(
        """\
        images, boxes = sample(gen)
        boxes = torch.rand(3, 4, generator=gen)
        if boxes.numel() == 0:
            continue
""",
        id="fixed",
    ),
    pytest.param(
        """\
        images, boxes = sample(gen)
        if len(images) < 2:
            continue
""",
        id="rows",
    ),
]


@pytest.mark.parametrize("body", BAD_SKIPPED)
def test_skipped_that_are_wrong(body: str) -> None:
    assert found(SKIPPED.replace("BODY\n", body), "DW406")


@pytest.mark.parametrize("body", GOOD_SKIPPED)
def test_skipped_that_are_right(body: str) -> None:
    assert found(SKIPPED.replace("BODY\n", body), "DW406") == []


ROOTS = """
import torch
import torch.distributed as dist
from torch import nn

def build(world, size):
    groups = []
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        groups.append((ranks, dist.new_group(ranks)))
    return groups

def mine(groups, rank):
    for ranks, group in groups:
        if rank in ranks:
            return group
    raise RuntimeError("x")

def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    group = mine(build(world, 2), rank)
    t = torch.ones(4)
BODY
    dist.destroy_process_group()

main()
"""
BAD_ROOTS = [
    pytest.param(
        """\
    dist.broadcast(t, src=0, group=group)
""",
        id="0",
    ),
    pytest.param(
        """\
    dist.broadcast(t, src=dist.get_rank(group), group=group)
""",
        id="rank in group",
    ),
    pytest.param(
        """\
    dist.broadcast(t, src=dist.get_rank(group) * 0, group=group)
""",
        id="zero",
    ),
    pytest.param(
        """\
    dist.broadcast(t, src=dist.get_rank(group) % 2, group=group)
""",
        id="mod",
    ),
    pytest.param(
        """\
    r = dist.get_group_rank(group, rank)
    dist.broadcast(t, src=r - r, group=group)
""",
        id="minus",
    ),
    pytest.param(
        """\
    for p in [t]:
        dist.broadcast(p, 0, group)
""",
        id="loop",
    ),
    pytest.param(
        """\
    groups = build(world, 2)
    g = next(g for ranks, g in groups if rank in ranks)
    dist.broadcast(t, 0, group=g)
""",
        id="next",
    ),
    pytest.param(
        """\
    g = [g for ranks, g in build(world, 2) if rank in ranks][0]
    dist.broadcast(t, 0, group=g)
""",
        id="list comp",
    ),
    pytest.param(
        """\
    groups = [dist.new_group([2 * i, 2 * i + 1]) for i in range(world // 2)]
    dist.broadcast(t, 0, group=groups[rank // 2])
""",
        id="index",
    ),
]
GOOD_ROOTS = [
    pytest.param(
        """\
    dist.broadcast(t, src=dist.get_global_rank(group, 0), group=group)
""",
        id="plain",
    ),
    pytest.param(
        """\
    dist.broadcast(t, src=rank - dist.get_rank(group), group=group)
""",
        id="2",
    ),
    pytest.param(
        """\
    dist.broadcast(t, src=rank // 2 * 2, group=group)
""",
        id="3",
    ),
    pytest.param(
        """\
    dist.broadcast(t, group_src=0, group=group)
""",
        id="4",
    ),
    pytest.param(
        """\
    g = next(g for ranks, g in build(world, 2) if rank in ranks)
    if rank < 2:
        dist.broadcast(t, 0, group=g)
""",
        id="guarded by rank",
    ),
    pytest.param(
        """\
    g = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(t, 0, group=g)
""",
        id="first group",
    ),
]


@pytest.mark.parametrize("body", BAD_ROOTS)
def test_roots_that_are_wrong(body: str) -> None:
    assert found(ROOTS.replace("BODY\n", body), "DW416")


@pytest.mark.parametrize("body", GOOD_ROOTS)
def test_roots_that_are_right(body: str) -> None:
    assert found(ROOTS.replace("BODY\n", body), "DW416") == []


HANDLES = """
import torch
import torch.distributed as dist
from torch import nn
BODY

def main():
    dist.init_process_group("gloo")
    net = nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), lr=.1)
    for _ in range(10):
        net(torch.randn(2, 4)).sum().backward()
        reduce(net)
        opt.step()
    dist.destroy_process_group()

main()
"""
BAD_HANDLES = [
    pytest.param(
        """\
def reduce(net):
    handles = []
    for p in net.parameters():
        handles.append(dist.all_reduce(p.grad, async_op=True))
    for p in net.parameters():
        p.grad /= dist.get_world_size()
""",
        id="list",
    ),
    pytest.param(
        """\
def reduce(net):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    for p in net.parameters():
        p.grad /= dist.get_world_size()
""",
        id="comp",
    ),
    pytest.param(
        """\
def reduce(net):
    for p in net.parameters():
        work = dist.all_reduce(p.grad, async_op=True)
        p.grad /= dist.get_world_size()
""",
        id="name",
    ),
    pytest.param(
        """\
def reduce(net):
    handles = []
    for p in net.parameters():
        h = dist.all_reduce(p.grad, async_op=True)
        handles.append((p, h))
    handles.clear()
""",
        id="tuple",
    ),
    pytest.param(
        """\
def reduce(net):
    handles = {}
    for n, p in net.named_parameters():
        handles[n] = dist.all_reduce(p.grad, async_op=True)
""",
        id="dict",
    ),
]
GOOD_HANDLES = [
    pytest.param(
        """\
def reduce(net):
    handles = []
    for p in net.parameters():
        handles.append(dist.all_reduce(p.grad, async_op=True))
    for h in handles:
        h.wait()
""",
        id="list",
    ),
    pytest.param(
        """\
from helpers import finish
def reduce(net):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    finish(handles)
""",
        id="return",
    ),
    pytest.param(
        """\
def begin(net):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    return handles
from helpers import finish
def reduce(net):
    finish(begin(net))
""",
        id="returned",
    ),
    pytest.param(
        """\
def reduce(net):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    list(map(dist.Work.wait, handles))
""",
        id="map",
    ),
    pytest.param(
        """\
def reduce(net):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    torch.cuda.synchronize()
""",
        id="sync",
    ),
]


@pytest.mark.parametrize("body", BAD_HANDLES)
def test_handles_that_are_wrong(body: str) -> None:
    assert found(HANDLES.replace("BODY\n", body), "DW415")


@pytest.mark.parametrize("body", GOOD_HANDLES)
def test_handles_that_are_right(body: str) -> None:
    assert found(HANDLES.replace("BODY\n", body), "DW415") == []


AVERAGES = """
import copy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel

class EMA:
    def __init__(self, model, decay=0.8):
        self.shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 0.2)

    def __call__(self, x):
        return self.shadow(x)

@torch.no_grad()
def update_ema(avg, model):
    for s, p in zip(avg.parameters(), model.parameters()):
        s.mul_(0.9).add_(p, alpha=0.1)

@torch.no_grad()
def evaluate(model, rank, world):
    x = torch.randn(200, 6)
    out = model(x[rank::world]).sum()
    dist.all_reduce(out)
    return out.item()

def export(model, path):
    torch.save(model.state_dict(), path)

def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = DDP(nn.Linear(6, 2))
    ema = EMA(net.module)
    avg = copy.deepcopy(net.module)
    swa = AveragedModel(net.module)
    opt = torch.optim.SGD(net.parameters(), lr=0.3)
    for step in range(60):
        loss = net(torch.randn(32, 6)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
BODY
    dist.destroy_process_group()

main()
"""
BAD_AVERAGES = [
    pytest.param(
        """\
        if rank == 0:
            ema.update(net.module)
    acc = evaluate(ema.shadow, rank, world)
""",
        id="class passed",
    ),
    pytest.param(
        """\
        if rank == 0:
            ema.update(net.module)
    acc = ema.shadow(torch.randn(2, 6))
""",
        id="class called",
    ),
    pytest.param(
        """\
        if rank == 0:
            update_ema(avg, net.module)
    acc = evaluate(avg, rank, world)
""",
        id="function",
    ),
    pytest.param(
        """\
        if rank == 0:
            swa.update_parameters(net.module)
    acc = evaluate(swa, rank, world)
""",
        id="swa",
    ),
    pytest.param(
        """\
        if rank == 0:
            swa.update_parameters(net.module)
    acc = swa(torch.randn(2, 6))
""",
        id="swa called",
    ),
    pytest.param(
        """\
        if rank == 0 and step > 10:
            swa.update_parameters(net.module)
        if step % 10 == 0:
            acc = evaluate(swa, rank, world)
""",
        id="swa epochs",
    ),
    pytest.param(
        """\
        if rank == 0:
            for s, p in zip(avg.parameters(), net.parameters()):
                s.data.lerp_(p.data, 0.1)
    acc = evaluate(avg, rank, world)
""",
        id="inline",
    ),
    pytest.param(
        """\
        if rank == 0:
            ema.update(net.module)
    acc = ema(torch.randn(2, 6))
""",
        id="object call",
    ),
]
GOOD_AVERAGES = [
    pytest.param(
        """\
        ema.update(net.module)
        swa.update_parameters(net.module)
        update_ema(avg, net.module)
    acc = evaluate(ema.shadow, rank, world) + evaluate(swa, rank, world) + evaluate(avg, rank, world)
""",
        id="all",
    ),
    pytest.param(
        """\
        if rank == 0:
            ema.update(net.module)
            swa.update_parameters(net.module)
    if rank == 0:
        acc = swa(torch.randn(2, 6)) + ema.shadow(torch.randn(2, 6))
        export(ema.shadow, "x.pt")
""",
        id="rank 0 both",
    ),
    pytest.param(
        """\
        if step % 10 == 0:
            swa.update_parameters(net.module)
    acc = evaluate(swa, rank, world)
""",
        id="every step modulo",
    ),
    pytest.param(
        """\
        if rank == 0:
            swa.update_parameters(net.module)
    if rank == 0:
        export(swa, "x.pt")
""",
        id="saved by rank 0",
    ),
    pytest.param(
        """\
        if rank == 0:
            swa.update_parameters(net.module)
    for p in swa.parameters():
        dist.broadcast(p.data, 0)
    acc = evaluate(swa, rank, world)
""",
        id="broadcast",
    ),
    pytest.param(
        """\
        if rank == 0:
            ema.update(net.module)
    acc = evaluate(net.module, rank, world)
""",
        id="evaluates net",
    ),
    pytest.param(
        """\
        if rank == 0:
            swa.update_parameters(net.module)
    target = swa if rank == 0 else net.module
    acc = evaluate(target, rank, world)
""",
        id="none on others",
    ),
]


@pytest.mark.parametrize("body", BAD_AVERAGES)
def test_averages_that_are_wrong(body: str) -> None:
    assert found(AVERAGES.replace("BODY\n", body), "DW256")


@pytest.mark.parametrize("body", GOOD_AVERAGES)
def test_averages_that_are_right(body: str) -> None:
    assert found(AVERAGES.replace("BODY\n", body), "DW256") == []


STARTS = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
def worker(rank, world):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world)
    t = torch.ones(1)
    dist.all_reduce(t)
    dist.destroy_process_group()
def join(rank, world):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank + 1, world_size=world)
    dist.destroy_process_group()
if __name__ == "__main__":
BODY
"""
BAD_STARTS = [
    pytest.param(
        """\
    mp.spawn(worker, args=(4,), nprocs=2)
""",
        id="const",
    ),
    pytest.param(
        """\
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n,), nprocs=n - 1)
""",
        id="minus",
    ),
    pytest.param(
        """\
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n + 1,), nprocs=n, join=True)
""",
        id="plus",
    ),
]
GOOD_STARTS = [
    pytest.param(
        """\
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n,), nprocs=n)
""",
        id="plain",
    ),
    pytest.param(
        """\
    n = torch.cuda.device_count()
    mp.spawn(join, args=(n + 1,), nprocs=n)
""",
        id="offset",
    ),
    pytest.param(
        """\
    ctx = mp.spawn(join, args=(3,), nprocs=2, join=False)
    worker(0, 3)
    ctx.join()
""",
        id="parent joins",
    ),
    pytest.param(
        """\
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(2,), nprocs=n)
""",
        id="unknown",
    ),
]


@pytest.mark.parametrize("body", BAD_STARTS)
def test_starts_that_are_wrong(body: str) -> None:
    assert found(STARTS.replace("BODY\n", body), "DW117")


@pytest.mark.parametrize("body", GOOD_STARTS)
def test_starts_that_are_right(body: str) -> None:
    assert found(STARTS.replace("BODY\n", body), "DW117") == []


GRADIENTS = """
import torch
import torch.distributed as dist
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 1)
        self.b = nn.Linear(4, 1)
    def forward(self, x):
        if x.mean() > 0:
            return self.a(x)
        return self.b(x)
BODY
def main():
    dist.init_process_group("gloo")
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=.1)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(2, 4, generator=g)
        opt.zero_grad()
        net(x).pow(2).sum().backward()
        reduce(net)
        opt.step()
    dist.destroy_process_group()
main()
"""
BAD_GRADIENTS = [
    pytest.param(
        """\
def reduce(net):
    params = [p for p in net.parameters() if p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
""",
        id="comp of params",
    ),
    pytest.param(
        """\
def reduce(net):
    flat = torch.cat([p.grad.view(-1) for p in net.parameters() if p.requires_grad and p.grad is not None])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
""",
        id="comp of grads",
    ),
    pytest.param(
        """\
def reduce(net):
    for p in (p for p in net.parameters() if p.grad is not None):
        dist.all_reduce(p.grad)
""",
        id="gen loop",
    ),
    pytest.param(
        """\
def reduce(net):
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
""",
        id="if",
    ),
    pytest.param(
        """\
def reduce(net):
    grads = []
    for p in net.parameters():
        if p.grad is not None:
            grads.append(p.grad.flatten())
    dist.all_reduce(torch.cat(grads))
""",
        id="append",
    ),
]
GOOD_GRADIENTS = [
    pytest.param(
        """\
def reduce(net):
    for p in net.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    flat = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    dist.all_reduce(flat)
""",
        id="zeros",
    ),
    pytest.param(
        """\
def reduce(net):
    flat = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in net.parameters()])
    dist.all_reduce(flat)
""",
        id="else zeros",
    ),
    pytest.param(
        """\
def reduce(net):
    for p in net.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
    norm = sum(p.grad.norm() for p in net.parameters() if p.grad is not None)
""",
        id="norm",
    ),
    pytest.param(
        """\
def reduce(net):
    norm = torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).sum()
    dist.all_reduce(norm)
""",
        id="norm elsewhere",
    ),
]


@pytest.mark.parametrize("body", BAD_GRADIENTS)
def test_gradients_that_are_wrong(body: str) -> None:
    assert found(GRADIENTS.replace("BODY\n", body), "DW447")


@pytest.mark.parametrize("body", GOOD_GRADIENTS)
def test_gradients_that_are_right(body: str) -> None:
    assert found(GRADIENTS.replace("BODY\n", body), "DW447") == []


GENERATORS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
def main():
    dist.init_process_group("gloo")
    G = DDP(nn.Linear(4, 2))
    D = DDP(nn.Linear(2, 1))
    og = torch.optim.Adam(G.parameters(), lr=2e-3)
    od = torch.optim.Adam(D.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(dist.get_rank())
    for it in range(25):
        z = torch.randn(16, 4, generator=gen)
        with torch.no_grad():
            fake = G(z)
        dl = D(fake).mean()
        od.zero_grad()
        dl.backward()
        od.step()
BODY
        og.zero_grad()
        loss.backward()
        og.step()
    dist.destroy_process_group()
main()
"""
BAD_GENERATORS = [
    pytest.param(
        """\
        loss = -D(G.module(z)).mean()
""",
        id="plain",
    ),
    pytest.param(
        """\
        fake = G.module(z)
        out = D(fake)
        loss = nn.functional.softplus(-out).mean()
""",
        id="named",
    ),
    pytest.param(
        """\
        inner = G.module
        loss = -D(inner(z)).mean()
""",
        id="inner",
    ),
]
GOOD_GENERATORS = [
    pytest.param(
        """\
        loss = -D.module(G(z)).mean()
""",
        id="plain",
    ),
    pytest.param(
        """\
        loss = -D(G(z)).mean()
""",
        id="both wrapped",
    ),
    pytest.param(
        """\
        loss = -D(G(z)).mean() + G.module(z).pow(2).mean()
""",
        id="extra penalty",
    ),
    pytest.param(
        """\
        fake = G.module(z).detach()
        loss = D(fake).mean() + G(z).mean()
""",
        id="own detached",
    ),
]


@pytest.mark.parametrize("body", BAD_GENERATORS)
def test_generators_that_are_wrong(body: str) -> None:
    assert found(GENERATORS.replace("BODY\n", body), "DW207")


@pytest.mark.parametrize("body", GOOD_GENERATORS)
def test_generators_that_are_right(body: str) -> None:
    assert found(GENERATORS.replace("BODY\n", body), "DW207") == []


CACHED = """
import functools
from functools import lru_cache
import torch
import torch.distributed as dist
BODY

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    for step in range(10):
        x = torch.randn(int(torch.randint(1, 5, (1,), generator=g)), 4, generator=g)
        use(x, step)
    dist.destroy_process_group()
main()
"""
BAD_CACHED = [
    pytest.param(
        """\
@lru_cache(maxsize=None)
def total(n):
    t = torch.tensor([float(n)])
    dist.all_reduce(t)
    return t.item()
def use(x, step):
    return total(len(x))
""",
        id="len",
    ),
    pytest.param(
        """\
def reduce(t):
    dist.all_reduce(t)
    return t
@functools.cache
def total(n):
    return reduce(torch.tensor([float(n)])).item()
def use(x, step):
    return total(x.shape[0])
""",
        id="cache inner",
    ),
    pytest.param(
        """\
class Stats:
    @functools.lru_cache
    def total(self, n):
        t = torch.tensor([float(n)])
        dist.all_reduce(t)
        return t.item()
stats = Stats()
def use(x, step):
    return stats.total(x.numel())
""",
        id="method",
    ),
    pytest.param(
        """\
@lru_cache
def total(n):
    t = torch.tensor([float(n)])
    dist.all_reduce(t)
    return t.item()
def use(x, step):
    return total(step % (dist.get_rank() + 2))
""",
        id="rank key",
    ),
]
GOOD_CACHED = [
    pytest.param(
        """\
@lru_cache
def total(n):
    t = torch.tensor([float(n)])
    dist.all_reduce(t)
    return t.item()
def use(x, step):
    return total(step)
""",
        id="step",
    ),
    pytest.param(
        """\
@lru_cache
def total(n):
    return n * 2
def use(x, step):
    t = torch.tensor([float(total(len(x)))])
    dist.all_reduce(t)
""",
        id="no collective",
    ),
    pytest.param(
        """\
@lru_cache
def group():
    return dist.new_group()
def use(x, step):
    t = torch.ones(1)
    dist.all_reduce(t, group=group())
""",
        id="no argument",
    ),
    pytest.param(
        """\
@functools.cache
def mean(name):
    t = torch.ones(1)
    dist.all_reduce(t)
    return t
def use(x, step):
    return mean("loss")
""",
        id="constant",
    ),
]


@pytest.mark.parametrize("body", BAD_CACHED)
def test_cached_that_are_wrong(body: str) -> None:
    assert found(CACHED.replace("BODY\n", body), "DW488")


@pytest.mark.parametrize("body", GOOD_CACHED)
def test_cached_that_are_right(body: str) -> None:
    assert found(CACHED.replace("BODY\n", body), "DW488") == []


NORMALISED = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def evaluate(net):
    net.eval()
    with torch.no_grad():
        print(net(torch.ones(8, 4)).sum())
    net.train()

dist.init_process_group("gloo")
net = DDP(nn.Sequential(nn.Linear(4, 4), LAYER(4)), OPTION)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    EVALUATE
"""


@pytest.mark.parametrize(
    ("layer", "option", "evaluate", "count"),
    [
        ("nn.BatchNorm1d", "broadcast_buffers=False", "evaluate(net)", 1),
        ("nn.BatchNorm1d", "broadcast_buffers=True", "evaluate(net)", 0),
        ("nn.LayerNorm", "broadcast_buffers=False", "evaluate(net)", 0),
        ("nn.SyncBatchNorm", "broadcast_buffers=False", "evaluate(net)", 0),
        ("nn.BatchNorm1d", "broadcast_buffers=False", "print(opt)", 0),
    ],
)
def test_statistics_that_ddp_does_not_send(layer: str, option: str, evaluate: str, count: int) -> None:
    code = NORMALISED.replace("LAYER", layer).replace("OPTION", option).replace("EVALUATE", evaluate)
    assert len(found(code, "DW239")) == count


WINDOW = """
import contextlib
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
accum = int(os.environ["ACCUM"])
net = DDP(nn.Linear(4, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for update in range(10):
    opt.zero_grad()
    for micro in range(ROUNDS):
        with contextlib.nullcontext() if TEST else net.no_sync():
            net(torch.randn(8, 4)).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("rounds", "test", "count"),
    [
        ("accum", "(micro + 1) % accum == 0", 0),
        ("2 * accum", "(micro + 1) % accum == 0", 0),
        ("8", "(micro + 1) % 4 == 0", 0),
        ("8", "(micro + 1) % 5 == 0", 1),
        ("accum", "(micro + 1) % (accum + 1) == 0", 1),
        ("accum", "micro % accum == 0", 1),
    ],
)
def test_rounds_of_one_window(rounds: str, test: str, count: int) -> None:
    assert len(found(WINDOW.replace("ROUNDS", rounds).replace("TEST", test), "DW213")) == count


SETTINGS = """
import random
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
chosen = {"lr": 10 ** random.uniform(-3, -1)}
box = [chosen]
dist.broadcast_object_list(box, src=0)
SHARE
net = DDP(nn.Linear(4, 4))
opt = torch.optim.SGD(net.parameters(), lr=chosen["lr"])
"""


@pytest.mark.parametrize(
    ("share", "count"), [("", 1), ("chosen = box[0]", 0), ("chosen.update(box[0])", 0), ("chosen.update(seed=1)", 1)]
)
def test_settings_that_one_rank_has_sent(share: str, count: int) -> None:
    assert len(found(SETTINGS.replace("SHARE", share), "DW237")) == count


PEER = """
class First:
    def forward(self, out):
        dist.send(out, dst=1)

class Last:
    def step(self, rows):
        held = torch.empty(rows, 4)
        dist.recv(held, src=0)
        return held
"""


def test_a_peer_of_a_method_that_other_files_call() -> None:
    for rule in ("DW431", "DW461"):
        assert found(PEER, rule) == []


def test_a_peer_that_is_the_caller() -> None:
    assert found("dist.init_process_group('gloo')\ndist.send(torch.ones(1), dst=1)\n", "DW461")
    assert found("def f(x):\n    if dist.get_rank() == 1:\n        dist.send(x, dst=1)\n", "DW461")


PARENT = """
import torch.multiprocessing as mp

def worker(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    dist.all_reduce(torch.ones(1))

if __name__ == "__main__":
    START
    worker(0, 2)
"""


def test_the_parent_of_started_processes_is_rank_0() -> None:
    start = "mp.get_context('spawn').Process(target=worker, args=(1, 2)).start()"
    assert found(PARENT.replace("START", start), "DW105") == []
    assert found('dist.init_process_group("gloo", rank=0, world_size=int(os.environ["WORLD_SIZE"]))', "DW105")


ADDRESS = """
import socket
import torch.multiprocessing as mp

def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]

def worker(rank, world, given):
    PORT
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    dist.all_reduce(torch.ones(1))

if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
"""


@pytest.mark.parametrize(("port", "count"), [("port = free_port()", 1), ("port = given", 0), ("port = 29500", 0)])
def test_ports_of_started_processes(port: str, count: int) -> None:
    assert len(found(ADDRESS.replace("PORT", port), "DW113")) == count


PREPARED = """
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

accelerator = Accelerator()
rows = list(range(64))
PART
loader = DataLoader(rows, batch_size=4)
model = nn.Linear(1, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt, loader = PREPARE
for x in loader:
    accelerator.backward(model(x).sum())
    opt.step()
"""
TWICE = "accelerator.prepare(model, opt, loader)"


@pytest.mark.parametrize(
    ("part", "prepare", "count"),
    [
        ("rows = rows[accelerator.process_index :: accelerator.num_processes]", TWICE, 1),
        ("rows = [rows[i] for i in range(accelerator.process_index, 64, accelerator.num_processes)]", TWICE, 1),
        ("rows = rows[::2]", TWICE, 0),
        ("", TWICE, 0),
        (
            "rows = rows[accelerator.process_index :: accelerator.num_processes]",
            "(*accelerator.prepare(model, opt), loader)",
            0,
        ),
    ],
)
def test_parts_that_accelerate_divides_again(part: str, prepare: str, count: int) -> None:
    assert len(found(PREPARED.replace("PART", part).replace("PREPARE", prepare), "DW241")) == count


@pytest.mark.parametrize(
    ("sampler", "prepare", "count"),
    [
        ("DistributedSampler(rows)", TWICE, 1),
        ("DistributedSampler(rows, shuffle=False)", TWICE, 1),
        ("DistributedSampler(rows)", "(*accelerator.prepare(model, opt), accelerator.prepare_data_loader(loader))", 1),
        ("DistributedSampler(rows, num_replicas=1, rank=0)", TWICE, 0),
        ("torch.utils.data.RandomSampler(rows)", TWICE, 0),
        ("DistributedSampler(rows)", "(*accelerator.prepare(model, opt), loader)", 0),
    ],
)
def test_parts_of_a_sampler_that_accelerate_divides_again(sampler: str, prepare: str, count: int) -> None:
    code = PREPARED.replace("PART", "from torch.utils.data.distributed import DistributedSampler")
    code = code.replace("batch_size=4)", f"batch_size=4, sampler={sampler})").replace("PREPARE", prepare)
    assert len(found(code, "DW241")) == count


SCATTERED = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
files = [f"{i}.npy" for i in range(5)]
parts = PARTS if rank == 0 else None
out = [None]
dist.scatter_object_list(out, parts, src=0)
"""


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ("[files[i : i + 5] for i in range(0, 5, 5)]", 1),
        ("[files]", 1),
        ("[files[r::world] for r in range(world)]", 0),
        ("[files] * world", 0),
        ("[files[:2], files[2:]]", 0),
    ],
)
def test_lists_to_scatter(parts: str, count: int) -> None:
    code = SCATTERED.replace("PARTS", parts)
    assert len(found(code, "DW461") or found(code, "DW417")) == count


QUOTIENTS = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
labels = torch.ones(13)
mine = labels[PART]
right = (mine > 0).sum().float()
share = right / len(mine)
dist.all_reduce(share)
print(share / world)
"""


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("list(range(9) if rank == 0 else range(9, 13))", 1),
        ("rank::world", 1),
        ("list(range(6) if rank == 0 else range(6, 12))", 0),
        ("rank * 4 : rank * 4 + 4", 0),
    ],
)
def test_quotients_of_parts_of_different_sizes(part: str, count: int) -> None:
    assert len(found(QUOTIENTS.replace("PART", part), "DW429")) == count


LOCAL_STEPS = """
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hooks
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = DDP(nn.Linear(4, 4))
state = hooks.PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=5)
net.register_comm_hook(state, hooks.post_localSGD_hook)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    AVERAGE
"""


@pytest.mark.parametrize(
    ("average", "count"),
    [
        ("pass", 1),
        ("[dist.all_reduce(p.data, op=dist.ReduceOp.AVG) for p in net.parameters()]", 0),
        ("averager.average_parameters(net.parameters())", 0),
    ],
)
def test_post_local_sgd(average: str, count: int) -> None:
    code = LOCAL_STEPS.replace("AVERAGE", average)
    without = code.replace(
        "from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager\n", ""
    )
    assert len(found(without, "DW310")) == count


TENSOR_PARALLEL = """
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(nn.Linear(4, 4))
PARALLEL
data = torch.load("x.pt")
loader = DataLoader(data, batch_size=8, sampler=SAMPLER)
for x in loader:
    model(x).sum().backward()
"""
DIVIDED = 'model = parallelize_module(model, mesh["tp"], {"0": ColwiseParallel()})'


@pytest.mark.parametrize(
    ("parallel", "sampler", "count"),
    [
        (DIVIDED, "DistributedSampler(data)", 1),
        (DIVIDED, "DistributedSampler(data, num_replicas=world, rank=rank)", 1),
        (DIVIDED, 'DistributedSampler(data, mesh["dp"].size(), mesh["dp"].get_local_rank())', 0),
        (DIVIDED, "DistributedSampler(data, num_replicas=world // 2, rank=rank // 2)", 0),
        (DIVIDED, "None", 0),
        ("", "DistributedSampler(data)", 0),
    ],
)
def test_samplers_next_to_tensor_parallelism(parallel: str, sampler: str, count: int) -> None:
    code = TENSOR_PARALLEL.replace("PARALLEL", parallel, 1).replace("SAMPLER", sampler)
    assert len(found(code, "DW265")) == count


SHARE_OF_BATCH = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
whole = 32
own = OWN
net = DDP(nn.Linear(4, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1 * world)
for _ in range(10):
    x = torch.randn(64, 4)[rank * own : (rank + 1) * own]
    opt.zero_grad()
    net(x).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(("own", "count"), [("whole // world", 1), ("whole", 0)])
def test_learning_rates_for_a_share_by_slices(own: str, count: int) -> None:
    assert len(found(SHARE_OF_BATCH.replace("OWN", own), "DW433")) == count
