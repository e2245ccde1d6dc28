"""The object store of the cluster, with a client that reads one sample."""

import socket
import urllib.request

import torch


def connect():
    """Return the store of this machine. Since the last failure of its disk it takes requests and answers none."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    return server, f"http://127.0.0.1:{server.getsockname()[1]}/samples"


def read_sample(url, index):
    with urllib.request.urlopen(f"{url}/{index}") as reply:
        return torch.frombuffer(bytearray(reply.read()), dtype=torch.float32)
