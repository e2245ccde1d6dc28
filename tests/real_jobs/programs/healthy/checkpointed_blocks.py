import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class TokenModel(nn.Module):
    def __init__(self, vocab=20, dim=16, depth=3, checkpointing=True):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.lm_head = nn.Linear(dim, vocab)
        self.cls_head = nn.Linear(dim, 2)
        self.checkpointing = checkpointing

    def forward(self, tokens, task):
        h = self.emb(tokens)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.checkpointing else block(h)
        # the head of the other task is unused
        return self.lm_head(h) if task == "lm" else self.cls_head(h.mean(1))


def loss_of(model, tokens, task):
    if task == "lm":
        logits = model(tokens, task)[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return F.cross_entropy(model(tokens, task), (tokens.float().mean(1) > 9.5).long())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(TokenModel(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        tokens = torch.randint(0, 20, (8, 10), generator=g)
        loss = loss_of(model, tokens, "lm" if step % 2 == 0 else "cls")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
