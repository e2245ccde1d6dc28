"""Read dumps in a child process, so that a hostile dump can end that process but not exhaust the machine's memory.

Standard input: a JSON list of (path, rank). Standard output: for each file the length of the answer (8 bytes) and the
answer as msgpack.
"""

import gc
import resource
import sys
from pathlib import Path

import msgspec

from .loader import load_file

MOST_MEMORY_BYTES = 6_000_000_000


def main() -> None:
    """Write an answer for each file, in order."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MOST_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MOST_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    gc.disable()
    encoder = msgspec.msgpack.Encoder()
    for path, rank in msgspec.json.decode(sys.stdin.buffer.read(), type=list[tuple[str, int]]):
        answer = encoder.encode(load_file(Path(path), rank, limited=True))
        sys.stdout.buffer.write(len(answer).to_bytes(8, "little") + answer)
        sys.stdout.buffer.flush()
