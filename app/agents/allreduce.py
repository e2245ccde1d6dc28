"""Agent: one rank of the all-reduce test. Started by torchrun as ``allreduce.py OUT_DIR BACKEND TIMEOUT_S``.

Each rank appends JSON lines to OUT_DIR/rankN.jsonl (torchrun does not pass file descriptors on): started, joined, the
number of each all-reduce before it, the seconds and errors after each size, and finally done or error.
"""

import json
import os
import statistics
import sys
import time
from datetime import timedelta

HERE = os.path.dirname(os.path.abspath(__file__))
KIB, MIB = 1024, 1024 * 1024
# (bytes, timed calls); the larger sizes only on GPUs with enough memory
SIZES = ((4, 50), (64 * KIB, 50), (1 * MIB, 20), (16 * MIB, 10))
GPU_SIZES = ((256 * MIB, 10), (1024 * MIB, 5))
PERIOD = 251  # prime, so that a chunk of 2^k elements in a wrong place is detected
BUFFERS = 4  # buffers of one size: data, expected values, the comparison, the backend's own


def fill_pattern(torch, rank, count, device):
    """Return ``count`` small whole numbers that depend on rank and position, and on neither linearly.

    Their sums over up to 60,000 ranks are exact in float32.
    """
    i = torch.arange(min(count, PERIOD), device=device)
    block = ((i * 31 + rank * 17 + i * rank * rank * 7) % PERIOD).to(torch.float32)
    return block.repeat(-(-count // PERIOD))[:count] if count > PERIOD else block


def expected_sum(torch, ranks, count, device):
    """Return the expected value of every element after the sum over all ranks."""
    block = torch.stack([fill_pattern(torch, rank, min(count, PERIOD), device) for rank in range(ranks)]).sum(dim=0)
    return block.repeat(-(-count // PERIOD))[:count] if count > PERIOD else block


def wrong_elements(torch, data, right):
    """Return the number of wrong elements (NaN is wrong), and index, expected and actual value of the first."""
    differs = data != right
    count = int(differs.sum())
    if not count:
        return {"wrong": 0}
    first = int(differs.to(torch.uint8).argmax())
    return {"wrong": count, "first": first, "should": float(right[first]), "got": str(float(data[first]))}


class RankWorker:
    """This rank: its reports and the all-reduces it takes part in."""

    def __init__(self, out, backend):
        self.out = out
        self.backend = backend
        self.rank = int(os.environ["RANK"])
        self.ranks = int(os.environ["WORLD_SIZE"])
        self.calls = 0

    def report(self, event, **facts):
        self.out.write(json.dumps(dict(facts, event=event)) + "\n")
        self.out.flush()

    def join(self, timeout_s):
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.device = torch.device("cpu")
        if self.backend == "nccl":
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        dist.init_process_group(self.backend, timeout=timedelta(seconds=timeout_s))
        self.report("joined")

    def all_reduce(self, data, size):
        """Run one call, reported before it starts; return the seconds until its result is available."""
        self.calls += 1
        self.report("call", call=self.calls, bytes=size)
        started = time.perf_counter()
        self.dist.all_reduce(data)
        if self.backend == "nccl":
            self.torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    def sizes(self):
        """Return the sizes that fit on every rank."""
        if self.backend != "nccl":
            return SIZES
        free, _ = self.torch.cuda.mem_get_info(self.device)
        least = self.torch.tensor([free], device=self.device)
        self.report("call", call=0, bytes=8)
        self.dist.all_reduce(least, op=self.dist.ReduceOp.MIN)
        return SIZES + tuple(entry for entry in GPU_SIZES if entry[0] * BUFFERS < int(least[0]))

    def measure(self, size, times):
        """Return the median seconds of ``times`` calls at ``size`` bytes; every element is checked before and after
        them.
        """
        torch, count = self.torch, size // 4
        right = expected_sum(torch, self.ranks, count, self.device)
        data = fill_pattern(torch, self.rank, count, self.device)
        self.all_reduce(data, size)
        wrong = wrong_elements(torch, data, right)
        data.zero_()
        seconds = statistics.median(self.all_reduce(data, size) for _ in range(times))
        data.copy_(fill_pattern(torch, self.rank, count, self.device))
        self.all_reduce(data, size)
        wrong = wrong if wrong["wrong"] else wrong_elements(torch, data, right)
        self.report("row", bytes=size, seconds=seconds, **wrong)


def main():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    out_dir, backend, timeout_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with open(os.path.join(out_dir, "rank%s.jsonl" % os.environ["RANK"]), "a") as out:
        rank = RankWorker(out, backend)
        rank.report("started", pid=os.getpid())
        try:
            rank.join(timeout_s)
            for size, times in rank.sizes():
                rank.measure(size, times)
            rank.dist.destroy_process_group()
            rank.report("done")
        except Exception as error:
            text = " | ".join(line.strip() for line in str(error).splitlines() if line.strip())
            rank.report("error", message="%s: %s" % (type(error).__name__, text[:600]), at=time.time())
            raise


if __name__ == "__main__":
    main()
