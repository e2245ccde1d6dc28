"""Writes snapshots in a thread, so that training need not wait."""

import threading

import torch
import torch.distributed as dist


class Writer(threading.Thread):
    def __init__(self, slots):
        super().__init__(name="writer", daemon=True)
        self.slots, self.state = slots, None

    def submit(self, state):
        self.state = state
        self.start()

    def run(self):
        with self.slots:
            torch.save(self.state, "snapshot.pt")


class Runner:
    def __init__(self):
        self.slots = threading.BoundedSemaphore(1)
        self.layer = torch.nn.Linear(8, 8)

    def step(self):
        total = self.layer(torch.randn(2, 8)).sum()
        total.backward()
        dist.all_reduce(self.layer.weight.grad)  # PEERS

    def snapshot(self):
        self.slots.acquire()
        writer = Writer(self.slots)
        writer.submit(self.layer.state_dict())
        writer.join()  # HANG
        self.slots.release()


def main():
    dist.init_process_group("gloo")
    runner = Runner()
    for n in range(20):
        runner.step()
        if n == 5:
            print("five", flush=True)
            if dist.get_rank() == 0:
                runner.snapshot()
    dist.destroy_process_group()


main()
