"""Reads pictures from a folder with loader workers."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    def __init__(self, root):
        self.files = sorted(Path(root).iterdir())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        raw = self.files[index].read_bytes()
        return torch.frombuffer(bytearray(raw[:48]), dtype=torch.uint8).float() / 255


def prepare(rank, count=64):
    root = Path(tempfile.mkdtemp(prefix=f"flowers{rank}-"))
    for n in range(count):
        path = root / f"{n:05d}.raw"
        if n == 41 and rank == 1:
            os.mkfifo(path)
        else:
            path.write_bytes(os.urandom(48))
    return root


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Folder(prepare(rank)), batch_size=4, num_workers=2)
    model = DDP(nn.Linear(48, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, pixels in enumerate(loader):  # HANG
        loss = model(pixels).logsumexp(1).mean()
        loss.backward()  # PEERS
        optimizer.step()
        optimizer.zero_grad()
        if step == 8:
            print(f"step {step}", flush=True)
    print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
