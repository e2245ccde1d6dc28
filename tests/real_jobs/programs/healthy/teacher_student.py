"""Distillation: the first rank holds the teacher, the others the students, which have a group of their own."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def split_ranks(world_size, teachers=1):
    return list(range(teachers)), list(range(teachers, world_size))


def make_groups(rank, world_size):
    teacher_ranks, student_ranks = split_ranks(world_size)
    students = dist.new_group(student_ranks)
    everyone = dist.new_group(list(range(world_size)))
    return students, everyone, rank in teacher_ranks


class Side:
    def __init__(self, width, group):
        self.model = nn.Linear(4, width)
        self.group = group

    def copy_from_first(self):
        for p in self.model.parameters():
            dist.broadcast(p.data, src=dist.get_global_rank(self.group, 0), group=self.group)

    def logits(self, x):
        return self.model(x)

    def sync_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= dist.get_world_size(self.group)


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    students, everyone, is_teacher = make_groups(rank, world_size)
    side = Side(3, students)
    if not is_teacher:
        side.copy_from_first()
    optimizer = torch.optim.SGD(side.model.parameters(), lr=0.2)
    g = torch.Generator().manual_seed(0)
    for step in range(10):
        x = torch.randn(16, 4, generator=g)
        logits = side.logits(x)
        target = logits.detach().clone()
        dist.broadcast(target, src=0, group=everyone)
        if is_teacher:
            continue
        loss = nn.functional.mse_loss(logits, target)
        optimizer.zero_grad()
        loss.backward()
        side.sync_gradients()
        optimizer.step()
        print(f"step {step} distillation loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
