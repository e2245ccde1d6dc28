"""Samples of real processes: stacks, states and counters, and the problem if access is denied."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.system import procfs, supervisor
from ddpwizard.app.system.ptrace import PtraceAccess, access_problem, proc_hidden_by_mount
from ddpwizard.app.triage.sampling import stacks
from ddpwizard.app.triage.types import Sample
from helpers.blocked_processes import alone, still
from helpers.jobs import wait_for

SLEEP = "def wait():\n    time.sleep(600)\nup()\nwait()\n"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to drop a capability or create a namespace")


def sample(pid: int) -> Sample:
    return asyncio.run(stacks.sample_stacks([alone(pid)]))[pid]


def living_children() -> set[int]:
    found = [procfs.process_of(pid) for pid in supervisor.descendants(os.getpid())]
    return {proc.pid for proc in found if proc and proc.state != "Z"}


class TestSample:
    def test_main_thread_and_other_threads(self, tmp_path: Path) -> None:
        code = (
            "def hold():\n    up()\n    time.sleep(600)\n"
            "threading.Thread(target=hold, name='holder', daemon=True).start()\ntime.sleep(600)\n"
        )
        with still(code, tmp_path) as process:
            seen = wait_for(lambda: s if (s := sample(process.pid)).stack and s.others else None, "both threads sleep")
            assert [(frame.function, frame.path) for frame in seen.stack] == [("<module>", str(tmp_path / "still.py"))]
            assert [(thread.name, thread.frames[0].function) for thread in seen.others] == [("holder", "hold")]
            assert (seen.process_state, seen.threads, seen.problem, seen.gpu) == ("S", 2, "", False)

    def test_stack_of_a_generator_is_read_to_its_outermost_frame(self, tmp_path: Path) -> None:
        script = tmp_path / "busy.py"
        script.write_text("while True:\n    all(n for n in range(1, 40))\n")
        with subprocess.Popen([sys.executable, str(script)]) as process:
            try:
                wait_for(lambda: any(frame.path == str(script) for frame in sample(process.pid).stack), "it is at work")
                seen = [sample(process.pid).stack for _ in range(20)]
                assert {stack[-1].function for stack in seen} == {"<module>"}
            finally:
                process.kill()

    def test_state_of_the_main_thread_is_that_of_the_moment_of_its_stack(self, tmp_path: Path) -> None:
        """The state in /proc is read before py-spy starts: it agrees by chance only."""
        script = tmp_path / "turns.py"
        script.write_text(
            "import time\n\ndef work():\n    until = time.monotonic() + 0.07\n    while time.monotonic() < until:\n"
            "        pass\n\ndef rest():\n    time.sleep(0.07)\n\nwhile True:\n    work()\n    rest()\n"
        )
        with subprocess.Popen([sys.executable, str(script)]) as process:
            try:
                wait_for(lambda: any(frame.path == str(script) for frame in sample(process.pid).stack), "it is at work")
                seen = [s for _ in range(20) if (s := sample(process.pid)).stack[0].function in ("work", "rest")]
            finally:
                process.kill()
        agree = [each.runs == (each.stack[0].function == "work") for each in seen]
        assert len(seen) >= 15 and sum(agree) >= 0.8 * len(seen)

    def test_stopped_process_is_read_and_stays_stopped(self, tmp_path: Path) -> None:
        with still(SLEEP, tmp_path) as process:
            wait_for(lambda: sample(process.pid).stack[0].function == "wait", "it sleeps")
            os.kill(process.pid, signal.SIGSTOP)
            wait_for(lambda: (c := procfs.counters(process.pid)) and c.state == "T", "it is stopped")
            seen = sample(process.pid)
            assert (seen.process_state, seen.stack[0].function, seen.problem) == ("T", "wait", "")
            assert sample(process.pid).process_state == "T"

    def test_kernel_wait_function_and_bytes_read(self, tmp_path: Path) -> None:
        code = (
            "os.mkfifo('feed')\nfeed = os.open('feed', os.O_RDWR)\nos.write(feed, b'x' * 100)\nup()\n"
            "while True:\n    os.read(feed, 100)\n"
        )
        with still(code, tmp_path) as process:
            fifo = os.open(tmp_path / "feed", os.O_WRONLY)
            try:
                first = wait_for(lambda: s if (s := sample(process.pid)).waits_in else None, "it sleeps")
                assert "pipe" in first.waits_in
                os.write(fifo, b"y" * 70)
                wait_for(lambda: sample(process.pid).read_bytes == first.read_bytes + 70, "the bytes are counted")
            finally:
                os.close(fifo)

    def test_zombie_and_ended_process(self, tmp_path: Path) -> None:
        with still(SLEEP, tmp_path) as process:
            rank = alone(process.pid)
            process.kill()
            wait_for(lambda: procfs.process_of(process.pid).state == "Z", "it has ended")  # type: ignore[union-attr]
            assert asyncio.run(stacks.sample_stacks([rank]))[rank.pid].process_state == "Z"
            process.wait()
            seen = asyncio.run(stacks.sample_stacks([rank]))[rank.pid]
            assert (seen.process_state, seen.problem) == ("", "the process has ended")

    def test_program_that_is_not_python(self) -> None:
        with subprocess.Popen(["sleep", "600"]) as process:
            try:
                wait_for(lambda: procfs.process_of(process.pid).name.endswith("(sleep 600)"), "it runs")  # type: ignore[union-attr]
                assert sample(process.pid).problem == "stack: not a Python process that py-spy knows"
            finally:
                process.kill()

    def test_many_processes_are_read_by_one_child(self, tmp_path: Path) -> None:
        with ExitStack() as running:
            folders = [tmp_path / str(number) for number in range(12)]
            for folder in folders:
                folder.mkdir()
            pids = [running.enter_context(still(SLEEP, folder)).pid for folder in folders]
            ranks = [alone(pid) for pid in pids]
            seen = asyncio.run(stacks.sample_stacks(ranks))
            assert [seen[pid].stack[-1].path for pid in pids] == [str(folder / "still.py") for folder in folders]
            assert list(seen) == pids

    def test_deep_recursion_keeps_both_ends(self, tmp_path: Path) -> None:
        code = "def down(n):\n    if n:\n        down(n - 1)\n    up()\n    time.sleep(600)\ndown(900)\n"
        with still(code, tmp_path) as process:
            stack = sample(process.pid).stack
            assert len(stack) == stacks.MAX_INNERMOST_FRAMES + stacks.MAX_OUTERMOST_FRAMES
            assert (stack[0].function, stack[-1].function) == ("down", "<module>")

    def test_cancelled_sample_ends_at_once_and_leaves_no_process(self, tmp_path: Path) -> None:
        async def cancel(pid: int) -> bool:
            task = asyncio.create_task(stacks.sample_stacks([alone(pid)] * 50))
            await asyncio.to_thread(wait_for, lambda: living_children() - before, "sampling has started")
            task.cancel()
            for _ in range(20):  # steps of the event loop; a sample takes hundreds
                await asyncio.sleep(0)
            return task.cancelled()

        with still(SLEEP, tmp_path) as process:
            before = living_children()  # with those of earlier tests, such as multiprocessing's resource tracker
            assert asyncio.run(cancel(process.pid))
            wait_for(lambda: living_children() <= before, "no process of the sample is left")

    @AS_ROOT
    def test_process_in_another_pid_namespace(self, tmp_path: Path) -> None:
        with still(SLEEP, tmp_path, under=["unshare", "--pid", "--fork", "--mount-proc"]) as outer:
            (pid,) = supervisor.descendants(outer.pid)
            seen = sample(pid)
            assert (seen.problem, [frame.function for frame in seen.stack]) == ("", ["wait", "<module>"])


class TestLocals:
    def test_values_are_truncated_and_secrets_hidden(self, tmp_path: Path) -> None:
        code = (
            "def step(batch, api_token):\n    url = 'https://me:hunter2@example.org/x'\n    long = 'z' * 500\n"
            "    up()\n    time.sleep(600)\nstep(3, 'sesame')\n"
        )
        with still(code, tmp_path) as process:
            main = asyncio.run(stacks.locals_of(process.pid))[0]
            assert (main.name, main.frames[0].frame.function) == ("MainThread", "step")
            values = main.frames[0].values
            assert values["batch"] == "3"
            assert "sesame" not in str(values) and "hunter2" not in str(values)
            assert len(values["long"]) == stacks.VALUE_LENGTH

    def test_locals_of_an_ended_process(self) -> None:
        with pytest.raises(InspectionError, match="has ended"):
            asyncio.run(stacks.locals_of(4194303))


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    with still(SLEEP, tmp_path) as process:
        yield process.pid


class TestRefusal:
    """The reason why a process cannot be read, with the command that grants access."""

    SAMPLE = (
        "import asyncio, json, sys\n"
        "from ddpwizard.app.triage.sampling import stacks\nfrom ddpwizard.app.jobs.types import Process\n"
        "p = Process(pid=int(sys.argv[1]), rank=0, local_rank=0, command=[], cwd='', python='', environ={})\n"
        "s = asyncio.run(stacks.sample_stacks([p]))[p.pid]\n"
        "print(json.dumps([s.problem, s.process_state, s.cpu_s > 0]))\n"
    )

    def refused(self, pid: int, *under: str) -> list[object]:
        command = [*under, sys.executable, "-c", self.SAMPLE, str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
        answer: list[object] = json.loads(done.stdout)
        return answer

    @AS_ROOT
    def test_root_without_sys_ptrace_gets_the_reason_and_the_state(self, sleeper: int) -> None:
        without = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
        problem, state, _ = self.refused(sleeper, *without)
        assert isinstance(problem, str)
        assert problem.startswith("stack: not permitted: ")
        assert "SYS_PTRACE" in problem
        assert state == "S"

    RIGHTS = PtraceAccess(
        pid=7,
        user="ann",
        same_user=True,
        root=False,
        sys_ptrace=False,
        more_capable=False,
        ptrace_scope=None,
        container=False,
    )

    @pytest.mark.parametrize(
        ("changed", "reason", "command"),
        [
            ({"same_user": False}, "belongs to user ann", "sudo ddpwizard triage --pid 7"),
            ({"ptrace_scope": 1}, "kernel.yama.ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0"),
            ({"ptrace_scope": 2}, "kernel.yama.ptrace_scope is 2", "sudo ddpwizard triage --pid 7"),
            ({"ptrace_scope": 3, "sys_ptrace": True, "root": True}, "until the next boot", "ddpwizard run -- "),
            ({"root": True, "container": True}, "container lacks the SYS_PTRACE", "docker run --cap-add SYS_PTRACE"),
            ({"root": True, "more_capable": True}, "we lack the SYS_PTRACE", "sudo ddpwizard triage --pid 7"),
            ({"root": True, "sys_ptrace": True}, "although we have SYS_PTRACE", "on the host"),
            ({}, "without a reason that shows", "sudo ddpwizard triage --pid 7"),
        ],
    )
    def test_access_problem_has_the_reason_and_the_command(
        self, changed: dict[str, object], reason: str, command: str
    ) -> None:
        text = access_problem(msgspec.structs.replace(self.RIGHTS, **changed))
        assert reason in text
        assert command in text

    def test_hidepid_of_proc_is_reported(self) -> None:
        mounts = "sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,relatime,hidepid={} 0 0\n"
        assert "hidepid=invisible" in proc_hidden_by_mount(mounts.format("invisible"))
        assert "hidepid=2" in proc_hidden_by_mount(mounts.format("2"))
        assert proc_hidden_by_mount(mounts.format("0")) == ""
        assert proc_hidden_by_mount("proc /proc proc rw,relatime 0 0\n") == ""
