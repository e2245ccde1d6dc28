import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Points(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 4, generator=torch.Generator().manual_seed(8))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def mlp(width):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def freeze(net):
    for p in net.parameters():
        p.requires_grad_(False)
    return net.eval()


def distillation_loss(student_logits, teacher_logits, temperature=2.0):
    return (
        F.kl_div(
            F.log_softmax(student_logits / temperature, dim=1),
            F.softmax(teacher_logits / temperature, dim=1),
            reduction="batchmean",
        )
        * temperature**2
    )


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = Points(96)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)

    teacher = freeze(mlp(64))
    teacher = DDP(teacher)
    student = DDP(mlp(8))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x in loader:
            with torch.no_grad():
                target = teacher(x)
            loss = distillation_loss(student(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item() / len(loader) / dist.get_world_size():.5f}")
    if dist.get_rank() == 0:
        torch.save(student.module.state_dict(), "student.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
