"""Reduce the metrics of an epoch by name."""

import random

import torch
import torch.distributed as dist


def reduce_metrics(metrics):
    names = list(metrics)
    random.shuffle(names)
    for name in names:
        dist.all_reduce(metrics[name])
    return metrics


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(rank)
    metrics = {"loss": torch.ones(1), "correct": torch.ones(2), "seen": torch.ones(3) * rank}
    print(reduce_metrics(metrics))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
