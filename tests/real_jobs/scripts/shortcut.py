"""One rank returns before the others meet."""

import torch
import torch.distributed as dist


def save(rank, state):
    if rank == 1:  # BRANCH
        return
    torch.save(state, f"state-{rank}.pt")
    dist.barrier()  # PEERS


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    save(rank, {"step": 1})
    total = torch.ones(1)
    dist.all_reduce(total)  # HANG
    dist.destroy_process_group()


main()
