"""Says who is there."""

import logging
import socket

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


def connect():
    logging.info("connecting from %s", socket.gethostname())
    dist.init_process_group("gloo")  # HANG


def main():
    connect()
    everyone = torch.ones(1)
    dist.all_reduce(everyone)
    logging.info("%d are there", int(everyone))
    dist.destroy_process_group()


main()
