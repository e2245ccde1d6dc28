"""The rank arrives as a flag, through a parameter."""

import torch
import torch.distributed as dist


def is_chief():
    """Return True if this process prints."""
    return dist.get_rank() == 0


def log_loss(loss, verbose):
    if not verbose:  # BRANCH
        return
    parts = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, loss)  # HANG
    print("losses", parts)


def main():
    dist.init_process_group("gloo")
    talkative = is_chief()
    log_loss(torch.ones(1), verbose=talkative)
    dist.broadcast(torch.ones(1), src=0)  # PEERS
    dist.destroy_process_group()


main()
