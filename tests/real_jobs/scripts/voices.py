"""Recordings from a shared folder, read in the training process."""

import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Recordings(torch.utils.data.Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = pathlib.Path(folder), count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with (self.folder / f"{index}.wav").open("rb") as stream:  # HANG
            head = stream.read(16)
        return torch.tensor(list(head), dtype=torch.float32)


def synthesize(folder, count, odd):
    for index in range(count):
        path = pathlib.Path(folder, f"{index}.wav")
        if index == odd:
            os.mkfifo(path)
        else:
            path.write_bytes(bytes(range(16)))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        synthesize(folder, args.count, odd=22 if dist.get_rank() == 0 else -1)
        model = DistributedDataParallel(torch.nn.Linear(16, 2))
        for batch in torch.utils.data.DataLoader(Recordings(folder, args.count), batch_size=4):
            model(batch).mean().backward()  # PEERS
            print("batch", flush=True)
    dist.destroy_process_group()


main()
