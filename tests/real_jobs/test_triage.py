"""Real jobs on this machine, from their processes to the named rank and line."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import InspectionError, UserError
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport, RankRow
from ddpwizard.app.watchdog.demo_job import DemoJob
from helpers.jobs import (
    SCRIPTS,
    RunningJob,
    by_hand,
    hung_report,
    launched,
    launched_as_forks,
    running,
    triage_until,
    wait_for,
)

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
Hung = tuple[RunningJob, JobReport]


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """A job of four ranks that hangs under a rank condition, with its report; no test changes it."""
    with launched("metrics.py", tmp_path_factory.mktemp("hung")) as job:
        yield job, hung_report(job)


def by_rank(rows: list[RankRow]) -> dict[int, RankRow]:
    return {row.rank: row for row in rows}


class TestRankConditions:
    """A condition on the rank sends one rank elsewhere: the verdict names it, its line and the condition."""

    def test_collective_directly_under_a_rank_test(self, hung: Hung) -> None:
        job, report = hung
        rows = by_rank(report.ranks)
        assert report.verdict.culprits == [0]
        assert report.verdict.where == job.line("HANG")
        assert report.verdict.branch == job.line("BRANCH")
        assert report.verdict.collective == "all_reduce"
        assert report.verdict.cause == "rank-conditional-collective"
        assert report.verdict.confidence >= 0.9
        assert [(rows[r].collective, rows[r].where) for r in (1, 2, 3)] == [("barrier", job.line("PEERS"))] * 3
        assert all(row.state == "waiting" and row.since_s and row.since_s >= 0.9 for row in report.ranks)
        assert (report.launcher, report.world_size, report.job.launcher_pid) == ("torchrun", 4, job.pid)

    def test_condition_two_calls_above_the_collective(self, tmp_path: Path) -> None:
        with launched_as_forks("evaluate.py", tmp_path, 3) as job:
            verdict = hung_report(job).verdict
            assert (verdict.culprits, verdict.where, verdict.branch) == ([1], job.line("HANG"), job.line("BRANCH"))
            assert verdict.cause == "rank-conditional-collective"

    def test_flag_through_a_parameter_and_an_early_return(self, tmp_path: Path) -> None:
        with launched_as_forks("flags.py", tmp_path, 3) as job:
            verdict = hung_report(job).verdict
            assert (verdict.culprits, verdict.where, verdict.branch) == ([0], job.line("HANG"), job.line("BRANCH"))
            assert (verdict.cause, verdict.collective) == ("rank-conditional-collective", "all_gather")

    def test_early_return_before_a_barrier(self, tmp_path: Path) -> None:
        with launched_as_forks("shortcut.py", tmp_path, 3) as job:
            verdict = hung_report(job).verdict
            assert (verdict.culprits, verdict.where, verdict.branch) == ([1], job.line("HANG"), job.line("BRANCH"))
            assert verdict.cause == "rank-conditional-collective"

    def test_half_and_half_is_a_tie(self, tmp_path: Path) -> None:
        with launched_as_forks("pairs.py", tmp_path) as job:
            verdict = hung_report(job).verdict
            assert verdict.culprits == [0, 1, 2, 3]
            assert verdict.confidence < 0.5
            assert verdict.branch == job.line("BRANCH")


class TestOtherCauses:
    def test_one_rank_has_fewer_batches(self, tmp_path: Path) -> None:
        with launched_as_forks("shards.py", tmp_path, 3) as job:
            report = hung_report(job)
            rows = by_rank(report.ranks)
            assert (report.verdict.culprits, report.verdict.where) == ([2], job.line("HANG"))
            assert (report.verdict.cause, report.verdict.branch) == ("uneven-inputs", None)
            assert "job.loop-ended-early" in report.verdict.findings
            assert rows[0].where == job.line("PEERS")
            assert (rows[0].collective, rows[0].note) == ("all_reduce", "gradient all-reduce (DDP)")

    def test_stopped_rank(self, tmp_path: Path) -> None:
        with launched_as_forks("steps.py", tmp_path, 3) as job:
            triage_until(job.pid, "progressing")
            os.kill(job.ranks()[1], signal.SIGSTOP)
            report = hung_report(job)
            assert (report.verdict.culprits, report.verdict.cause) == ([1], "rank-paused")
            assert by_rank(report.ranks)[1].state == "stopped"
            assert report.verdict.where

    def test_rank_that_sleeps_and_is_then_killed_while_the_others_wait_for_it(self, tmp_path: Path) -> None:
        with by_hand("regroup.py", tmp_path, 3) as job:
            wait_for(lambda: job.printed("late"), "the last rank has come late")
            ranks = job.ranks()
            verdict = hung_report(job, ranks[0]).verdict
            assert (verdict.culprits, verdict.where, verdict.cause) == ([2], job.line("LATE"), "rank0-slow-work")
            assert verdict.confidence < 0.8  # its activity there is unknown

            os.kill(ranks[2], signal.SIGKILL)
            report = hung_report(job, ranks[0])
            assert (report.verdict.culprits, report.verdict.cause) == ([2], "rank-died-survivors-wait")
            assert (report.verdict.collective, report.verdict.where) == ("new_group", None)
            assert by_rank(report.ranks)[2].state in ("dead", "zombie")
            assert by_rank(report.ranks)[0].where == job.line("PEERS")

    def test_rank_that_never_started(self, tmp_path: Path) -> None:
        with by_hand("metrics.py", tmp_path, 3) as job:
            ranks = wait_for(lambda: found if len(found := job.ranks()) == 3 else None, "three ranks are there")
            os.kill(ranks[2], signal.SIGKILL)
            report = hung_report(job, ranks[0])
            assert (report.verdict.culprits, report.verdict.cause) == ([2], "ranks-missing-at-init")
            assert {row.collective for row in report.ranks if row.rank != 2} == {"init_process_group"}

    def test_rank_that_failed_before_it_joined_is_explained_by_its_own_log(self, tmp_path: Path) -> None:
        (tmp_path / "rank7.log").write_text("Traceback (most recent call last):\nKeyError: 'of another job'\n")
        with by_hand("plugin.py", tmp_path, 3, own_logs=True) as job:
            log = tmp_path / "rank1.log"
            wait_for(lambda: log.exists() and "ModuleNotFoundError" in log.read_text(), "one rank has failed")
            report = hung_report(job, job.ranks()[0])
            assert (report.verdict.culprits, report.verdict.cause) == ([1], "rank-died-survivors-wait")
            failed = f"Rank 1 failed: ModuleNotFoundError: No module named 'no_such_plugin' at {job.script.name}:"
            assert failed in report.verdict.why
            assert report.verdict.where == job.line("FAILS")


class TestWhatIsNotHung:
    def test_job_that_moves_is_listed_after_one_that_hangs(self, hung: Hung, tmp_path: Path) -> None:
        stuck, _ = hung
        with launched_as_forks("steps.py", tmp_path, 2) as moving:
            report = triage_until(moving.pid, "progressing")
            assert (report.verdict.culprits, report.verdict.cause) == ([], None)
            assert report.verdict.findings == ["job.progressing"]
            found = {report.job.launcher_pid: report.verdict for report in asyncio.run(triage_jobs())}
            order = list(found)
            assert order.index(stuck.pid) < order.index(moving.pid)
            assert found[moving.pid].state == "progressing"
            assert (found[stuck.pid].culprits, found[stuck.pid].where) == ([0], stuck.line("HANG"))

    def test_process_of_no_job_is_a_job_of_one(self, tmp_path: Path) -> None:
        script = SCRIPTS / "alone.py"
        with running([sys.executable, str(script)], script, tmp_path) as job:
            report = triage_until(job.pid, "progressing")
            assert (report.world_size, report.launcher, report.job.launcher_pid) == (1, "python", None)
            assert report.ranks[0].function == "<module>"
            assert (report.ranks[0].rank, report.ranks[0].state, report.ranks[0].collective) == (0, "running", None)


class TestSelection:
    def test_launcher_and_ranks_select_the_same_job(self, hung: Hung) -> None:
        job, report = hung
        for pid in job.ranks().values():
            assert asyncio.run(triage_jobs(pid=pid))[0].job.id == report.job.id

    def test_nobody_has_that_pid(self) -> None:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        with pytest.raises(UserError, match=f"no process has the pid {gone.pid}") as refusal:
            asyncio.run(triage_jobs(pid=gone.pid))
        assert refusal.value.exit_code == 2

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to look as somebody else")
    def test_process_of_somebody_else_is_not_readable(self, tmp_path: Path) -> None:
        with running([sys.executable, str(SCRIPTS / "alone.py")], SCRIPTS / "alone.py", tmp_path) as job:
            # The supervisor needs its own rights back, so only this thread's effective user changes, for the reading.
            os.seteuid(65534)
            try:
                with pytest.raises(InspectionError, match="belongs to user root"):
                    asyncio.run(triage_jobs(pid=job.pid))
            finally:
                os.seteuid(0)


class TestCommand:
    """The command as a person or a script calls it."""

    def test_json_of_a_hung_job(self, hung: Hung) -> None:
        job, _ = hung
        done = _command("--pid", str(job.pid), "--json")
        document = msgspec.json.decode(done.stdout)
        assert done.returncode == 1
        assert document["schema"] == "ddpwizard.triage/1"
        (found,) = document["jobs"]
        assert found["id"] == f"torchrun-{job.pid}"
        assert "observed" not in found
        assert found["verdict"]["branch"] == job.line("BRANCH")
        assert found["diagnosis"]["causes"][0]["id"] == "rank-conditional-collective"

    def test_text_of_a_hung_job(self, hung: Hung) -> None:
        job, _ = hung
        done = _command("--pid", str(job.pid), "--ascii")
        assert done.returncode == 1
        assert "Rank 0 waits in all_reduce at metrics.py" in done.stdout
        assert "ranks 1-3" in done.stdout
        assert "if rank == 0:" in done.stdout
        assert done.stdout.isascii()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop a capability")
    def test_stacks_that_may_not_be_read(self, hung: Hung) -> None:
        job, _ = hung
        without = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
        for pid in (job.pid, job.ranks()[0]):
            program = [sys.executable, "-m", "ddpwizard", "triage", "--pid", str(pid)]
            done = subprocess.run([*without, *program], capture_output=True, text=True, timeout=300)
            assert done.returncode == 3
            assert "SYS_PTRACE" in done.stderr
            assert done.stdout == ""

    def test_pid_that_is_gone(self) -> None:
        done = _command("--pid", "4194303", "--json")
        assert done.returncode == 2
        assert msgspec.json.decode(done.stdout)["schema"] == "ddpwizard.error/1"

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hide /proc in a mount namespace")
    def test_machine_without_proc(self) -> None:
        hide = 'mount -t tmpfs none /proc && exec "$@"'
        program = [sys.executable, "-m", "ddpwizard", "triage"]
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", hide, "sh", *program], capture_output=True, text=True, timeout=300
        )
        if "Operation not permitted" in done.stderr and "unshare" in done.stderr:
            pytest.skip("mount namespaces are not permitted here")
        assert done.returncode == 3
        assert "there is no /proc" in done.stderr
        assert "Traceback" not in done.stderr


class TestDemo:
    def test_interpreter_without_torch(self, tmp_path: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True, timeout=300)

        async def play() -> None:
            async with DemoJob(str(tmp_path / "bare" / "bin" / "python")):
                pass

        with pytest.raises(UserError, match="has no torch"):
            asyncio.run(play())


def _command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "ddpwizard", "triage", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=300)
