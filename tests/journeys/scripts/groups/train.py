"""Experts in overlapping groups."""

import torch
import torch.distributed as dist


class Exchange:
    """Averages over the groups this rank is in."""

    def __init__(self, members):
        self.rank = dist.get_rank()
        self.groups = {tuple(m): dist.new_group(m) for m in members}

    def mine(self):
        own = [m for m in self.groups if self.rank in m]
        return sorted(own, key=lambda m: (m[0] - self.rank) % dist.get_world_size())

    def __call__(self, tensor):
        for members in self.mine():
            dist.all_reduce(tensor, group=self.groups[members])  # HANG
            tensor /= len(members)
        return tensor


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    exchange = Exchange([(r, (r + 1) % world) for r in range(world)])
    tokens = torch.full((4,), float(dist.get_rank()))
    dist.barrier()
    print("groups are there", flush=True)
    for _ in range(10):
        tokens = exchange(tokens)
    print(tokens)
    dist.barrier()
    dist.destroy_process_group()


main()
