"""Any process of any user may claim to be a rank: what it claims costs neither memory nor the verdict on other jobs."""

import asyncio
import os
import shlex
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.commands.triage import report_lines
from ddpwizard.app.errors import UserError
from ddpwizard.app.jobs import discover
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.launchers.rank_variables import rank_from_environment
from ddpwizard.app.system import run_directory
from ddpwizard.app.triage import saved, triage
from ddpwizard.app.triage.other_hosts import commands_for_other_hosts
from ddpwizard.app.triage.sampling import deaths, flight_recorder_dumps
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport, Observation
from ddpwizard.app.triage.verdict import judge_job
from helpers.built_in_knowledge import built_in_knowledge
from helpers.synthetic_job import job

INJECTED = "7; touch /tmp/injected #"


@pytest.mark.parametrize("claim", ["20000000", "999999999"])
def test_process_that_claims_too_many_ranks_is_no_rank(claim: str) -> None:
    assert rank_from_environment({"RANK": "0", "WORLD_SIZE": claim, "LOCAL_RANK": "0"}) is None


def test_claim_of_too_many_ranks_on_a_node_is_ignored() -> None:
    found = rank_from_environment({"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "999999999"})
    assert found
    assert found.local_world_size is None


def test_nested_error_file_is_ignored(tmp_path: Path) -> None:
    text = '{"message":' + "[" * 400_000
    assert deaths.deaths_in_error_files([deaths.ErrorFile(str(tmp_path), 0, 1, text)], job(1)) == []


def test_sparse_record_is_not_read_into_memory(tmp_path: Path) -> None:
    with (tmp_path / "7.json").open("wb") as file:
        file.truncate(3_000_000_000_000)
    assert run_directory.read_record(tmp_path / "7.json") is None


def test_pipe_is_no_record(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "7.json")
    assert run_directory.read_record(tmp_path / "7.json") is None


def uninspected(**environ: str) -> JobReport:
    """Return a job of two ranks, of which one is on another host."""
    whole = job(2, None, **environ)
    here = msgspec.structs.replace(whole, processes=whole.processes[:1])
    report = judge_job(Observation(job=here, seen=[]))
    return msgspec.structs.replace(report, ranks=[msgspec.structs.replace(report.ranks[0], state="unreadable")])


def test_commands_hold_no_claim_of_a_process_unquoted() -> None:
    report = uninspected(SLURM_JOB_ID=INJECTED, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"/tmp/{INJECTED}")
    assert "touch" not in " ".join(commands_for_other_hosts(report))
    by_hand = flight_recorder_dumps.how_to_enable(report.job).partition("by hand: ")[2]
    assert shlex.split(by_hand.removesuffix(")"))[:4] == ["echo", "1", ">", f"/tmp/{INJECTED}RANK.pipe"]
    assert "srun --jobid=4711_3 " in " ".join(commands_for_other_hosts(uninspected(SLURM_JOB_ID="4711_3")))


def test_job_that_cannot_be_inspected_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [msgspec.structs.replace(job(1), launcher_pid=pid) for pid in (11, 12)]

    async def sample(given: Job, **_: object) -> JobReport:
        if given.launcher_pid == 11:
            raise RecursionError("maximum recursion depth exceeded")
        return msgspec.structs.replace(uninspected(), observed=Observation(job=given, seen=[]))

    monkeypatch.setattr(discover, "find_jobs", lambda: jobs)
    monkeypatch.setattr(triage, "sample_job", sample)
    reports = asyncio.run(triage_jobs())
    assert {report.job.launcher_pid for report in reports} == {11, 12}
    lines = next(report_lines(report, built_in_knowledge()) for report in reports if report.job.launcher_pid == 11)
    assert any("could not be inspected: RecursionError" in line for line in lines)


def test_bundle_that_claims_too_many_ranks_is_refused(tmp_path: Path) -> None:
    claim = msgspec.structs.replace(job(2), world_size=1_000_000_000)
    (tmp_path / "b.json").write_bytes(saved.encode_bundle([Observation(job=claim, seen=[])]))
    with pytest.raises(UserError, match="claims rank 999,999,999"):
        saved.read_bundle(tmp_path / "b.json")


def test_bundle_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UserError, match="not a regular file"):
            saved.read_bundle(path)
