"""Hands activations on from stage to stage, and gradients back."""

import torch
import torch.distributed as dist


class Stage:
    def __init__(self, index, count, width):
        self.next, self.previous = (index + 1) % count, (index - 1) % count
        self.activations = torch.zeros(width, width)

    def exchange(self):
        received = torch.empty_like(self.activations)
        dist.send(self.activations, self.next)  # HANG
        dist.recv(received, self.previous)
        self.activations = received + 1


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size(), width=4096)
    print("stage", flush=True)
    for _ in range(4):
        stage.exchange()
    print(stage.activations.mean())


main()
