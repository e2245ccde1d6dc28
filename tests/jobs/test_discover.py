"""Jobs among real processes; launchers by their command line."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from ddpwizard.app.commands import triage
from ddpwizard.app.errors import InspectionError, UserError
from ddpwizard.app.jobs import discover, other_processes
from ddpwizard.app.jobs.shared_port import shared_port_note
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.launchers.recognise import is_wizard, launcher_name
from ddpwizard.app.snapshot import Gpu, GpuProcess
from ddpwizard.app.system import proc_files, procfs
from helpers.jobs import free_port, wait_for

SLEEPER = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(600)"
PARENT = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture
def port() -> str:
    """A MASTER_PORT of this test alone: all ranks of the machine with one port are one job."""
    return str(free_port())


@contextmanager
def processes(*commands: tuple[Sequence[str], dict[str, str]]) -> Iterator[list[int]]:
    """Real processes with extra environment: started before the body runs, ended after it."""
    started = [
        subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE)
        for command, environ in commands
    ]
    try:
        for process in started:
            assert process.stdout and process.stdout.readline() == b"up\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            for pid in [p.pid for p in procfs.all_processes().values() if p.parent == process.pid]:
                os.kill(pid, 9)
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()


def rank(number: int, world: int, port: str, run_id: str = "", **more: str) -> tuple[list[str], dict[str, str]]:
    place = {"RANK": str(number), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [sys.executable, "-c", SLEEPER], {**place, **({"TORCHELASTIC_RUN_ID": run_id} if run_id else {}), **more}


def job_of(pid: int) -> Job:
    (job,) = discover.job_of_pid(pid)
    return job


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/v/bin/python -m torch.distributed.run --standalone train.py", "torchrun"),
        ("/v/bin/python3.11 /v/bin/torchrun --nproc-per-node=4 train.py", "torchrun"),
        ("python -u -X dev -m torch.distributed.launch train.py", "torchrun"),
        ("python /v/lib/torch/distributed/run.py train.py", "torchrun"),
        ("python /v/bin/accelerate launch train.py", "accelerate"),
        ("python /v/bin/accelerate env", None),
        ("python -m accelerate.commands.launch train.py", "accelerate"),
        ("python /v/bin/deepspeed train.py", "deepspeed"),
        ("mpirun -n 4 python train.py", "mpirun"),
        ("srun: python", "srun"),
        ("slurmstepd: [4711.0]", "srun"),
        ("/opt/mpich/bin/hydra_pmi_proxy --control-port box:4711", "mpirun"),
        ("python /v/lib/accelerate/commands/accelerate_cli.py launch train.py", "accelerate"),
        ("/v/bin/python -u -m deepspeed.launcher.launch --world_info=e30= train.py", "deepspeed"),
        ("python train.py torchrun", None),
        ("python -c import_torchrun", None),
        ("python", None),
        ("vim torchrun", None),
        ("", None),
    ],
)
def test_launcher_name_of_a_command_line(command: str, name: str | None) -> None:
    assert launcher_name(command.split()) == name


def test_ranks_with_one_master_are_one_job(port: str) -> None:
    with processes(rank(1, 3, port), rank(0, 3, port), rank(0, 1, str(free_port()))) as (second, first, other):
        job = job_of(first)
        assert [(p.pid, p.rank) for p in job.processes] == [(first, 0), (second, 1)]
        assert (job.world_size, job.master, job.launcher, job.launcher_pid) == (3, f"127.0.0.1:{port}", "python", None)
        assert [p.pid for p in job_of(other).processes] == [other]
        assert job.processes[0].python == sys.executable


@pytest.mark.parametrize("command", [["python", "/v/bin/torchrun", "train.py"], []], ids=["container", "kthreadd"])
def test_process_2_of_a_container_is_no_kernel_thread(port: str, command: list[str]) -> None:
    with processes(rank(0, 2, port), rank(1, 2, port)) as pids:
        found = procfs.all_processes()
        found[2] = procfs.Proc(2, 1, "S", 0.0, 0.0, os.getuid())
        found[2].__dict__["command"] = command
        for pid in pids:
            found[pid].parent = 2
        jobs = [job for job in discover.find_jobs(found) if job.master == f"127.0.0.1:{port}"]
        assert [(job.launcher, len(job.processes)) for job in jobs] == ([("torchrun", 2)] if command else [])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a network namespace")
def test_loopback_master_in_another_container_is_another_job(port: str) -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("network namespaces are not permitted here")
    command, environ = rank(1, 2, port)
    with processes(rank(0, 2, port), (["unshare", "--net", *command], environ)) as (here, elsewhere):
        assert [p.pid for p in job_of(here).processes] == [here]
        assert [p.pid for p in job_of(elsewhere).processes] == [elsewhere]


def test_ranks_left_over_from_an_older_run_are_a_job_of_their_own(port: str) -> None:
    with processes(rank(1, 3, port), rank(2, 3, port)) as old:
        newest = max(procfs.all_processes()[pid].started_s for pid in old)
        wait_for(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > newest + 1.0, "a pause between the runs")
        with processes(rank(0, 3, port), rank(1, 3, port)) as new:
            jobs = [job for job in discover.find_jobs() if job.master == f"127.0.0.1:{port}"]
            found = sorted(sorted(process.pid for process in job.processes) for job in jobs)
            assert found == sorted([sorted(old), sorted(new)])
            older, newer = (job_of(run[0]) for run in (old, new))
            note = shared_port_note(newer, [older, newer])
            assert f"another run uses 127.0.0.1:{port} as well: 2 ranks, pid " in note and str(old[0]) in note
            assert shared_port_note(older, [older, newer]) == ""


def test_run_ids_separate_jobs_that_share_a_port(port: str) -> None:
    with processes(rank(0, 2, port, "a"), rank(1, 2, port, "b")) as (one, two):
        assert job_of(one).id != job_of(two).id
        assert job_of(one).launcher == "torchrun"


def test_child_of_a_rank_selects_its_job_and_is_no_rank(port: str) -> None:
    command, environ = rank(0, 1, port)
    with processes(([sys.executable, "-c", PARENT, SLEEPER], environ)) as (parent,):
        assert command
        children = wait_for(
            lambda: [p.pid for p in procfs.all_processes().values() if p.parent == parent and p.command], "child"
        )
        assert [p.pid for p in job_of(parent).processes] == [parent]
        assert job_of(children[0]).id == job_of(parent).id


def test_own_process_is_no_rank_though_its_shell_exports_one(port: str) -> None:
    code = (
        "import os\nfrom ddpwizard.app.jobs import discover\n"
        "print([p.pid for j in discover.find_jobs() for p in j.processes].count(os.getpid()))"
    )
    _, environ = rank(0, 1, port)
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr


def test_wizard_process_is_no_rank() -> None:
    assert is_wizard(["python", "/v/bin/ddpwizard", "run", "--", "torchrun"])
    assert is_wizard(["python", "-m", "ddpwizard", "triage"])
    assert is_wizard(["python", "-IS", "/v/ddpwizard/app/system/supervisor.py", "3", "60", "--", "torchrun"])
    assert not is_wizard(["python", "train.py", "ddpwizard"])


@pytest.mark.parametrize(
    ("places", "name"),
    [
        (
            [{"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": r} for r in "01"],
            "mpi",
        ),
        ([{"PMI_RANK": r, "PMI_SIZE": "2", "MPI_LOCALRANKID": r} for r in "01"], "pmi"),
        (
            [
                {"SLURM_PROCID": r, "SLURM_NTASKS": "2", "SLURM_LOCALID": r, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
                for r in "01"
            ],
            "slurm",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ranks_of_mpi_and_slurm(places: list[dict[str, str]], name: str, port: str) -> None:
    assert name
    with processes(*(([sys.executable, "-c", SLEEPER], place | {"MASTER_PORT": port}) for place in places)) as pids:
        job = job_of(pids[0])
        assert [(p.pid, p.rank, p.local_rank) for p in job.processes] == [(pids[0], 0, 0), (pids[1], 1, 1)]
        assert job.world_size == 2
        assert job.id in {found.id for found in discover.find_jobs()}


def test_single_process_of_a_batch_script_is_no_job(port: str) -> None:
    place = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "8", "MASTER_PORT": port}
    with processes(([sys.executable, "-c", SLEEPER], place)) as (pid,):
        assert not [job for job in discover.find_jobs() if pid in {p.pid for p in job.processes}]
        assert job_of(pid).world_size == 1


def test_slurm_process_that_starts_ranks_is_no_rank(port: str) -> None:
    _, environ = rank(1, 2, port)
    outer = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "9"}
    code = (
        f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]], env=os.environ | {environ})"
    )
    with processes(([sys.executable, "-c", code, SLEEPER], outer)) as (parent,):
        child = wait_for(lambda: [p for p in procfs.all_processes().values() if p.parent == parent], "child")[0]
        assert [(p.pid, p.rank) for p in job_of(parent).processes] == [(child.pid, 1)]


def test_zombie_ranks_are_numbered_by_start_order(port: str) -> None:
    """Ranks 0 to 4, of which 1, 2 and 4 are zombies."""
    code = (
        "import os, subprocess, sys, time\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', sys.argv[1] if r in (0, 3) else ''],"
        " env=os.environ | {'RANK': str(r), 'WORLD_SIZE': '5'}) for r in range(5)]\n"
        "time.sleep(600)"
    )
    with processes(([sys.executable, "-c", code, SLEEPER], {"MASTER_PORT": port})) as (parent,):

        def ended() -> list[int]:
            below = [p for p in procfs.all_processes().values() if p.parent == parent]
            return [p.pid for p in below if p.state == "Z"]

        wait_for(lambda: len(ended()) == 3, "three have ended")
        one, two, four = sorted(ended())
        job = job_of(parent)
        assert [(p.rank, p.pid) for p in job.processes if not p.command] == [(1, one), (2, two), (4, four)]
        assert job_of(two).id == job.id


def test_jobs_of_other_users_are_counted_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def proc(pid: int, parent: int, uid: int, *command: str) -> procfs.Proc:
        made = procfs.Proc(pid, parent, "S", 0.0, 0.0, uid)
        made.command = list(command)
        return made

    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    all_of_them = [
        proc(10, 1, 65432, "python", "/v/bin/torchrun", "train.py"),
        proc(11, 10, 65432, "python", "train.py"),
        proc(20, 1, 65432, "python", "/v/bin/deepspeed", "train.py"),
        proc(21, 20, 65432, "python", "-m", "deepspeed.launcher.launch", "train.py"),
        proc(30, 1, 65433, "srun", "python", "train.py"),
        proc(40, 1, 54321, "torchrun", "train.py"),
    ]
    assert other_processes.jobs_of_other_users({each.pid: each for each in all_of_them}) == [
        "2 jobs of user 65432 run here: needs sudo (sudo ddpwizard triage)",
        "1 job of user 65433 runs here: needs sudo (sudo ddpwizard triage)",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert other_processes.jobs_of_other_users({each.pid: each for each in all_of_them}) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to look as somebody else")
def test_jobs_of_other_users_without_privileges() -> None:
    def hints() -> list[str]:
        """Return the hints of ``triage --json``, run in this process, whose user changes."""
        result = CliRunner().invoke(triage.command, ["--json"], standalone_mode=False)
        return json.loads(result.stdout)["hints"]

    launcher = ["mpirun", "-c", SLEEPER]
    process = subprocess.Popen(launcher, executable=sys.executable, stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline() == b"up\n"
        assert hints() == []
        os.seteuid(65534)
        try:
            found = procfs.all_processes()
            assert [job for job in discover.find_jobs(found) if process.pid in {p.pid for p in job.processes}] == []
            assert re.search(
                r"^\d+ jobs? of user root runs? here: needs sudo",
                "\n".join(other_processes.jobs_of_other_users(found)),
            )
            assert "user root" in hints()[0]
        finally:
            os.seteuid(0)
        assert other_processes.jobs_of_other_users(procfs.all_processes()) == []
    finally:
        process.kill()
        process.communicate()


def test_orphan_gpu_processes_are_listed() -> None:
    def held(pid: int, used_bytes: int | None = 2**30, alive: bool = True, **more: Any) -> GpuProcess:
        return GpuProcess(pid=pid, used_bytes=used_bytes, command="python train.py", user="ana", alive=alive, **more)

    gpus = [
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="A100",
            pci_id="",
            memory_total_bytes=2**36,
            memory_used_bytes=2**30,
            processes=holders,
        )
        for index, holders in enumerate(
            [
                [held(4711), held(9001, orphan=True, rank=3)],
                [held(9001, orphan=True, rank=3), held(9002, alive=False, used_bytes=None)],
            ]
        )
    ]
    living = Job(
        launcher="torchrun",
        launcher_pid=1,
        launcher_command=[],
        world_size=1,
        master="",
        host="box",
        processes=[Process(pid=4711, rank=0, local_rank=0, command=["python"], cwd="/", python="", environ={})],
    )
    assert other_processes.orphan_gpu_processes(gpus, [living], {}) == [
        "pid 9001 (python train.py) holds 2 GiB on GPUs 0, 1: rank 3 of a job whose launcher is gone",
        "pid 9002 (python train.py) holds memory on GPU 1: it has ended or runs in another container",
    ]
    left_over = msgspec.structs.replace(living, launcher_gone=True)
    assert len(other_processes.orphan_gpu_processes(gpus, [left_over], {})) == 3


def test_invalid_rank_variable_makes_no_rank(port: str) -> None:
    with processes(rank(0, 1, port, RANK="first")) as (pid,):
        assert (job_of(pid).master, job_of(pid).world_size) == ("", 1)


def test_zombie_process_is_an_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    try:
        wait_for(lambda: (p := procfs.process_of(process.pid)) and p.state == "Z", "zombie")
        with pytest.raises(UserError, match="has ended"):
            discover.job_of_pid(process.pid)
    finally:
        process.wait()


def test_machine_without_proc_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_files, "PROC", tmp_path / "proc")
    with pytest.raises(InspectionError, match=r"no .*/proc to read"):
        discover.find_jobs()


def test_process_names_with_blanks_and_brackets(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "60"])
    try:
        found = wait_for(
            lambda: (
                p if (p := procfs.process_of(process.pid)) and (p.command[:1], p.state) == ([str(odd)], "S") else None
            ),
            "started, and asleep",
        )
        assert (found.parent, found.state in "SR") == (os.getpid(), True)
        assert procfs.counters(process.pid)
    finally:
        process.kill()
        process.wait()
    assert procfs.counters(process.pid) is None
