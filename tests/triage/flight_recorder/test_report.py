"""Triage results from Flight Recorder records: rank rows, verdicts, and their use for a live job."""

from pathlib import Path
from typing import Any, get_args

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.triage.flight_recorder.loader import load_records
from ddpwizard.app.triage.flight_recorder.parse import parse_dump
from ddpwizard.app.triage.flight_recorder.report import (
    FINDINGS,
    add_record_to_row,
    report_from_records,
    verdict_from_records,
)
from ddpwizard.app.triage.flight_recorder.types import FindingKind
from ddpwizard.app.triage.types import Observation, ProcessDeath, RankRow
from helpers.built_in_knowledge import built_in_knowledge
from helpers.flight_recorder_dumps import dump, entry, pickled, write


def dumps(odd: int | None = 1) -> dict[int, dict[str, Any]]:
    """Return the dumps of three ranks, one of which has not entered the last call."""
    last = entry(2, done=False)
    return {rank: dump([entry(0), entry(1), *([] if rank == odd else [last])], {"0": range(3)}) for rank in range(3)}


def observed(odd: int | None = 1, **more: Any) -> Observation:
    job = Job(
        launcher="torchrun",
        launcher_pid=1,
        launcher_command=[],
        world_size=3,
        master="",
        host="node-1",
        processes=[],
    )
    records = [parse_dump(pickled(content), rank) for rank, content in dumps(odd).items()]
    return Observation(job=job, seen=[], records=records, **more)


def test_every_finding_kind_has_a_declared_finding() -> None:
    declared = built_in_knowledge().probes["job"].findings
    assert set(FINDINGS) == set(get_args(FindingKind))
    assert all(finding.removeprefix("job.") in declared for finding in FINDINGS.values())


def test_report_from_records_of_a_directory(tmp_path: Path) -> None:
    folder = write(tmp_path / "hang-7", dumps(), prefix="nccl_trace_node-07_rank_")
    (folder / "nccl_trace_node-07_rank_2").write_bytes(b"\x80\x02}")
    report = report_from_records(load_records([folder]))
    assert (report.job.id, report.launcher, report.world_size, report.nodes) == (
        "recorder-hang-7",
        "recorder",
        3,
        ["node-07"],
    )
    assert [(row.rank, row.state, row.collective, row.seq) for row in report.ranks] == [
        (0, "waiting", "all_reduce", 3),
        (1, "running", None, None),
        (2, "unreadable", None, None),
    ]
    assert report.ranks[0].where == "/home/me/train.py:24"
    assert (report.ranks[0].group, report.ranks[0].since_s, report.ranks[0].since_from) == (
        "default_pg",
        0.0,
        "recorder",
    )
    verdict = report.verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("hung", None, [1])
    assert (verdict.collective, verdict.where) == ("all_reduce", "/home/me/train.py:24")
    assert verdict.findings == ["job.recorder-rank-behind"]
    assert verdict.why == (
        "Rank 0 waits in all_reduce (number 3 of default_pg). Rank 1 has not entered it. "
        "Rank 1 last communicated at train.py:24."
    )


def test_agreeing_records_are_not_reported_as_a_hang(tmp_path: Path) -> None:
    folder = write(tmp_path, {rank: dump([entry(0)], {"0": range(2)}) for rank in range(2)})
    assert report_from_records(load_records([folder])).verdict.state == "unknown"


def test_unreadable_dumps_raise_user_error(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(b"no dump")
    with pytest.raises(UserError, match="trace_0: neither a pickle nor JSON"):
        report_from_records(load_records([tmp_path]))


def test_verdict_from_records_of_a_live_job() -> None:
    verdict = verdict_from_records(observed())
    assert verdict is not None
    assert (verdict.cause, verdict.culprits) == (None, [1])
    died = ProcessDeath(pid=1, rank=1, how="signal", what="Killed", where="kernel log")
    verdict = verdict_from_records(observed(deaths=[died]))
    assert verdict is not None
    assert verdict.cause == "rank-died-survivors-wait"
    assert verdict_from_records(Observation(job=observed().job, seen=[])) is None


def test_add_record_to_row_adds_group_seq_and_waiting_time() -> None:
    record = parse_dump(pickled(dumps()[0]), 0, taken_at=1_760_000_010.002)
    row = RankRow(
        rank=0,
        local_rank=0,
        pid=1,
        host="h",
        state="waiting",
        where="a.py:1",
        function="f",
        collective="barrier",
        group=None,
        seq=None,
        since_s=1.0,
        since_from="samples",
    )
    joined = add_record_to_row(row, record)
    assert (joined.collective, joined.group, joined.seq, joined.since_s) == ("barrier", "default_pg", 3, 10.0)
    assert joined.since_from == "recorder"
