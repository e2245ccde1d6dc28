"""Keeps the tokens of the corpus in the user's home directory."""

from pathlib import Path

import torch
import torch.distributed as dist

CACHE = Path.home() / ".cache" / "tokens"


def tokens(rank):
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{rank}.pt"
    if not path.exists():
        torch.save(torch.arange(16) + rank, path)
    return torch.load(path)


def main():
    dist.init_process_group("gloo")
    mine = tokens(dist.get_rank()).float()
    dist.all_reduce(mine)
    print("done", mine.sum().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
