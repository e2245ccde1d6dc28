"""Two students learn from the one that fits better; the first rank compares their errors."""

import torch
import torch.distributed as dist
from torch import nn


class Classroom:
    def __init__(self, width):
        self.rank = dist.get_rank()
        torch.manual_seed(20 + self.rank)
        self.student = nn.Linear(width, 1)
        self.teacher = 0

    def error(self):
        x = torch.linspace(-1, 1, 24).view(6, 4)
        return (self.student(x) - x.sum(1, keepdim=True) - self.rank).abs().mean().detach().view(1)

    def compare(self):
        errors = [torch.zeros(1) for _ in range(dist.get_world_size())] if self.rank == 0 else None
        dist.gather(-self.error(), errors)
        if self.rank == 0:
            self.teacher = 1 + torch.cat(errors).argmax().item() // 2

    def learn(self):
        with torch.no_grad():
            for weight in self.student.parameters():
                dist.broadcast(weight, src=self.teacher)


dist.init_process_group("gloo")
classroom = Classroom(4)
for lesson in range(2):
    classroom.compare()
    classroom.learn()
print(f"rank {classroom.rank}: taught by {classroom.teacher}")
dist.barrier()
dist.destroy_process_group()
