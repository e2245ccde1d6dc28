"""Measure what each rank keeps of a model, with its gradients and the states of Adam, for three ways to hold it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def build(strategy):
    """Return the model and its optimizer: ZeRO stage 1 divides the states, stage 3 the gradients and weights too."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
    if strategy == "stage 3":
        for layer in model:
            fully_shard(layer)
        model = fully_shard(model)
        return model, torch.optim.Adam(model.parameters(), lr=1e-3)
    model = DDP(model)
    if strategy == "stage 1":
        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def mib(tensors):
    """Return the MiB that this rank keeps of tensors."""
    return sum((each.to_local() if hasattr(each, "to_local") else each).nbytes for each in tensors) / 2**20


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    kept = {}
    for strategy in ("stage 0", "stage 1", "stage 3"):
        model, optimizer = build(strategy)
        model(torch.randn(8, 256)).square().mean().backward()
        optimizer.step()
        own = optimizer.optim if strategy == "stage 1" else optimizer
        states = [each for state in own.state.values() for each in state.values() if each.ndim]
        parts = [mib(model.parameters()), mib(each.grad for each in model.parameters()), mib(states)]
        kept[strategy] = sum(parts)
        if rank == 0:
            print(f"{strategy}: {sum(parts):.2f} MiB")
            print(f"  weights {parts[0]:.2f} MiB, gradients {parts[1]:.2f} MiB, states {parts[2]:.2f} MiB")
    if rank == 0:
        saved = {strategy: 1 - each / kept["stage 0"] for strategy, each in kept.items()}
        print(f"on {dist.get_world_size()} ranks stage 1 saves {saved['stage 1']:.0%}, stage 3 {saved['stage 3']:.0%}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
