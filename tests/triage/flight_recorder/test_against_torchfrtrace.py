"""The culprits include those that PyTorch's own analyser finds in the same dumps."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.triage.flight_recorder.analyse import analyse_records
from ddpwizard.app.triage.flight_recorder.loader import load_records
from helpers.flight_recorder_dumps import dump, entry, write

pytestmark = [pytest.mark.slow, pytest.mark.calibration]
PEER = Path(sys.executable).with_name("torchfrtrace")
RANKS, ODD = 4, 2
NAMED = re.compile(r"missing ranks: \{([\d, ]+)\}|Culprit rank (\d+)")


@pytest.fixture(scope="module", autouse=True)
def _peer() -> None:
    if not PEER.exists() or subprocess.run([str(PEER), "--help"], capture_output=True, check=False).returncode:
        pytest.skip("torchfrtrace does not run here")


def last(rank: int, kind: str) -> list[dict[str, Any]]:
    """Return the last entry of a rank in a job where one rank differs."""
    odd: dict[str, dict[str, Any]] = {
        "op": {"op": "nccl:broadcast"},
        "size": {"sizes": [[7]], "out": [[7]]},
        "dtype": {"dtype": "Half"},
    }
    if rank == ODD and kind == "missing":
        return []
    return [entry(3, done=False, **(odd[kind] if rank == ODD else {}))]


@pytest.mark.parametrize("kind", ["missing", "op", "size", "dtype"])
def test_culprits_include_those_of_torchfrtrace(kind: str, tmp_path: Path) -> None:
    dumps = {
        rank: dump([*(entry(at) for at in range(3)), *last(rank, kind)], {"0": range(RANKS)}) for rank in range(RANKS)
    }
    write(tmp_path, dumps)
    done = subprocess.run([str(PEER), str(tmp_path)], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    theirs = {int(rank) for missing, one in NAMED.findall(output) for rank in (missing or one).split(",")}
    found = analyse_records(load_records([tmp_path]).records)
    assert theirs, output
    assert found.culprits == [ODD]
    assert found.findings[0].kind == kind
    assert theirs <= set(found.culprits), output
