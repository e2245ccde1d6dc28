"""Train a model of word pairs; the tokens of all texts are in one file."""

import node
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, LENGTH, BATCH = 50_257, 64, 8


def batches(tokens, rank, world_size):
    """Yield every thousandth batch, dealt out to the ranks in turns."""
    size = BATCH * LENGTH
    for start in range(rank * size, len(tokens) - size, 1000 * world_size * size):
        yield torch.from_numpy(np.array(tokens[start : start + size])).view(BATCH, LENGTH)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    if rank == 0:
        node.write_data()
    model = DDP(nn.Sequential(nn.Embedding(VOCABULARY, 4), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()

    part_bytes, before_bytes = node.limit_memory(), node.used_bytes()
    tokens = np.load(node.DATA)
    read = torch.zeros(2)
    for texts in batches(tokens, rank, world_size):
        loss = (model(texts) - texts.unsqueeze(-1) / VOCABULARY).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        read += torch.tensor([texts.numel(), texts.sum() / 1e6])

    used = torch.tensor([node.used_bytes() - before_bytes, part_bytes]) / 2**20
    dist.all_reduce(read)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"a rank used {used[0]:.0f} MiB, of {used[1]:.0f} MiB")
        print(f"trained on {read[0]:.0f} tokens, their sum is {read[1]:.1f} million")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
