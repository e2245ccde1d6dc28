"""Damage Flight Recorder dumps at random and read them: each gives a problem or a record, without a crash.

    python tests/soak/fuzz_flight_recorder.py [COUNT] [SEED]

A dump that fails is written to the directory DDPWIZARD_SOAK_DIR [default: the current one]; the exit code is then 1.
"""

import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.damaged_dumps import mutated, wholesome, with_shared_values

COUNT = 10_000
FOLDER = Path(os.environ.get("DDPWIZARD_SOAK_DIR", "."))
MOST_S = 5.0
MOST_MEMORY_BYTES = 4_000_000_000


def one(content: bytes, folder: Path) -> bool:
    """Return whether a damaged dump could still be read and judged together with an intact one.

    Raises:
        AssertionError: It was neither read nor reported as a problem, or took too long.
    """
    import msgspec
    from ddpwizard.app.triage.flight_recorder.analyse import analyse_records
    from ddpwizard.app.triage.flight_recorder.file_reader import load_file

    path = folder / "trace_1"
    path.write_bytes(content)
    began = time.process_time()
    found = [load_file(folder / f"trace_{rank}", rank) for rank in range(2)]
    records = [each.record for each in found if each.record]
    recorded = analyse_records(records)
    msgspec.json.encode((found, recorded))
    took = time.process_time() - began
    assert took < MOST_S, f"it took {took:.1f} s"
    assert found[1].record or found[1].problem, "neither read nor reported"
    return bool(found[1].record)


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Return how many of ``count`` damaged dumps could be read, and how many failed."""
    random_ = random.Random(seed)
    intact = wholesome()
    read, failed = 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trace_0").write_bytes(intact[0])
        for number in range(count):
            content = mutated(random_, intact[number % len(intact)])
            if number % 4 == 3:
                content = with_shared_values(random_)
            try:
                read += one(content, folder)
            except Exception as error:
                failed += 1
                kept = FOLDER / f"failed-{seed}-{number}.dump"
                kept.write_bytes(content)
                print(f"{kept}: {error!r}", file=sys.stderr)
    return read, failed


def main(arguments: list[str]) -> int:
    """Fuzz under a memory limit, so that a dump that claims too much memory fails."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    count = int(arguments[0]) if arguments else COUNT
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(1 << 30)
    read, failed = fuzz(count, seed)
    print(f"{count} damaged dumps, seed {seed}: {read} could be read, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
