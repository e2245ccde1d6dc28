"""Steps that take several seconds each, in one way or another."""

import sys
import time

import numpy
import torch
import torch.distributed as dist

STEP_S = 6


def in_torch(until):
    square = torch.rand(800, 800)
    while time.monotonic() < until:
        square = torch.tanh(square @ square)


def in_numpy(until):
    square = numpy.random.default_rng(0).random((3000, 3000))
    while time.monotonic() < until:
        numpy.linalg.svd(square[:700, :700])


def in_python(until):
    count = 0
    while time.monotonic() < until:
        count += sum(n % 7 for n in range(100_000))


def asleep(until):
    time.sleep(max(0.0, until - time.monotonic()))


def main():
    work = {"torch": in_torch, "numpy": in_numpy, "python": in_python, "sleep": asleep}[sys.argv[1]]
    busy = range(100) if sys.argv[2] == "all" else [int(sys.argv[2])]
    dist.init_process_group("gloo")
    total = torch.ones(16)
    for step in range(1000):
        if dist.get_rank() in busy:
            work(time.monotonic() + STEP_S)
        dist.all_reduce(total)
        print("step", step, flush=True)


main()
