"""Read and analyse Flight Recorder dumps of many ranks: time relative to torch's own analyser, and memory.

The dumps are generated with frames, as torch writes them, and deleted afterwards. One rank is a call behind.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.flight_recorder_dumps import dump, entry, pickled
from measurement import Bar

RANKS, MANY_RANKS, ENTRIES = 256, 1024, 2000
BEHIND = 7
TIMES_FASTER = 5.0
MEMORY_MB = 2000
RUNS = 3
CALLS = (("all_reduce", [[1024, 1024]]), ("broadcast", [[4096]]), ("all_reduce", [[512]]))
DEPTH, PLACES = 8, 30


def write_dumps(folder: Path, ranks: int, entries: int = ENTRIES) -> None:
    """One file per rank; the last three calls are not done, and one rank has not entered the last."""
    inside = [("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3245)]
    stacks = [
        [*inside, *(("step", "/home/me/train.py", place * 10 + depth) for depth in range(DEPTH))]
        for place in range(PLACES)
    ]
    content = [
        entry(at, op=f"nccl:{op}", sizes=sizes, done=at < entries - 3, frames=stacks[at % PLACES])
        for at in range(entries)
        for op, sizes in [CALLS[at % len(CALLS)]]
    ]
    whole = pickled(dump(content, {"0": range(ranks)}))
    behind = pickled(dump(content[:-1], {"0": range(ranks)}))
    for rank in range(ranks):
        (folder / f"trace_{rank}").write_bytes(behind if rank == BEHIND else whole)


def rows() -> Iterator[Bar]:
    """The measured figures; ours and the peer's turns alternate, the best of each counts."""
    with tempfile.TemporaryDirectory() as name:
        write_dumps(Path(name), RANKS)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(RUNS):
            ours.append(_judged(name)[0])
            theirs.append(_analysed_by_torch(name))
    peer = f"{min(ours):.2f} s, torchfrtrace {min(theirs):.2f} s on {RANKS} ranks x {ENTRIES}, whole processes"
    yield Bar("recorder", min(ours) / min(theirs), 1 / TIMES_FASTER, "x torch", peer)
    with tempfile.TemporaryDirectory() as name:
        write_dumps(Path(name), MANY_RANKS)
        seconds, megabytes = _judged(name)
    yield Bar("recorder-memory", megabytes, MEMORY_MB, "MB", f"{MANY_RANKS} ranks x {ENTRIES} in {seconds:.1f} s")


def _judged(folder: str) -> tuple[float, float]:
    """Seconds of the whole process, and the highest resident memory of it and its workers."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, folder], stdout=subprocess.PIPE, check=True)
    took = time.perf_counter() - began
    culprits, megabytes = done.stdout.decode().split()
    if culprits != str(BEHIND):
        raise SystemExit(f"the rank that is behind is {BEHIND}, not {culprits}")
    return took, float(megabytes)


def _analysed_by_torch(folder: str) -> float:
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("torchfrtrace")), folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if f"missing ranks: {{{BEHIND}}}" not in done.stdout.decode():
        raise SystemExit(f"torchfrtrace printed:\n{done.stdout.decode()[-500:]}")
    return time.perf_counter() - began


def _main(folder: str) -> None:
    import resource

    from ddpwizard.app.triage.flight_recorder.analyse import analyse_records
    from ddpwizard.app.triage.flight_recorder.loader import WORKERS, load_records

    culprits = analyse_records(load_records([folder]).records).culprits
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = WORKERS * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(",".join(map(str, culprits)) or "-", (own + workers) / 1024)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _main(sys.argv[1])
    else:
        for row in rows():
            print(row)
