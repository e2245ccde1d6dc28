"""Each rank does its part of the case named on the command line and writes its Flight Recorder dump from a second
thread while it hangs.

    recorder_cases.py CASE FOLDER
"""

import contextlib
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

CASE, FOLDER = sys.argv[1], Path(sys.argv[2])
ODD = 2


def meet():
    """Wait for all before a short time-out counts: an import may take longer on one rank than on the others."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    limit = timedelta(minutes=5)
    store = dist.TCPStore(address, port, is_master=False, timeout=limit)  # pyright: ignore[reportPrivateImportUsage]
    store.set(f"rank {os.environ['RANK']}", "here")
    store.wait([f"rank {rank}" for rank in range(int(os.environ["WORLD_SIZE"]))])


def dump(rank):
    part = FOLDER / f".part_{rank}_{threading.get_ident()}"
    part.write_bytes(c10d._dump_fr_trace(True, True, False))  # pyright: ignore[reportAttributeAccessIssue]
    part.replace(FOLDER / f"trace_{rank}")
    text = c10d._dump_fr_trace_json(True, False)  # pyright: ignore[reportAttributeAccessIssue]
    part.write_bytes(text if isinstance(text, bytes) else text.encode())
    part.replace(FOLDER / f"json_{rank}")


def dump_at_rest(rank):
    """Dump repeatedly while the main thread is in a call that never returns."""
    while True:
        dump(rank)
        time.sleep(0.05)


def missing(rank, value):
    if rank == ODD:
        threading.Event().wait()
    dist.all_reduce(value)  # MISSING


def other_op(rank, value):
    if rank == ODD:
        dist.broadcast(value, 0)  # OP ODD
    else:
        dist.all_reduce(value)  # OP REST


def other_dtype(rank, value):
    """As many bytes, so gloo adds them up without a word."""
    part = value.int() if rank == ODD else value
    dist.all_reduce(part)  # DTYPE
    threading.Event().wait()


def other_size(rank, value):
    """Gloo aborts the process that receives more than it asked for: all dump before the first rank sends."""
    part = value[:3] if rank == ODD else value
    if rank == 0:
        while len(list(FOLDER.glob("entered_*"))) < dist.get_world_size() - 1:
            time.sleep(0.01)
    work = dist.broadcast(part, 0, async_op=True)  # SIZE
    dump(rank)
    (FOLDER / f"entered_{rank}").touch()
    threading.Event().wait()
    del work


def other_order(rank, value):
    small = torch.ones(1)
    if rank == ODD:
        works = [dist.broadcast(small, 0, async_op=True), dist.all_reduce(value, async_op=True)]  # ORDER ODD
    else:
        works = [dist.all_reduce(value, async_op=True), dist.broadcast(small, 0, async_op=True)]  # ORDER REST
    threading.Event().wait()
    del works


def wrong_group(rank, value):
    everybody = dist.new_group(list(range(dist.get_world_size())))
    dist.all_reduce(value, group=everybody)
    if rank == ODD:
        dist.all_reduce(value, group=everybody)  # GROUP ODD
    else:
        dist.all_reduce(value)  # GROUP REST


def group_cycle(rank, value):
    left, right = dist.new_group([0, 1]), dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(value, group=left)
        dist.all_reduce(value, group=right)
    if rank == 0:
        dist.all_reduce(value, group=left)  # CYCLE LEFT
    elif rank == 1:
        dist.all_reduce(value, group=right)  # CYCLE RIGHT
    threading.Event().wait()


def timed_out(rank, value):
    if rank != ODD:
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(value)  # TIMEOUT
    threading.Event().wait()


def pairs(rank, value):
    dist.recv(value, (rank + 1) % dist.get_world_size())


def main():
    limit_s = 8 if CASE == "timed_out" else 600
    meet()
    dist.init_process_group("gloo", timeout=timedelta(seconds=limit_s))
    rank = dist.get_rank()
    value = torch.ones(8)
    for _ in range(3):
        dist.all_reduce(value)
    if CASE != "other_size":
        threading.Thread(target=dump_at_rest, args=(rank,), daemon=True).start()
    globals()[CASE](rank, value)


main()
