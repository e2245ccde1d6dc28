"""The node of this job: its memory, of which every rank gets an equal part, and the data set on its disk."""

import os
import resource

import numpy as np

NODE_BYTES = 160 * 2**20  # for data, above what Python and torch need
TOKENS = 12_000_000  # 92 MiB
DATA = "tokens.npy"


def limit_memory():
    """Limit this process to its part of the node, as a scheduler does with the memory of a task; return the bytes."""
    part = NODE_BYTES // int(os.environ["LOCAL_WORLD_SIZE"])
    limit = used_bytes() + part
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return part


def used_bytes():
    """Return the bytes that this process has for itself; pages of a file that is mapped for reading are shared."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024


def write_data():
    """Write the data set, page by page."""
    tokens = np.lib.format.open_memmap(DATA, mode="w+", dtype=np.int64, shape=(TOKENS,))
    for start in range(0, TOKENS, 1_000_000):
        tokens[start : start + 1_000_000] = np.arange(start, start + 1_000_000) % 50_257
