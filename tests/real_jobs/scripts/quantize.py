"""Calibrates scales; each rank has a role."""

import torch
import torch.distributed as dist


class Calibrator:
    def __init__(self, bits):
        self.levels = 2 ** (bits - 1) - 1
        self.scales = {}

    def observe(self, name, tensor):
        self.scales[name] = tensor.abs().max().reshape(1) / self.levels

    def exchange(self, name):
        found = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(found, self.scales[name])  # HANG
        self.scales[name] = torch.stack(found).amax(0)


def calibrate(role, calibrator):
    for name in ("q", "k", "v"):
        calibrator.observe(name, torch.randn(64))
        match role:  # BRANCH
            case 1:  # BRANCH
                calibrator.exchange(name)
            case _:
                print(f"kept {name}", flush=True)
    dist.barrier()  # PEERS


def main():
    dist.init_process_group("gloo")
    calibrate(dist.get_rank() % 2, Calibrator(bits=8))
    dist.destroy_process_group()


main()
