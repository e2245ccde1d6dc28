"""Ship rows to the other rank through one staging buffer."""

import time
from collections import deque

import torch
import torch.distributed as dist


class Sender:
    def __init__(self, size):
        self.stage = torch.empty(size)
        self.pending = deque()

    def ship(self, rows):
        self.stage.copy_(rows)
        self.pending.append(dist.isend(self.stage, dst=0))

    def flush(self):
        while self.pending:
            self.pending.popleft().wait()


def collect(count, size):
    buffer, found = torch.empty(size), []
    for _ in range(count):
        dist.recv(buffer, src=1)
        found.append(int(buffer[-1]))
        time.sleep(0.05)
    return found


def main(count=5, size=20000):
    dist.init_process_group("gloo")
    found = list(range(count))
    if dist.get_rank() == 0:
        found = collect(count, size)
        print(found)
    else:
        sender = Sender(size)
        for number in range(count):
            sender.ship(torch.full((size,), float(number)))
        sender.flush()
    dist.barrier()
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    found = main()
