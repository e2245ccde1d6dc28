"""Reads crops through a loader; an index is brought up to date meanwhile."""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

INDEX_LOCK = threading.Lock()
INDEX = {}
STALE = {0: 0, 1: 16, 2: 0}  # entries of each rank's index that are out of date


def refresh(count, begun):
    with INDEX_LOCK:
        begun.set()
        for entry in range(count):
            time.sleep(0.5)
            INDEX[entry] = entry


class Crops(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with INDEX_LOCK:  # HANG
            shift = INDEX.get(index, 0)
        return torch.randn(8) + shift


def main():
    dist.init_process_group("gloo")
    begun = threading.Event()
    worker = threading.Thread(target=refresh, args=(STALE[dist.get_rank()], begun))
    worker.start()
    begun.wait()
    loader = DataLoader(Crops(), batch_size=4, num_workers=1)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print("reads", flush=True)
    for crops in loader:
        loss = model(crops).square().mean()
        optimizer.zero_grad()
        loss.backward()  # PEERS
        optimizer.step()
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
