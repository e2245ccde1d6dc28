"""Read dumps in a child process, so that a hostile dump can end that process but not exhaust the machine's memory.

Arguments: the memory limit, then path and rank of each file. Answer: for each file its length (8 bytes) and the answer
as msgpack; it stops early when the answers are many, and is then started again for the rest.
"""

import gc
import os
import resource
import sys
from pathlib import Path

import msgspec

from .file_reader import LoadedFile, load_file

MEMORY_BYTES, MEMORY_PER_BYTE = 500_000_000, 100  # an empty list of one byte takes 64
CPU_S = 10  # for one file, and
BYTES_PER_CPU_S = 2_000_000  # read per second of processor time: a tenth of the usual speed
MOST_ANSWER_BYTES = 64_000_000  # of one file, and of the answers after which it stops


def main() -> None:
    """Write an answer for each file, in order."""
    most_memory_bytes = int(sys.argv[2])
    gc.disable()
    encoder = msgspec.msgpack.Encoder()
    written = 0
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "wb") as answers:
        for path, rank in zip(sys.argv[3::2], sys.argv[4::2], strict=True):
            limit_resources(Path(path), most_memory_bytes)
            answer = encoder.encode(load_file(Path(path), int(rank)))
            if len(answer) > MOST_ANSWER_BYTES:
                answer = encoder.encode(LoadedFile(problem="refused: larger than any record of a rank"))
            answers.write(len(answer).to_bytes(8, "little") + answer)
            answers.flush()
            written += len(answer)
            if written > MOST_ANSWER_BYTES:
                break


def limit_resources(path: Path, most_memory_bytes: int) -> None:
    """Let this process take as much memory and processor time as reading this file may need; more ends it."""
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + CPU_S + size // BYTES_PER_CPU_S
    _set_limit(resource.RLIMIT_AS, min(most_memory_bytes, MEMORY_BYTES + MEMORY_PER_BYTE * size))
    _set_limit(resource.RLIMIT_CPU, seconds)


def _set_limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
