"""Masked language model on sequences of different lengths; the loss is a mean over all masked tokens."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, MASK, WIDTH, LENGTH = 20, 0, 8, 12
STEPS, BATCH, LR = 10, 8, 0.5


class MaskedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(LENGTH, LENGTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        hidden = self.embedding(ids)
        return self.out(hidden + self.mix(hidden.transpose(1, 2)).transpose(1, 2))


def global_batch(step):
    g = torch.Generator().manual_seed(step)
    ids = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=g)
    rates = torch.linspace(0.1, 0.6, BATCH).unsqueeze(1)
    masked = torch.rand(BATCH, LENGTH, generator=g) < rates
    masked[:, 0] = True
    return ids, masked


def summed_loss(model, ids, masked):
    logits = model(ids.masked_fill(masked, MASK))
    return nn.functional.cross_entropy(logits[masked], ids[masked], reduction="sum")


def build():
    torch.manual_seed(6)
    return MaskedModel()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(STEPS):
        ids, masked = (part.chunk(world_size)[rank] for part in global_batch(step))
        tokens = masked.sum()
        dist.all_reduce(tokens)
        loss = summed_loss(model, ids, masked) * world_size / tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {int(tokens)} masked tokens, loss {loss.item():.4f}")
    dist.barrier()
    return model.module


if __name__ == "__main__":
    masked_model = main()
