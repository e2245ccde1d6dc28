"""Real jobs of every kind of launcher are found, with their ranks, from /proc alone."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpwizard.app.jobs import discover, ranks_from_locals
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.system import procfs
from helpers.jobs import SCRIPTS, RunningJob, free_port, running, torchrun, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

HERE = Path(sys.executable).parent
KEPT = '"$@"; sleep 600'  # a shell that outlives what it starts


@contextmanager
def started(
    name: str, directory: Path, *command: str, ranks: int = 2, environ: Mapping[str, str] = {}
) -> Iterator[RunningJob]:
    """Start a job from a copy of the script (``SCRIPT`` in the command) and wait until each rank is up."""
    script = directory / name
    script.write_text((SCRIPTS / name).read_text())
    words = [str(script) if word == "SCRIPT" else word for word in command]
    with running(words, script, directory, OMP_NUM_THREADS="1", **environ) as job:
        _until_up(job, ranks)
        yield job


@contextmanager
def children(how: str, directory: Path, loads: str = "no") -> Iterator[RunningJob]:
    """Two ranks that their parent starts."""
    command = [sys.executable, "SCRIPT", how, f"tcp://127.0.0.1:{free_port()}", loads]
    with started("discovery_children.py", directory, *command) as job:
        yield job


def _until_up(job: RunningJob, ranks: int) -> None:
    try:
        wait_for(lambda: len(pids(job)) == ranks, f"{ranks} ranks are up")
    except AssertionError as error:
        raise AssertionError("\n".join(job.output)) from error


def pids(job: RunningJob) -> dict[int, int]:
    """Rank to pid, as the ranks themselves say."""
    rows = [line.split("up ", 1)[1].split() for line in list(job.output) if "up " in line]
    return {int(words[0]): int(words[1]) for words in rows}


def one(pid: int) -> Job:
    (job,) = discover.job_of_pid(pid)
    return job


def end_below(job: RunningJob) -> None:
    """Kill what the shell of ``KEPT`` started."""
    (parent,) = [process.pid for process in job.processes() if process.parent == job.pid]
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: not procfs.process_of(parent), "it is gone")


def pids_by_rank(job: Job) -> dict[int | None, int]:
    return {process.rank: process.pid for process in job.processes}


class TestChildrenOfOneParent:
    @pytest.mark.parametrize("how", ["mp.spawn", "spawn", "fork", "forkserver", "pool"])
    def test_ranks_are_found_with_their_numbers(self, how: str, tmp_path: Path) -> None:
        with children(how, tmp_path) as job:
            found = one(job.pid)
            assert pids_by_rank(found) == pids(job)
            assert (found.world_size, found.launcher, found.launcher_gone) == (2, "python", False)
            assert {process.rank_from for process in found.processes} == {"spawn" if how == "mp.spawn" else "frames"}
            assert found.master.endswith(f":{job.command[3].rpartition(':')[2]}")
            if how != "forkserver":
                assert found.launcher_pid == job.pid
                assert found.launcher_command == job.command
            assert pids_by_rank(found) in [pids_by_rank(each) for each in discover.find_jobs()]

    def test_every_process_of_the_job_selects_it(self, tmp_path: Path) -> None:
        with children("mp.spawn", tmp_path, "loader") as job:
            ranks = pids(job)
            workers = [p.pid for p in job.processes() if p.parent in ranks.values()]
            assert len(workers) >= 4
            for pid in [job.pid, *(process.pid for process in job.processes())]:
                assert pids_by_rank(one(pid)) == ranks

    def test_without_the_right_to_read_stacks_the_order_of_the_start_counts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(_processes: object) -> dict[int, ranks_from_locals.RankHints]:
            return {}

        with children("fork", tmp_path) as job:
            monkeypatch.setattr(ranks_from_locals, "read_locals", refused)
            found = one(job.pid)
            assert pids_by_rank(found) == pids(job)
            assert {process.rank_from for process in found.processes} == {"order"}

    def test_parent_that_is_a_rank_itself(self, tmp_path: Path) -> None:
        with children("parent", tmp_path) as job:
            assert pids(job)[0] == job.pid
            assert pids_by_rank(one(pids(job)[1])) == pids(job)

    def test_rank_that_has_not_met_the_others_yet(self, tmp_path: Path) -> None:
        with children("spawn", tmp_path, "late") as job:
            found = wait_for(lambda: f if len((f := one(job.pid)).processes) == 2 else None, "both ranks are found")
            assert pids_by_rank(found) == pids(job)

    def test_killed_rank_is_reported_with_its_number(self, tmp_path: Path) -> None:
        with children("spawn", tmp_path) as job:
            os.kill(pids(job)[1], signal.SIGKILL)
            wait_for(lambda: (p := procfs.process_of(pids(job)[1])) and p.state == "Z", "a zombie")
            found = one(job.pid)
            assert (pids_by_rank(found), found.world_size) == (pids(job), 2)

    def test_two_jobs_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with children("mp.spawn", tmp_path / "a") as first, children("fork", tmp_path / "b") as second:
            assert pids_by_rank(one(first.pid)) == pids(first)
            assert pids_by_rank(one(second.pid)) == pids(second)
            found = [pids_by_rank(job) for job in discover.find_jobs()]
            assert pids(first) in found
            assert pids(second) in found

    def test_ranks_whose_parent_is_gone(self, tmp_path: Path) -> None:
        command = ["sh", "-c", KEPT, "sh", sys.executable, "SCRIPT", "spawn", f"tcp://127.0.0.1:{free_port()}", "no"]
        with started("discovery_children.py", tmp_path, *command) as job:
            end_below(job)
            found = one(pids(job)[0])
            assert (pids_by_rank(found), found.launcher_pid, found.launcher_gone) == (pids(job), None, True)

    @pytest.mark.parametrize("how", ["fork", "spawn"])
    def test_workers_of_one_training_process_are_no_ranks(self, how: str, tmp_path: Path) -> None:
        with started("discovery_loaders.py", tmp_path, sys.executable, "SCRIPT", how, ranks=1) as job:
            mine = {process.pid for process in job.processes()}
            assert len(mine) >= 5
            assert not [j for j in discover.find_jobs() if mine & {process.pid for process in j.processes}]
            assert [p.pid for p in one(job.pid).processes] == [job.pid]


class TestLaunchers:
    def test_rank_in_the_arguments(self, tmp_path: Path) -> None:
        store = f"tcp://127.0.0.1:{free_port()}"
        line = 'for r in 1 0; do "$1" "$2" --rank $r --world-size=2 --store "$3" & done; wait'
        command = ["sh", "-c", line, "sh", sys.executable, "SCRIPT", store]
        with started("discovery_arguments.py", tmp_path, *command) as job:
            found = one(pids(job)[1])
            assert (pids_by_rank(found), found.world_size) == (pids(job), 2)
            assert {process.rank_from for process in found.processes} == {"command"}

    def test_accelerate(self, tmp_path: Path) -> None:
        options = [
            "--multi_gpu",
            "--num_processes=2",
            "--num_machines=1",
            "--mixed_precision=no",
            "--dynamo_backend=no",
        ]
        options.append(f"--main_process_port={free_port()}")
        command = [sys.executable, str(HERE / "accelerate"), "launch", *options, "SCRIPT"]
        with started("discovery_environ.py", tmp_path, *command) as job:
            found = one(job.pid)
            assert (found.launcher, found.launcher_pid, pids_by_rank(found)) == ("accelerate", job.pid, pids(job))

    def test_deepspeed(self, tmp_path: Path) -> None:
        options = ["--num_gpus=2", f"--master_port={free_port()}"]
        command = [sys.executable, str(HERE / "deepspeed"), *options, "SCRIPT"]
        with started("discovery_environ.py", tmp_path, *command, environ={"DS_ACCELERATOR": "cpu"}) as job:
            found = one(job.pid)
            assert (found.launcher, found.launcher_pid, pids_by_rank(found)) == ("deepspeed", job.pid, pids(job))

    @pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun here")
    def test_mpirun(self, tmp_path: Path) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "SCRIPT"]
        with started("discovery_environ.py", tmp_path, "sh", "-c", KEPT, "sh", *mpirun, environ=place) as job:
            found = one(job.pid)
            assert (found.launcher, found.world_size, pids_by_rank(found)) == ("mpirun", 2, pids(job))
            assert [process.local_rank for process in found.processes] == [0, 1]

    def test_accelerate_with_one_process(self, tmp_path: Path) -> None:
        options = ["--cpu", "--num_processes=1", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
        command = [sys.executable, str(HERE / "accelerate"), "launch", *options, "SCRIPT", "fork"]
        with started("discovery_loaders.py", tmp_path, *command, ranks=1) as job:
            found = one(job.pid)
            assert (found.launcher, found.world_size, pids_by_rank(found)) == ("accelerate", 1, pids(job))

    def test_processes_of_slurm_that_spawn_their_ranks(self, tmp_path: Path) -> None:
        place = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}
        command = [sys.executable, "SCRIPT", "mp.spawn", f"tcp://127.0.0.1:{free_port()}", "loader"]
        with started("discovery_children.py", tmp_path, *command, environ=place) as job:
            found = one(job.pid)
            assert (pids_by_rank(found), found.world_size) == (pids(job), 2)
            mine = {process.pid for process in job.processes()}
            assert len([each for each in discover.find_jobs() if mine & set(pids_by_rank(each).values())]) == 1

    def test_ranks_whose_launcher_was_killed(self, tmp_path: Path) -> None:
        command = ["sh", "-c", KEPT, "sh", *torchrun(Path("SCRIPT"), 2)]
        with started("discovery_environ.py", tmp_path, *command) as job:
            end_below(job)
            found = one(pids(job)[0])
            assert (pids_by_rank(found), found.launcher, found.launcher_pid) == (pids(job), "torchrun", None)
            assert found.launcher_gone


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make namespaces")
class TestContainers:
    def test_seen_from_the_host_and_from_inside(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        prepare = f"mount -t tmpfs none {inside} && cp {tmp_path}/discovery_environ.py {inside}/train.py && "
        start = " ".join(torchrun(inside / "train.py", 2))
        command = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c", f"{prepare} exec {start}"]
        with refusable(), started("discovery_environ.py", tmp_path, *command) as job:
            found = one(job.pid)
            assert {process.rank: process.pid_inside for process in found.processes} == pids(job)
            assert all(process.pid != process.pid_inside for process in found.processes)
            assert (found.launcher, found.world_size, found.launcher_gone) == ("torchrun", 2, False)
            assert not (inside / "train.py").exists()
            file = procfs.source_file(found.processes[0].pid, str(inside / "train.py"))
            assert file and file.text == (SCRIPTS / "discovery_environ.py").read_text()
            code = (
                "from ddpwizard.app.jobs import discover\n"
                "print([(p.rank, p.pid, p.pid_inside) for j in discover.find_jobs() for p in j.processes])"
            )
            enter = ["nsenter", "--target", str(found.processes[0].pid), "--pid", "--mount"]
            done = subprocess.run([*enter, sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
            assert done.stdout.strip() == str([(rank, pid, None) for rank, pid in sorted(pids(job).items())])


@contextmanager
def refusable() -> Iterator[None]:
    """Skips where this machine gives no namespaces."""
    done = subprocess.run(["unshare", "--pid", "--mount", "--fork", "--mount-proc", "true"], capture_output=True)
    if done.returncode:
        pytest.skip(f"namespaces are not permitted here: {done.stderr.decode().strip()}")
    yield
