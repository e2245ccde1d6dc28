"""Dumps of real gloo jobs with deliberate mismatches: kind, ranks and lines are found from the dumps alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpwizard.app.triage.flight_recorder.analyse import analyse_records
from ddpwizard.app.triage.flight_recorder.loader import load_records
from ddpwizard.app.triage.flight_recorder.report import report_from_records
from ddpwizard.app.triage.flight_recorder.types import Finding, RecorderVerdict, Records
from helpers.jobs import SCRIPTS, line_of, wait_for
from helpers.torchrun_server import TORCHRUN, torchrun_running

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
RANKS = 4


@contextmanager
def dumping(case: str, directory: Path) -> Iterator[tuple[Path, Path]]:
    """The script of a job that hangs, and the folder into which it writes its dumps meanwhile."""
    script, folder = directory / "recorder_cases.py", directory / "dumps"
    script.write_text((SCRIPTS / "recorder_cases.py").read_text())
    folder.mkdir()
    command = [*TORCHRUN, "--standalone", f"--nproc-per-node={RANKS}", str(script), case, str(folder)]
    with torchrun_running(command, directory=directory, environ=os.environ):
        yield script, folder


def dumps(folder: Path, prefix: str) -> Records:
    """Return the dumps of the ranks so far, in one of the two formats."""
    return load_records(sorted(folder.glob(f"{prefix}_*")))


def at_rest(folder: Path, kind: str, culprits: list[int], prefix: str = "trace") -> tuple[Finding, RecorderVerdict]:
    """Return the verdict from the dumps once the ranks hang. One rank may have no dump: gloo aborts a process that
    receives more than it expects."""

    def verdict() -> tuple[Finding, RecorderVerdict] | None:
        records = dumps(folder, prefix)
        if len(records.records) < RANKS - 1:
            return None
        found = analyse_records(records.records, world_size=RANKS)
        first = [each for each in found.findings if not each.follows]
        return (first[0], found) if [(each.kind, each.culprits) for each in first] == [(kind, culprits)] else None

    return wait_for(verdict, f"the dumps in {folder} show {kind}", limit_s=120)


@pytest.mark.parametrize(
    ("case", "kind", "culprits", "odd", "rest"),
    [
        ("missing", "missing", [2], None, "MISSING"),
        ("other_op", "op", [2], "OP ODD", "OP REST"),
        pytest.param("other_dtype", "dtype", [2], "DTYPE", "DTYPE", marks=pytest.mark.calibration),
        pytest.param("other_size", "size", [2], "SIZE", "SIZE", marks=pytest.mark.calibration),
        pytest.param("other_order", "order", [2], "ORDER ODD", "ORDER REST", marks=pytest.mark.calibration),
        pytest.param("wrong_group", "wrong_group", [2], "GROUP ODD", "GROUP REST", marks=pytest.mark.calibration),
        ("group_cycle", "group_cycle", [0, 1], "CYCLE LEFT", "CYCLE RIGHT"),
        pytest.param("timed_out", "missing", [2], None, "TIMEOUT", marks=pytest.mark.calibration),
    ],
)
def test_gloo_mismatch(case: str, kind: str, culprits: list[int], odd: str | None, rest: str, tmp_path: Path) -> None:
    with dumping(case, tmp_path) as (script, folder):
        finding, found = at_rest(folder, kind, culprits)
        assert found.culprits == finding.culprits == culprits
        assert (found.confidence < 0.5) == (case == "group_cycle")
        lines = {rank: side.where for side in finding.sides for rank in side.ranks}
        if odd:
            assert lines[culprits[0]] == line_of(script, odd)
        other = next(rank for rank in range(RANKS) if rank not in culprits[:1] and rank in lines)
        assert lines[other] == line_of(script, rest)
        judged = report_from_records(dumps(folder, "trace")).verdict
        assert (judged.state, judged.culprits) == ("hung", culprits)
        without_frames, _ = at_rest(folder, kind, culprits, "json")
        assert without_frames.culprits == culprits


def test_gloo_records_no_send_or_receive(tmp_path: Path) -> None:
    """Gloo does not record send and recv, so only the stacks show ranks that wait for each other."""
    with dumping("pairs", tmp_path) as (_, folder):

        def at_rest_alike() -> Records | None:
            """A dump of one rank may be older than what the others did since; they are written again and again."""
            found = dumps(folder, "trace")
            return found if len(found.records) == RANKS and not analyse_records(found.records).culprits else None

        records = wait_for(at_rest_alike, "all ranks dumped, and none is behind")
        assert all(not call.p2p for record in records.records for call in record.calls)
