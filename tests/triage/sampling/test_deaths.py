"""Deaths of a job from the kernel log, its cgroups and torch's error files, and which of them belong to the job."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.system import procfs
from ddpwizard.app.triage.sampling import deaths
from helpers.jobs import wait_for
from helpers.memory_group import memory_group

BOOT = 1_000_000.0  # seconds since the epoch, in the recorded cases
# Recorded on Linux 6.18, with another cgroup, names and pids.
LOG = "".join(
    [
        "6,677,13578613688,-;[  14667]     0 14667     1155      502      121      381         0    49152        0\n",
        "6,679,13578613698,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,",
        "oom_memcg=/jobs/7,task_memcg=/jobs/7/a,task=python3,pid=4712,uid=1000\n SUBSYSTEM=x\n",
        "3,680,13578613732,-;Memory cgroup out of memory: Killed process 4712 (python3) total-vm:221368kB, ",
        "anon-rss:50816kB, file-rss:6628kB, shmem-rss:0kB, UID:1000 pgtables:164kB oom_score_adj:0\n",
        "6,681,13578700000,-;oom_reaper: reaped process 4712 (python3), now anon-rss:0kB, file-rss:0kB\n",
    ]
)
GLOBAL = (
    "3,90,500000000,-;Out of memory: Killed process 4713 (pt_main_thread) total-vm:9kB, anon-rss:8kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0\n"
)
OLDER = (
    "3,12,700000000,-;Killed process 4714 (python), UID 1000, total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB\n"
)


def job(*ranks: int, world_size: int = 2, started_at: float = BOOT + 400, environ: dict[str, str] | None = None) -> Job:
    """Return a job whose living ranks have the pids 4711, 4712 and so on, by rank."""
    return Job(
        launcher="torchrun",
        launcher_pid=4700,
        launcher_command=["torchrun", "train.py"],
        world_size=world_size,
        master="127.0.0.1:29500",
        host="box",
        processes=[
            Process(
                pid=4711 + rank,
                rank=rank,
                local_rank=rank,
                command=["python", "train.py"],
                cwd="/",
                python="python",
                environ=environ or {},
                started_at=started_at,
            )
            for rank in ranks
        ],
    )


def killed(of: Job, log: str, *groups: str, uids: frozenset[int] = frozenset({1000})) -> list[tuple[int | None, ...]]:
    found = deaths.deaths_in_kernel_log(of, deaths.parse_oom_kills(log), BOOT, groups, uids)
    return [(death.pid, death.rank) for death in found]


class TestKernelLog:
    def test_oom_kill_with_its_cgroup(self) -> None:
        (kill,) = deaths.parse_oom_kills(LOG)
        assert (kill.pid, kill.name, kill.uid, kill.cgroup) == (4712, "python3", 1000, "/jobs/7/a")
        assert kill.at == pytest.approx(13578.613732)
        assert kill.message.startswith("Memory cgroup out of memory: Killed process 4712 (python3)")

    def test_oom_kill_of_the_whole_machine_and_of_older_kernels(self) -> None:
        first, second = deaths.parse_oom_kills(GLOBAL + OLDER)
        assert (first.pid, first.name, first.uid, first.cgroup) == (4713, "pt_main_thread", 1000, "")
        assert (second.pid, second.name, second.uid) == (4714, "python", 1000)

    @pytest.mark.parametrize(
        "text", ["", "no record", "a;b", "1,2;Killed process 7 (x) anon-rss:", "3,x,y,-;z", "\0;,,"]
    )
    def test_invalid_kernel_log_lines_are_ignored(self, text: str) -> None:
        assert deaths.parse_oom_kills(text) == []

    def test_missing_rank_was_killed_in_the_cgroup_of_the_job(self) -> None:
        assert killed(job(0), LOG, "/jobs/7/a") == [(4712, 1)]
        assert killed(job(0), LOG, "/jobs/7") == [(4712, 1)]

    def test_kill_of_another_cgroup_user_or_time_is_ignored(self) -> None:
        assert killed(job(0), LOG, "/jobs/70") == []
        assert killed(job(0), LOG, "/jobs/7/a", uids=frozenset({1001})) == []
        assert killed(job(0, started_at=BOOT + 13600), LOG, "/jobs/7/a") == []
        assert killed(job(0, started_at=0.0), LOG, "/jobs/7/a") == []

    def test_kill_without_a_missing_rank_is_ignored(self) -> None:
        assert killed(job(0, 1), GLOBAL, "/jobs/7") == []

    def test_machine_wide_kill_is_attributed_to_the_missing_rank(self) -> None:
        assert killed(job(0), GLOBAL, "/jobs/7") == [(4713, 1)]

    def test_kill_with_several_missing_ranks_has_no_rank(self) -> None:
        assert killed(job(0, world_size=3), GLOBAL) == [(4713, None)]

    def test_kill_of_a_zombie_rank_by_pid(self) -> None:
        dead = msgspec.structs.replace(job(1).processes[0], command=[])
        of = msgspec.structs.replace(job(0), processes=[*job(0).processes, dead])
        assert killed(of, LOG, uids=frozenset()) == [(4712, 1)]

    def test_kill_of_a_loader_worker(self) -> None:
        assert killed(job(0, 1), LOG.replace("(python3)", "(pt_data_worker)"), "/jobs/7") == [(4712, None)]

    def test_sibling_cgroups_of_slurm_tasks(self) -> None:
        log = LOG.replace("/jobs/7/a", "/slurm/uid_7/job_8/step_0/task_1")
        assert killed(job(0), log, "/slurm/uid_7/job_8/step_0/task_0") == [(4712, 1)]
        assert killed(job(0), log, "/slurm/uid_7/job_9/step_0/task_0") == []

    def test_unreadable_kernel_log_is_a_problem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deaths, "KMSG", tmp_path / "none")
        found, problems = deaths.find_deaths(job(0))
        assert found == []
        assert len(problems) == 1
        assert "kernel log cannot be read" in problems[0]


class TestCounters:
    def test_memory_cgroup_of_a_process(self) -> None:
        hybrid = "4:memory:/jobs/7\n3:cpuset:/\n0::/unified\n"
        assert deaths.memory_cgroup_of(hybrid) == ("/jobs/7", deaths.CGROUPS / "memory/jobs/7/memory.oom_control")
        assert deaths.memory_cgroup_of("0::/user.slice/a\n") == (
            "/user.slice/a",
            deaths.CGROUPS / "user.slice/a/memory.events",
        )
        assert deaths.memory_cgroup_of("4:memory:/\n") is None
        assert deaths.memory_cgroup_of("0::/../x\n") is None
        assert deaths.memory_cgroup_of("") is None

    def test_oom_kill_count(self) -> None:
        assert deaths.oom_kill_count("low 0\nhigh 0\nmax 8\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
        assert deaths.oom_kill_count("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n") == 1
        assert deaths.oom_kill_count("") == 0

    def test_counters_count_only_with_a_missing_rank(self) -> None:
        (death,) = deaths.deaths_by_cgroup_counters({"/a/memory.events": 2, "/b/memory.events": 0}, job(0))
        assert (death.rank, death.how, death.where) == (1, "oom_killer", "/a/memory.events")
        assert "2 times" in death.what
        assert deaths.deaths_by_cgroup_counters({"/a/memory.events": 2}, job(0, 1)) == []
        assert deaths.deaths_by_cgroup_counters({"/a/memory.events": 0}, job(0)) == []


class TestErrorFiles:
    def read(self, text: str) -> list[tuple[int | None, str, float | None]]:
        found = deaths.deaths_in_error_files([deaths.ErrorFile("/tmp/error.json", 0, 4711, text)], job(0))
        return [(death.rank, death.what, death.at) for death in found]

    def test_error_file_of_torch(self) -> None:
        at = int(BOOT) + 500
        text = {"message": {"message": "RuntimeError: no", "extraInfo": {"py_callstack": "", "timestamp": str(at)}}}
        assert self.read(json.dumps(text)) == [(0, "RuntimeError: no", at)]
        assert self.read(json.dumps({"message": "plain"})) == [(0, "plain", None)]

    def test_error_file_of_a_dead_rank_is_found_next_to_a_living_one(self, tmp_path: Path) -> None:
        text = json.dumps({"message": {"message": "ValueError: no", "extraInfo": {"timestamp": int(BOOT) + 500}}})
        (tmp_path / "attempt_0" / "1").mkdir(parents=True)
        (tmp_path / "attempt_0" / "1" / "error.json").write_text(text)
        environ = {
            "TORCHELASTIC_ERROR_FILE": str(tmp_path / "attempt_0" / "0" / "error.json"),
            "LOCAL_WORLD_SIZE": "2",
        }
        of = job(0, environ=environ)
        (death,) = deaths.deaths_in_error_files(deaths.read_error_files(of), of)
        assert (death.rank, death.pid, death.what) == (1, None, "ValueError: no")
        assert death.where == str(tmp_path / "attempt_0" / "1" / "error.json")

    def test_error_file_of_an_earlier_attempt_is_ignored(self) -> None:
        assert self.read(json.dumps({"message": {"message": "x", "extraInfo": {"timestamp": "12"}}})) == []

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "3", '{"message": {}}', '{"message": {"message": {}}}', '{"message": null}']
    )
    def test_invalid_error_files_are_ignored(self, text: str) -> None:
        assert self.read(text) == []


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of 64 MB."""
    with memory_group(64 << 20) as group:
        yield group


FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in linux/proc_ns.h; the kernel log has its pids
HUNGRY = "import time\nprint('up', flush=True)\ninput()\nheap = bytearray(400_000_000)\ntime.sleep(600)"
MODEST = "import time\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to create a cgroup")
@pytest.mark.parametrize("readable", [True, False])
def test_real_oom_kill(cgroup: Path, readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = f"import os\nopen('{cgroup}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    ranks = [
        subprocess.Popen([sys.executable, "-c", enter + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for code in (MODEST, HUNGRY)
    ]
    try:
        for rank in ranks:
            assert rank.stdout and rank.stdout.readline() == b"up\n"
        proc = procfs.process_of(ranks[0].pid)
        assert proc
        living = msgspec.structs.replace(job(0).processes[0], pid=proc.pid, started_at=procfs.started_at(proc))
        of = msgspec.structs.replace(job(0), processes=[living], launcher_pid=None)
        if readable:
            try:
                deaths.KMSG.open("rb").close()
            except OSError as error:
                pytest.skip(f"the kernel log cannot be read here: {error.strerror}")
        else:
            monkeypatch.setattr(deaths, "KMSG", cgroup / "none")
        assert deaths.find_deaths(of)[0] == []
        ranks[1].communicate(b"\n", timeout=180)
        found, problems = deaths.find_deaths(of)
        (death,) = found
        assert (death.rank, death.how) == (1, "oom_killer")
        assert (bool(death.pid), bool(death.at)) == (readable, readable)
        if readable and str(Path("/proc/self/ns/pid").readlink()) == FIRST_PID_NAMESPACE:
            assert death.pid == ranks[1].pid
        assert abs((death.at or time.time()) - time.time()) < 60
        assert death.where.startswith("kernel log" if readable else str(cgroup))
        assert len(problems) == (0 if readable else 1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            assert rank.stdin and rank.stdout
            rank.stdin.close()
            rank.stdout.close()


@pytest.mark.parametrize(
    ("end", "how", "what"),
    [("os._exit(3)", "exit", "exit status 3"), ("os.kill(os.getpid(), 9)", "signal", "SIGKILL"), ("0", None, None)],
)
def test_zombie_death_has_signal_or_exit_status(end: str, how: str | None, what: str | None) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os; {end}"])
    try:
        wait_for(lambda: procfs.wait_status(process.pid) is not None, "it has ended")
        of = job(0, 1)
        zombie = msgspec.structs.replace(of.processes[1], pid=process.pid, command=[])
        living = msgspec.structs.replace(of.processes[0], pid=os.getpid())
        found = deaths.zombie_deaths(msgspec.structs.replace(of, processes=[living, zombie]))
        assert [(death.rank, death.how, death.what) for death in found] == ([(1, how, what)] if how else [])
    finally:
        process.wait()
