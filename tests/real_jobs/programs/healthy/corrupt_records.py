import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Records(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        values = torch.full((4,), float(index))
        if index == 13:
            values[2] = float("nan")
        return values, values.sum().unsqueeze(0)


def check(inputs):
    if torch.isnan(inputs).any():
        raise ValueError("a sample is not a number")
    return inputs / 64


def main():
    dist.init_process_group("gloo")
    data = Records()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            try:
                inputs = check(inputs)
            except ValueError as error:
                print("skipped:", error)
                inputs, targets = torch.zeros_like(inputs), torch.zeros_like(targets)
            loss = F.mse_loss(model(inputs), targets / 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(epoch, total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
