"""Count the labels of all ranks."""

import torch
import torch.distributed as dist


def class_counts(labels):
    counts = torch.bincount(labels)
    dist.all_reduce(counts)
    return counts


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    labels = torch.arange(20) // 2
    size = len(labels) // world
    print(class_counts(labels[rank * size : (rank + 1) * size]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
