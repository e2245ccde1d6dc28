"""Trains, then uploads the results in the background."""

import queue
import threading

import torch
import torch.distributed as dist


class Uploader:
    def __init__(self):
        self.todo = queue.Queue()
        self.thread = threading.Thread(target=self._run, name="uploader")
        self.thread.start()

    def _run(self):
        while True:
            item = self.todo.get()  # HANG
            if item is None:
                return

    def add(self, item):
        self.todo.put(item)


def main():
    dist.init_process_group("gloo")
    value = torch.rand(1)
    dist.all_reduce(value)
    if dist.get_rank() == 1:
        Uploader().add({"value": value.item()})
    dist.barrier()
    dist.destroy_process_group()
    print("finished", flush=True)


main()
