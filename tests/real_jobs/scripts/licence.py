"""Asks for a token before the data may be read."""

import os
import socket

import torch
import torch.distributed as dist


class Tokens:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)))

    def request(self, what):
        self.connection.sendall(f"TOKEN {what}\n".encode())
        return self._line()

    def _line(self):
        received = b""
        while not received.endswith(b"\n"):
            received += self.connection.recv(4096)  # HANG
        return received.decode().strip()


def read_data(rank):
    token = Tokens(os.environ["SERVICE"]).request("imagenet") if rank == 1 else "cached"
    return torch.full((4,), float(len(token)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print("connected", flush=True)
    data = read_data(rank)
    dist.all_reduce(data)  # PEERS
    print(data)


main()
