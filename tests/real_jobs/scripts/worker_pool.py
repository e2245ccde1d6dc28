"""Starts its ranks as processes of its own and waits for them in turn."""

import os
import socket
from multiprocessing import get_context

import torch
import torch.distributed as dist


def load_weights(rank):
    weights = torch.zeros(1 << 16)
    print("loaded", rank, flush=True)
    if rank == 1:
        os._exit(1)
    return weights


def entry(rank, world, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    weights = load_weights(rank)
    averaging = dist.new_group(range(world), group_desc="averaging")  # PEERS
    dist.all_reduce(weights, group=averaging)


def main(world=2):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = get_context("spawn")
    pool = [context.Process(target=entry, args=(rank, world, port)) for rank in range(world)]
    for process in pool:
        process.start()
    for process in pool:
        process.join()


if __name__ == "__main__":
    main()
