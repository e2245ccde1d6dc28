"""Measure the memory of one rank, in a step, for three ways to hold the same model on two ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

WIDTH, DEPTH, BATCH = 128, 6, 640
kept = []  # what the forward pass keeps for the backward pass


class Network(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(DEPTH)
        )
        self.recompute = recompute

    def forward(self, hidden):
        for block in self.blocks:
            if self.recompute:
                kept.append(hidden)  # a checkpoint keeps the input of its block, and nothing else
            hidden = hidden + (checkpoint(block, hidden, use_reentrant=False) if self.recompute else block(hidden))
        return hidden


def mib(tensors):
    """Return the MiB of the storages of tensors, each storage once."""
    local = [each.to_local() if hasattr(each, "to_local") else each for each in tensors]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in local}.values()) / 2**20


def build(strategy):
    torch.manual_seed(0)
    model = Network(recompute="recompute" in strategy)
    if "FSDP2" not in strategy:
        return DDP(model)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def measure(strategy):
    """Return the MiB of weights, gradients and optimizer states, and those that forward keeps for backward."""
    model = build(strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
            loss = model(torch.randn(BATCH, WIDTH)).square().mean()
        weights = {each.shape for each in model.parameters()} | {each.shape[::-1] for each in model.parameters()}
        activations = mib(each for each in kept if each.shape not in weights)
        loss.backward()
        optimizer.step()
    states = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
    return mib([*model.parameters(), *(each.grad for each in model.parameters()), *states]), activations


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    totals = {}
    for strategy in ("DDP", "FSDP2", "DDP, recompute", "FSDP2, recompute"):
        model_states, activations = measure(strategy)
        totals[strategy] = model_states + activations
        if rank == 0:
            print(f"{strategy}: {totals[strategy]:.1f} MiB")
            print(f"  weights, gradients and optimizer {model_states:.1f} MiB, activations {activations:.1f} MiB")
    if rank == 0:
        one_change = min(("FSDP2", "DDP, recompute"), key=totals.get)
        print(f"the one change that saves most here: {one_change}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
