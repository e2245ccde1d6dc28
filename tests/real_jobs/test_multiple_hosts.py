"""One job on two hosts: each host is sampled separately, and both samples give one verdict.

The hosts are namespaces of this machine: each has its own name and sees its own processes only.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from helpers.jobs import SCRIPTS, RunningJob, free_port, line_of, running, wait_for, wait_until_idle

pytestmark = [
    pytest.mark.jobs,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make namespaces"),
    pytest.mark.skipif(not shutil.which("nsenter"), reason="needs nsenter"),
]
HOSTS = ("node-a", "node-b")


def own_address() -> str | None:
    """An address of this machine that is not the loopback's; asked of the routing table, nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


@contextmanager
def two_hosts(directory: Path) -> Iterator[dict[str, RunningJob]]:
    """Two ranks on each of two hosts; rank 0 is in a collective of its own."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but the loopback's")
    script = directory / "metrics.py"
    shutil.copy(SCRIPTS / "metrics.py", script)
    port = str(free_port())
    with ExitStack() as stack:
        jobs: dict[str, RunningJob] = {}
        for number, host in enumerate(HOSTS):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}"]
            torchrun += ["--nproc-per-node=2", f"--master-addr={address}", f"--master-port={port}", str(script)]
            isolate = ["unshare", "--pid", "--uts", "--mount", "--fork", "--mount-proc", "sh", "-c"]
            start = [*isolate, f'hostname {host} && exec "$@"', "sh", *torchrun]
            jobs[host] = stack.enter_context(running(start, script, directory))
        yield jobs


def inside(job: RunningJob, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Run ``ddpwizard triage`` on the host of the job."""
    init = wait_for(
        lambda: next((p.pid for p in job.processes() if "--node-rank" in " ".join(p.command[:6])), None),
        "the host's first process",
    )
    enter = ["nsenter", "--target", str(init), "--pid", "--uts", "--mount", f"--wdns={Path.cwd()}"]
    program = [*enter, sys.executable, "-m", "ddpwizard", "triage", *arguments]
    return subprocess.run(program, capture_output=True, timeout=300, check=False)


def both_wait(job: RunningJob) -> bool:
    """Return whether the two ranks of this host are in a collective after the first."""
    document = msgspec.json.decode(inside(job, "--json").stdout)
    rows = [row for each in document.get("jobs", []) for row in each["ranks"] if row["pid"]]
    return len(rows) == 2 and all(row["state"] == "waiting" and row["function"] == "main" for row in rows)


def test_snapshots_of_two_hosts_give_one_verdict(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as jobs:
        for host in HOSTS:
            wait_until_idle(jobs[host])
            wait_for(lambda job=jobs[host]: both_wait(job), f"{host} hangs")
        files = {host: tmp_path / f"triage-{host}.json" for host in HOSTS}
        for host, file in files.items():
            file.write_bytes(inside(jobs[host], "--save", "-").stdout)
        alone = inside(jobs["node-a"])
        assert b"triage --merge" in alone.stdout
    program = [sys.executable, "-m", "ddpwizard", "triage", "--json", "--merge", *map(str, files.values())]
    done = subprocess.run(program, capture_output=True, timeout=300, check=False)
    (found,) = msgspec.json.decode(done.stdout)["jobs"]
    script = tmp_path / "metrics.py"
    assert done.returncode == 1
    assert found["nodes"] == list(HOSTS)
    assert [row["host"] for row in found["ranks"]] == ["node-a", "node-a", "node-b", "node-b"]
    verdict = found["verdict"]
    assert (verdict["culprits"], verdict["cause"]) == ([0], "rank-conditional-collective")
    assert (verdict["where"], verdict["branch"]) == (line_of(script, "HANG"), line_of(script, "BRANCH"))
