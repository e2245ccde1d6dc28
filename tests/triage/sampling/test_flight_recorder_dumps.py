"""Dumps written by the ranks of a living job: found by prefix, read only if they belong to this job."""

import asyncio
import os
import threading
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.triage.sampling import flight_recorder_dumps
from ddpwizard.app.triage.types import RankRecord
from helpers.flight_recorder_dumps import dump, entry, pickled
from helpers.synthetic_job import job


def read_dumps(job: Job) -> tuple[list[RankRecord], list[str]]:
    return asyncio.run(flight_recorder_dumps.read_dumps(job, 60))


@pytest.fixture
def own(tmp_path: Path) -> Job:
    """Return a job whose only rank is this process, with its own dump prefix."""
    plain = job(1, TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "trace_"))
    process = msgspec.structs.replace(plain.processes[0], pid=os.getpid(), started_at=1000.0)
    return msgspec.structs.replace(plain, processes=[process])


def test_dump_of_this_job_is_read(own: Job, tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(pickled(dump([entry(1)])))
    records, problems = read_dumps(own)
    assert ([record.rank for record in records], problems) == ([0], [])


def test_dump_older_than_the_job_is_ignored(own: Job, tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(pickled(dump([entry(1)])))
    os.utime(tmp_path / "trace_0", (500.0, 500.0))
    assert read_dumps(own) == ([], [])


def test_invalid_dump_is_a_problem(own: Job, tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(b"\x80\x02junk")
    records, problems = read_dumps(own)
    assert records == []
    assert "trace_0" in problems[0]


def test_no_dumps(own: Job) -> None:
    assert read_dumps(own) == ([], [])
    assert "ddpwizard run" in flight_recorder_dumps.how_to_enable(own)


def test_rank_that_reads_its_pipe_writes_a_dump(own: Job, tmp_path: Path) -> None:
    """A thread replaces NCCL's: it creates the pipe, waits for a line, and dumps."""
    os.mkfifo(tmp_path / "ask_0.pipe")
    environ = own.processes[0].environ | {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_")}
    asked = msgspec.structs.replace(own, processes=[msgspec.structs.replace(own.processes[0], environ=environ)])
    pipe = os.open(tmp_path / "ask_0.pipe", os.O_RDWR | os.O_NONBLOCK)
    os.set_blocking(pipe, True)

    def listen() -> None:
        assert os.read(pipe, 10) == b"1\n"
        (tmp_path / "part").write_bytes(pickled(dump([entry(1)])))
        (tmp_path / "part").replace(tmp_path / "trace_0")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    flight_recorder_dumps.request_dumps(asked, limit_s=20)
    thread.join(20)
    os.close(pipe)
    assert [record.rank for record in read_dumps(asked)[0]] == [0]


def test_pipe_without_reader_is_ignored(own: Job, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask_0.pipe")
    environ = own.processes[0].environ | {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_")}
    asked = msgspec.structs.replace(own, processes=[msgspec.structs.replace(own.processes[0], environ=environ)])
    flight_recorder_dumps.request_dumps(asked, limit_s=0.5)
    assert read_dumps(asked) == ([], [])


def test_how_to_enable_names_the_pipe() -> None:
    assert "echo 1 > /tmp/p_RANK.pipe" in flight_recorder_dumps.how_to_enable(
        job(2, TORCH_NCCL_DEBUG_INFO_PIPE_FILE="/tmp/p_")
    )
