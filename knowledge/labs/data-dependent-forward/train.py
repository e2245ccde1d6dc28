"""Train a mixture of experts, sharded with FSDP; the router sends each text to one expert."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Mixture(nn.Module):
    """Experts of one size; an expert sees the texts that the router sends to it."""

    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, texts):
        weights = self.router(texts).softmax(dim=-1)
        chosen = weights.argmax(dim=-1)
        out = torch.zeros_like(texts)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().flatten()
            if len(mine):
                out = out.index_add(0, mine, expert(texts[mine]) * weights[mine, number, None])
        return out


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    mixture = Mixture(width=32, experts=4)
    model = nn.Sequential(nn.Embedding(200, 32), mixture, nn.Linear(32, 200))
    for expert in mixture.experts:
        fully_shard(expert)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    generator = torch.Generator().manual_seed(10 + rank)
    texts = 0
    for step in range(16):
        size = 64 if step % 8 != 7 else 3  # the last batch of an epoch is small
        texts += size
        words = torch.randint(200, (size,), generator=generator)
        loss = nn.functional.cross_entropy(model(words), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    if rank == 0:
        print(f"all steps done with {texts} texts")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
