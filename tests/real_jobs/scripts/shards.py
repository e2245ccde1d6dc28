"""Each rank reads its own shard; they are not of one length."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batches(rank):
    shard = torch.randn(48 if rank == 2 else 64, 4)
    return shard.split(8)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches(dist.get_rank()):  # LOOP
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()  # PEERS
        optimizer.step()
    dist.barrier()  # HANG
    dist.destroy_process_group()


main()
