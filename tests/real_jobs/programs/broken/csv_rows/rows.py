import math

import torch


def make_rows(n):
    rows = []
    for i in range(n):
        a, b, c = math.sin(i), math.cos(i), math.sin(2 * i)
        rows.append(f"{a:.4f},{b:.4f},{c:.4f},{a + b * c:.4f}")
    rows[41] = "0.1,n.a.,0.3,0.4"
    return rows


def batches(rows, rank, world_size, batch_size):
    """Every rank takes each world_size-th batch."""
    starts = range(rank * batch_size, len(rows), world_size * batch_size)
    for start in starts:
        yield rows[start : start + batch_size]


def parse_batch(lines):
    values = torch.tensor([[float(v) for v in line.split(",")] for line in lines])
    return values[:, :3], values[:, 3:]
