"""Leave out a batch on all ranks if one of them has met a NaN."""

import torch
import torch.distributed as dist
from torch import nn


def any_rank(flag):
    flags = torch.tensor(float(flag))
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return flags.item() > 0


def batches(rank, count):
    generator = torch.Generator().manual_seed(rank)
    for number in range(count):
        x = torch.rand(8, 4, generator=generator)
        if (rank, number) == (1, 3):
            x[0, 0] = float("nan")
        yield x


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    skipped = 0
    for x in batches(dist.get_rank(), 8):
        bad = not torch.isfinite(x).all().item()
        if bad or any_rank(bad):
            skipped += 1
            continue
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
    dist.barrier()
    print(skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
