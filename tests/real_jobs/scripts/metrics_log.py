"""Collects metrics in a background-safe history and writes them at intervals."""

import threading

import torch
import torch.distributed as dist


class History:
    def __init__(self, capacity):
        self.capacity, self.rows = capacity, []
        self._lock = threading.Lock()

    def add(self, **row):
        with self._lock:
            self.rows.append(row)
            if len(self.rows) >= self.capacity:
                self.flush()

    def flush(self):
        with self._lock:  # HANG
            rows, self.rows = self.rows, []
        print("rows", len(rows))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    history = History(capacity=8 if rank == 2 else 1000)
    weight = torch.randn(16, 16)
    for step in range(200):
        weight = torch.tanh(weight @ weight)
        dist.all_reduce(weight, op=dist.ReduceOp.SUM)  # PEERS
        weight /= dist.get_world_size()
        if step == 6:
            print("warm", flush=True)
        history.add(step=step, norm=weight.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
