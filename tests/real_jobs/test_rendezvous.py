"""A torchrun that waits for other nodes is recognised: missing nodes, expected ranks, next step."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpwizard.app.jobs import discover
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport, JobState
from helpers.jobs import SCRIPTS, RunningJob, free_port, running, triage_until, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

TOGETHER = (
    "import subprocess, sys\n"
    "agents = [subprocess.Popen(sys.argv[2:]) for _ in range(int(sys.argv[1]))]\n"
    "[agent.wait() for agent in agents]\n"
)


@contextmanager
def agents(count: int, directory: Path, *options: str, **environ: str) -> Iterator[RunningJob]:
    """So many torchruns with the same options, each one node, below one parent."""
    script = directory / "steps.py"
    script.write_text((SCRIPTS / script.name).read_text())
    one = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
    with running([sys.executable, "-c", TOGETHER, str(count), *one], script, directory, **environ) as job:
        yield job


def launchers(job: RunningJob) -> list[int]:
    return sorted(proc.pid for proc in job.processes() if "torch.distributed.run" in proc.command[:4])


def settled(job: RunningJob, count: int, state: JobState) -> JobReport:
    """Return the report once all agents wait at the rendezvous."""
    wait_for(lambda: len(launchers(job)) == count, "every agent is there")

    def waits() -> JobReport | None:
        report = asyncio.run(triage_jobs(pid=launchers(job)[0]))[0]
        matches = "waits at the rendezvous" in report.verdict.why and len(report.observed.launchers) == count
        return report if matches and report.verdict.state == state else None

    return wait_for(waits, "it waits at the rendezvous")


def met(port: int) -> list[str]:
    return ["--rdzv-backend=c10d", "--rdzv-id=evening", f"--rdzv-endpoint=127.0.0.1:{port}"]


def test_one_of_two_nodes(tmp_path: Path) -> None:
    with agents(1, tmp_path, "--nnodes=2", "--nproc-per-node", "3", *met(free_port())) as job:
        report = settled(job, 1, "hung")
        verdict = report.verdict
        assert (verdict.cause, verdict.culprits, report.world_size) == ("ranks-missing-at-init", [], 6)
        assert "1 of 2 nodes has arrived, 1 is missing" in verdict.why
        assert "6 ranks, 3 on each" in verdict.why
        assert "127.0.0.1 is only reachable from this host" in verdict.why
        assert [row.state for row in report.ranks] == ["missing"] * 6
        assert report.job.id in {found.id for found in discover.find_jobs()}, "it is found without a pid"
        assert discover.job_of_pid(job.pid)[0].id == report.job.id, "what started it selects it"


@pytest.mark.parametrize("options", [["--nnodes=3:5", "--nproc-per-node=2"], []], ids=["options", "variables"])
def test_two_of_three_to_five_nodes(options: list[str], tmp_path: Path) -> None:
    environ = {} if options else {"PET_NNODES": "3:5", "PET_NPROC_PER_NODE": "2"}
    with agents(2, tmp_path, *options, *met(free_port()), **environ) as job:
        report = settled(job, 2, "hung")
        assert (report.verdict.cause, report.world_size) == ("ranks-missing-at-init", 6)
        assert "2 of 3 to 5 nodes have arrived, 1 is missing" in report.verdict.why
        assert "at least 6 ranks, 2 on each" in report.verdict.why


def test_first_node_of_three_without_a_store_to_meet_at(tmp_path: Path) -> None:
    address = ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    with agents(1, tmp_path, "--nnodes=3", "--node-rank=0", "--nproc-per-node=cpu", *address) as job:
        report = settled(job, 1, "hung")
        assert "1 of 3 nodes has arrived, nodes 1, 2 are missing" in report.verdict.why
        assert report.world_size == 3 * (os.cpu_count() or 1)


def test_accelerate_that_waits_for_its_other_machine(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text((SCRIPTS / script.name).read_text())
    options = ["--num_machines=2", "--num_processes=4", "--machine_rank=0", "--multi_gpu", "--mixed_precision=no"]
    options += ["--main_process_ip=127.0.0.1", f"--main_process_port={free_port()}", "--dynamo_backend=no"]
    launch = [sys.executable, str(Path(sys.executable).with_name("accelerate")), "launch", *options, str(script)]
    with running(launch, script, tmp_path) as job:

        def waits() -> JobReport | None:
            report = asyncio.run(triage_jobs(pid=job.pid))[0]
            return report if report.verdict.cause == "ranks-missing-at-init" else None

        report = wait_for(waits, "it waits at the rendezvous")
        assert (report.job.launcher, report.world_size) == ("accelerate", 4)
        assert "1 of 2 nodes has arrived" in report.verdict.why
        assert "--machine_rank" in report.verdict.why


def test_job_whose_nodes_have_all_come(tmp_path: Path) -> None:
    with agents(2, tmp_path, "--nnodes=2", "--nproc-per-node=1", *met(free_port())) as job:
        wait_for(lambda: len(job.ranks()) == 2, "both ranks are there")
        report = triage_until(job.ranks()[0], "progressing")
        assert (report.world_size, len(report.ranks)) == (2, 2)
        assert not [
            found for found in discover.find_jobs() if found.launcher_pid in launchers(job) and not found.processes
        ]
