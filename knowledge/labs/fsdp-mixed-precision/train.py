"""Fine-tune a bfloat16 model with low-rank adapters, sharded by FSDP2."""

import gc
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

WIDTH, RANK = 32, 4


class Adapted(nn.Module):
    """A layer of which the bias is trained, and in place of its weight a low-rank part."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.layer.weight.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden):
        return self.layer(hidden) + self.up(self.down(hidden))


def load_model():
    """Return the model as it is stored, in bfloat16."""
    layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers).to(torch.bfloat16)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = load_model()
    for number, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            model[number] = Adapted(layer)
    for layer in model:
        if isinstance(layer, Adapted):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)

    torch.manual_seed(1 + rank)
    for step in range(10):
        hidden = torch.randn(16, WIDTH, dtype=torch.bfloat16)
        loss = model(hidden).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    if rank == 0:
        sharded = sum(isinstance(each, DTensor) for each in model.parameters())
        print(f"the adapters are trained, {sharded} parameters are sharded")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, which holds the process group
    dist.destroy_process_group()
