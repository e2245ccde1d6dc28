"""Forms a second group; the last rank comes to it late."""

import sys
import time

import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == dist.get_world_size() - 1:
        print("late", file=sys.stderr, flush=True)
        time.sleep(600)  # LATE
    dist.new_group(backend="gloo")  # PEERS


main()
