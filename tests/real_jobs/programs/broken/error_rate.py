import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VAL_SIZE = 45


def get_sets():
    g = torch.Generator().manual_seed(21)
    x = torch.randn(160 + VAL_SIZE, 5, generator=g)
    y = (x[:, 0] * 2 + torch.randn(len(x), generator=g) > 0).float()
    train = TensorDataset(x[:160], y[:160])
    val = TensorDataset(x[160:], y[160:])
    return train, val


def gather_in_order(values):
    """Undo the striding of the sampler: rank r has the samples r, r + world size, …"""
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return torch.stack(parts, dim=1).flatten()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    errors = []
    for x, y in loader:
        errors.append(((model.module(x).squeeze(1) > 0) != y.bool()).float())
    errors = gather_in_order(torch.cat(errors))
    model.train()
    return errors.sum().item(), len(errors)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    train_set, val_set = get_sets()
    train_sampler = DistributedSampler(train_set, shuffle=True)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=16, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=8, sampler=val_sampler)
    model = DDP(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y).backward()
            optimizer.step()
        wrong, total = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: {int(wrong)} errors in {total} samples")
    dist.destroy_process_group()
    return model.module, val_set, wrong, total


if __name__ == "__main__":
    model, val_set, wrong, total = main()
