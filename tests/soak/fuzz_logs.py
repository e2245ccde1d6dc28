"""Fuzz log analysis: no text may crash it or take more than its share of time.

    DDPWIZARD_SOAK_S=600 python tests/soak/fuzz_logs.py

With atheris installed the search is guided by coverage; otherwise texts are random sequences of pieces. A text that
fails is written to the directory DDPWIZARD_SOAK_DIR [default: the current one]; the exit code is then 1.
"""

import hashlib
import importlib
import importlib.util
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.hostile_logs import ALL_PIECES, MOST_S_PER_MB, put_together

SECONDS = float(os.environ.get("DDPWIZARD_SOAK_S", "600"))
FOLDER = Path(os.environ.get("DDPWIZARD_SOAK_DIR", "."))
LEAST_S = 0.5  # allowed for a text of any size


def one(content: bytes) -> None:
    """Analyse one text.

    Raises:
        AssertionError: It took too long.
    """
    from ddpwizard.app.errors import UserError
    from ddpwizard.app.logs.analyse import analyse_logs
    from ddpwizard.app.logs.read import LogInput

    began = time.process_time()
    try:
        analyse_logs([LogInput("/x.log", content=content, size_bytes=len(content))], KNOWLEDGE)
    except UserError:
        return  # empty or binary
    took = time.process_time() - began
    most = LEAST_S + MOST_S_PER_MB * len(content) / 1e6
    assert took <= most, f"{len(content)} bytes took {took:.2f} s, more than {most:.2f}"


def keep(content: bytes, error: BaseException) -> None:
    """Save a text that failed."""
    path = FOLDER / f"failed-{hashlib.sha256(content).hexdigest()[:12]}.log"
    path.write_bytes(content)
    print(f"{path}: {error!r}", file=sys.stderr)


def guided(atheris: Any) -> int:
    """Fuzz guided by coverage (atheris), which ends the process at the first text that fails."""
    with atheris.instrument_imports(include=["ddpwizard.app.logs"]):
        import ddpwizard.app.logs.analyse  # noqa: F401

    def test(content: bytes) -> None:
        try:
            one(content)
        except Exception as error:
            keep(content, error)
            raise

    corpus = FOLDER / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, piece in enumerate(ALL_PIECES):
        (corpus / f"piece-{number}").write_bytes(piece)
    arguments = [sys.argv[0], str(corpus), f"-max_total_time={int(SECONDS)}", "-max_len=20000", "-timeout=60"]
    atheris.Setup(arguments, test)
    atheris.Fuzz()
    return 0


def unguided(seed: int) -> int:
    """Fuzz with random sequences of pieces of real logs, reproducible by the seed."""
    random_ = random.Random(seed)
    until, count, failed = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < until:
        content = put_together(random_, most_bytes=random_.choice([200, 5_000, 100_000, 3_000_000]))
        count += 1
        try:
            one(content)
        except Exception as error:
            keep(content, error)
            failed += 1
    print(f"{count} texts in {SECONDS:.0f} s, seed {seed}: {failed} failed")
    return 1 if failed else 0


def main() -> int:
    """Fuzz guided by coverage if atheris is installed."""
    if importlib.util.find_spec("atheris") is None:
        return unguided(random.randrange(1 << 30))
    return guided(importlib.import_module("atheris"))


if __name__ == "__main__":
    from ddpwizard.knowledge.loader import read_knowledge

    KNOWLEDGE = read_knowledge()
    sys.exit(main())
