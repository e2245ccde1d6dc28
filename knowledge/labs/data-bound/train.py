"""Train on images in a store of the network, and print where the time of rank 0 goes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LATENCY_S = 0.01  # the answer of the store for one image


class Images(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(LATENCY_S)
        return torch.randn(64, generator=torch.Generator().manual_seed(index)), index % 10


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Images()
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    waited, began = 0.0, time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        batches = iter(loader)
        for _ in range(len(loader)):
            asked = time.perf_counter()
            images, labels = next(batches)
            waited += time.perf_counter() - asked
            for _ in range(4):  # four steps on each batch, as images are expensive
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    if rank == 0:
        print(f"the loop waited for data: {waited:.1f} of {time.perf_counter() - began:.1f} s")
        print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=4, max_name_column_width=70))
        print("one epoch done")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
