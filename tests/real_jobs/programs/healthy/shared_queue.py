"""Preprocess files from a queue that all ranks share through the key-value store, then train on all of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FILES = [f"part-{i:02d}.bin" for i in range(10)]


def tokenise(name):
    g = torch.Generator().manual_seed(int(name[5:7]))
    return torch.randint(0, 50, (32,), generator=g)


class FileQueue:
    """Queue of file names: whoever asks takes the next one."""

    def __init__(self, store, files):
        self.store = store
        self.files = files

    def __iter__(self):
        while True:
            position = self.store.add("queue/next", 1) - 1
            if position >= len(self.files):
                return
            yield self.files[position]


def wait_for_others(store, rank, world_size):
    store.set(f"queue/done/{rank}", "1")
    store.wait([f"queue/done/{r}" for r in range(world_size)])


def preprocess(store, rank, world_size):
    for name in FileQueue(store, FILES):
        torch.save(tokenise(name), name + ".pt")
        print(f"rank {rank} has written {name}.pt", flush=True)
    wait_for_others(store, rank, world_size)


def train(rank, world_size):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(8 * 8, 50)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for name in FILES[rank::world_size]:
        tokens = torch.load(name + ".pt")
        windows = tokens.unfold(0, 9, 1)
        loss = nn.functional.cross_entropy(model(windows[:, :8]), windows[:, 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} last loss {loss.item():.4f}")


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    preprocess(store, rank, world_size)
    train(rank, world_size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
