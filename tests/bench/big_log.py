"""Analyse 1 GB of log of 64 ranks on 8 nodes: time relative to ripgrep on the same literals, and memory.

The log is generated from a seed and deleted afterwards. It contains steps of every rank, NCCL output,
warnings, progress bars, a rank that runs out of memory in the middle, another that stops printing, and what follows.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measurement import Bar

SIZE_BYTES = 1_000_000_000
PART_BYTES = 4_000_000
PARTS = 12
TIMES_RIPGREP = 4.0
TIMES_GREP = 2.0  # GNU grep takes about twice as long as ripgrep on this
MEMORY_MB = 300
RUNS = 3
FAILED_RANK, SILENT_RANK = 37, 11
STEP = "[rank{rank}]: 2026-11-20 {clock} INFO trainer.py:88 epoch {epoch} step {step} loss {x:.4f} lr {y:.2e} tok/s {n}"
CHATTER = (
    "node-{host}:{pid}:{pid} [{local}] NCCL INFO Channel {c:02d}/24 : {rank}[{local}] -> {peer}[{local}] via P2P/CUMEM",
    "node-{host}:{pid}:{pid} [{local}] NCCL INFO Trees [0] {peer}/-1/-1->{rank}->-1 [1] {peer}/-1/-1->{rank}->-1",
    "[rank{rank}]: /opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py:617: UserWarning: slow",
    "[rank{rank}]:   warnings.warn(",
    "[rank{rank}]: gradient norm {x:.4f}, allocated 61.20 GiB, reserved 70.11 GiB",
    "\rEpoch {epoch}:  {c}%|####      | {n}/9000 [01:10<02:10, 43.11it/s]",
)
OOM = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/home/me/train.py", line 214, in main
[rank{rank}]:     loss = model(batch)
[rank{rank}]:   File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1778, in _call_impl
[rank{rank}]:     return forward_call(*args, **kwargs)
[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of \
79.15 GiB of which 1.02 GiB is free. Process 4711 has 78.12 GiB memory in use. Of the allocated memory 76.31 GiB is \
allocated by PyTorch, and 812.40 MiB is reserved by PyTorch but unallocated.
"""
TIMEOUT = (
    "[rank{rank}]:[E1120 11:59:58.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=8814, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) "
    "ran for 600012 milliseconds before timing out.\n"
)


def write_big_log(path: Path, size_bytes: int = SIZE_BYTES, seed: int = 7) -> None:
    """A log of about ``size_bytes``; the same for the same seed."""
    random_ = random.Random(seed)
    parts = [_part(random_, number) for number in range(PARTS)]
    written = 0
    with path.open("w", encoding="ascii", newline="") as file:
        failed = False
        while written < size_bytes:
            written += file.write(
                parts[random_.randrange(PARTS) if written < size_bytes // 2 else random_.randrange(2)]
            )
            if not failed and written > size_bytes // 2:
                failed = True
                file.write(OOM.format(rank=FAILED_RANK))
                parts = [_without(part, FAILED_RANK, SILENT_RANK) for part in parts[:2]]
        for rank in range(64):
            if rank not in (FAILED_RANK, SILENT_RANK):
                file.write(TIMEOUT.format(rank=rank))


def _part(random_: random.Random, number: int) -> str:
    lines: list[str] = []
    length = 0
    while length < PART_BYTES:
        rank = random_.randrange(64)
        fields: dict[str, float | str] = {
            "rank": rank,
            "peer": (rank + 1) % 64,
            "local": rank % 8,
            "host": rank // 8,
            "pid": 4000 + rank,
        }
        fields |= {"x": random_.random() * 4, "y": random_.random() * 3e-4, "n": random_.randrange(9000)}
        fields |= {"c": random_.randrange(24), "epoch": number, "step": len(lines) // 64}
        fields["clock"] = f"10:{number:02d}:{length * 60 // PART_BYTES % 60:02d}"
        lines.append((random_.choice(CHATTER) if random_.random() < 0.3 else STEP).format(**fields))
        length += len(lines[-1]) + 1
    return "\n".join(lines) + "\n"


def _without(part: str, *ranks: int) -> str:
    marks = tuple(f"[rank{rank}]" for rank in ranks)
    return "".join(line for line in part.splitlines(keepends=True) if not line.startswith(marks))


def rows(size_bytes: int = SIZE_BYTES) -> Iterator[Bar]:
    """The measured figures; ours and the peer's turns alternate, the best of each counts."""
    with tempfile.TemporaryDirectory() as folder:
        log, literals = Path(folder, "train.log"), Path(folder, "literals")
        write_big_log(log, size_bytes)
        literals.write_text(_output_of("literals"))
        peer = [shutil.which("rg") or "grep", "-c", "-F", "-f", str(literals), str(log)]
        times = TIMES_RIPGREP if peer[0].endswith("rg") else TIMES_GREP
        ours: list[float] = []
        theirs: list[float] = []
        memory = 0.0
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run(peer, stdout=subprocess.DEVNULL, check=False)
            theirs.append(time.perf_counter() - began)
            seconds, megabytes, culprit = _output_of("understand", str(log)).split()
            ours.append(float(seconds))
            memory = max(memory, float(megabytes))
            if culprit != str(FAILED_RANK):
                raise SystemExit(f"the rank that failed first is {FAILED_RANK}, not {culprit}")
        name = Path(peer[0]).name
        peer = f"{min(ours):.2f} s, {name} {min(theirs):.2f} s on {size_bytes / 1e9:.2g} GB"
        yield Bar("big-log", min(ours) / min(theirs), times, f"x {name}", peer)
        yield Bar("big-log-memory", memory, MEMORY_MB, "MB", "highest resident memory")


def _output_of(*arguments: str) -> str:
    """Output of this file as a script: a process of its own, so that its peak memory is its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def _main(what: str, *paths: str) -> None:
    import resource

    from ddpwizard.app.logs.analyse import analyse_logs
    from ddpwizard.app.logs.patterns import build_patterns
    from ddpwizard.app.logs.read import find_sources
    from ddpwizard.knowledge.loader import read_knowledge

    knowledge = read_knowledge()
    if what == "literals":
        print("\n".join(sorted({needle.literal for needle in build_patterns(knowledge)})))
        return
    began = time.perf_counter()
    understood = analyse_logs(find_sources(paths), knowledge)
    seconds = time.perf_counter() - began
    culprit = understood.timeline.culprit if understood.timeline else None
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, culprit)


if __name__ == "__main__":
    _main(*sys.argv[1:])
