"""The context of real processes: their children, connections, GPUs and last output."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.system import procfs, supervisor
from ddpwizard.app.system.waiting import run_in_thread
from ddpwizard.app.triage.sampling import children, connections, gpu_usage, last_output, sampler, stacks
from ddpwizard.app.triage.sampling.context import SampleContext, process_samples, sample_context
from ddpwizard.app.triage.types import Child, Connection, GpuUse
from helpers.blocked_processes import alone, job_of, still
from helpers.jobs import wait_for
from helpers.nvml_stub import StubNvml

SLEEP = "up()\ntime.sleep(600)\n"


def around(job: Job) -> SampleContext:
    """Return the context of a job after a first sample of its processes."""

    async def collect() -> SampleContext:
        return await sample_context(job, await stacks.sample_stacks(job.processes))

    return asyncio.run(collect())


class TestChildren:
    def test_shell_command_and_python_child_with_its_stack(self, tmp_path: Path) -> None:
        code = (
            "subprocess.Popen(['sh', '-c', 'sleep 600; true', '--password', 'sesame'])\n"
            "subprocess.Popen([sys.executable, '-c', 'import time\\ndef load(): time.sleep(600)\\nload()'])\n" + SLEEP
        )

        def complete() -> list[Child] | None:
            found = around(job_of(process.pid)).children().get(process.pid, [])
            started = len(found) == 3 and any(child.stack for child in found)
            return found if started and not any(child.moved for child in found) else None

        with still(code, tmp_path) as process:
            found = wait_for(complete, "three idle children")
            by_name = {Path(child.command[0]).name: child for child in found}
            assert by_name["sleep"].command == ["sleep", "600"]
            assert "sesame" not in str(by_name["sh"].command)
            python = next(child for child in found if child.stack)
            assert python.stack[0].function == "load"
            assert {(child.kind, child.moved) for child in found} == {("other", False)}

    def test_forked_loader_worker_is_recognised_by_name_or_frames(self, tmp_path: Path) -> None:
        loop = tmp_path / "torch" / "utils" / "data" / "_utils"
        loop.mkdir(parents=True)
        (loop / "worker.py").write_text("import time\ndef _worker_loop():\n    time.sleep(600)\n")
        code = (
            f"sys.path.insert(0, {str(loop)!r})\nimport worker\n"
            "if os.fork() == 0:\n    worker._worker_loop()\n"
            "if os.fork() == 0:\n    open('/proc/self/comm', 'w').write('pt_data_worker')\n    time.sleep(600)\n"
            + SLEEP
        )

        def kinds(process: int) -> list[str] | None:
            found = around(job_of(process)).children().get(process, [])
            return sorted(child.kind for child in found) if all(child.stack for child in found) else None

        with still(code, tmp_path) as process:
            wait_for(lambda: kinds(process.pid) == ["loader", "loader"], "both are recognised as loader workers")

    def test_progress_of_children(self, tmp_path: Path) -> None:
        code = (
            "if os.fork() == 0:\n    while True:\n        time.sleep(0.01)\n"
            "if os.fork() == 0:\n    time.sleep(600)\nup()\ntime.sleep(600)\n"
        )
        with still(code, tmp_path) as process:
            wait_for(lambda: len(supervisor.descendants(process.pid)) == 2, "both are there")
            watched = children.watch_children(job_of(process.pid))

            def moved() -> list[bool]:
                return [child.moved for child in children.current_children(watched)[process.pid]]

            wait_for(lambda: moved() == [True, False], "one moves")

    def test_children_that_are_ranks_are_not_listed_as_children(self, tmp_path: Path) -> None:
        with still("if os.fork() == 0:\n    time.sleep(600)\n" + SLEEP, tmp_path) as process:
            (child,) = wait_for(lambda: supervisor.descendants(process.pid), "it is there")
            job = msgspec.structs.replace(job_of(process.pid), processes=[alone(process.pid), alone(child)])
            assert children.watch_children(job) == []


class TestConnections:
    def test_connection_and_listener_of_a_process(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            with socket.create_connection(server.getsockname()) as client:
                client_address = f"127.0.0.1:{client.getsockname()[1]}"
                found = connections.connections(os.getpid(), connections.SocketTables())
        assert Connection(address, "0.0.0.0:0", "listen") in found
        assert Connection(client_address, address, "estab") in found

    def test_send_queue_of_a_connection(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    client.send(bytes(1 << 16))
            found = connections.connections(os.getpid(), connections.SocketTables())
            assert found[0].peer == f"127.0.0.1:{server.getsockname()[1]}"
            assert found[0].waiting_to_send_bytes > 0


class TestGpus:
    def test_gpu_usage_by_pid(self) -> None:
        stub = StubNvml("h100x8")
        stub.devices[0] |= {"busy_percent": 97, "processes": [{"pid": 4711, "usedGpuMemory": 1}]}
        found = gpu_usage.gpu_usages(stub)
        used = [use.device for use in found.gpus if 4711 in use.pids]
        assert used == [GpuUse(0, 97, stub.devices[0]["memory"]["used"])]
        assert found.gpus[1].device.busy_percent is None

    def test_driver_mismatch_is_a_problem(self) -> None:
        assert "mismatch" in gpu_usage.gpu_usages(StubNvml("library-mismatch")).problem.lower()

    def test_lost_gpu_does_not_hide_the_others(self) -> None:
        found = gpu_usage.gpu_usages(StubNvml("one-lost"))
        assert found.gpus
        assert found.problem == ""


def rank_of(pid: int, rank: int, environ: Mapping[str, str] | None = None) -> Process:
    return msgspec.structs.replace(alone(pid), rank=rank, local_rank=rank, environ=dict(environ or {}))


def job_with(*processes: Process) -> Job:
    return msgspec.structs.replace(job_of(processes[0].pid), processes=list(processes), launcher_command=[])


class TestOutput:
    def test_last_lines_from_the_file_of_stdout(self, tmp_path: Path) -> None:
        log = tmp_path / "out.log"
        code = "print('step 7 \\x1b[31mred\\x1b[0m HF_TOKEN=sesame\\a')\nprint('1%\\r99%', flush=True)\n" + SLEEP
        with log.open("wb") as out, still(code, tmp_path, out=out) as process:
            lines = last_output.last_lines_by_rank(job_with(rank_of(process.pid, 0)))[process.pid]
            assert lines == last_output.LastOutput(["step 7 red HF_TOKEN=‹redacted›", "99%"], str(log))
            assert last_output.log_files(job_with(rank_of(process.pid, 0))) == [log]

    def test_torchrun_files_including_dead_ranks(self, tmp_path: Path) -> None:
        attempt = tmp_path / "attempt_0"
        for rank in (0, 1):
            (attempt / str(rank)).mkdir(parents=True)
            (attempt / str(rank) / "stdout.log").write_text(f"hello from {rank}\n")
        os.utime(attempt / "0" / "stdout.log", (1, 1))
        (attempt / "0" / "stderr.log").write_text("the newest\n")
        environ = {last_output.ERROR_FILE: str(attempt / "0" / "error.json")}
        with still(SLEEP, tmp_path) as process:
            job = job_with(rank_of(process.pid, 0, environ))
            assert last_output.last_lines_by_rank(job)[process.pid].lines == ["the newest"]
            names = sorted(str(path)[str(path).index("attempt_0") :] for path in last_output.log_files(job))
            assert names == ["attempt_0/0/stderr.log", "attempt_0/0/stdout.log", "attempt_0/1/stdout.log"]

    def test_log_of_a_rank_that_has_ended_is_named_as_those_of_the_others(self, tmp_path: Path) -> None:
        logs = [tmp_path / f"run-7-rank{rank:02}.log" for rank in range(4)]
        with (
            logs[0].open("ab") as out0,
            logs[2].open("ab") as out2,
            still(SLEEP, tmp_path, out=out0) as first,
            still(SLEEP, tmp_path, out=out2) as second,
        ):
            started = time.time()
            for path in logs:
                path.write_text("a line\n")
            os.utime(logs[3], (started - 3600, started - 3600))  # of an earlier run
            ranks = [rank_of(first.pid, 0), rank_of(second.pid, 2)]
            ranks = [msgspec.structs.replace(rank, started_at=started) for rank in ranks]
            job = msgspec.structs.replace(job_with(*ranks), world_size=4)
            assert sorted(last_output.log_files(job)) == logs[:3]

    def test_log_dir_from_the_launcher_command(self, tmp_path: Path) -> None:
        for attempt in ("attempt_0", "attempt_1"):
            (tmp_path / "logs" / "run_x" / attempt / "0").mkdir(parents=True)
            (tmp_path / "logs" / "run_x" / attempt / "0" / "stderr.log").write_text(attempt)
        os.utime(tmp_path / "logs" / "run_x" / "attempt_0", (1, 1))
        with still(SLEEP, tmp_path) as process:
            job = job_with(rank_of(process.pid, 0))
            for command in (["torchrun", "--log-dir", "logs"], ["torchrun", "--log_dir=logs"]):
                job = msgspec.structs.replace(job, launcher_command=command, launcher_cwd=str(tmp_path))
                (path,) = last_output.log_files(job)
                assert path.read_text() == "attempt_1"

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the owner of a file")
    def test_file_of_another_user_is_not_read(self, tmp_path: Path) -> None:
        private = tmp_path / "0" / "stdout.log"
        private.parent.mkdir()
        private.write_text("private\n")
        os.chown(private, 65534, 65534)
        with still(SLEEP, tmp_path) as process:
            job = job_with(rank_of(process.pid, 0, {last_output.ERROR_FILE: str(private.with_name("error.json"))}))
            assert last_output.last_lines_by_rank(job) == {}
            assert last_output.log_files(job) == []

    def test_ranks_that_share_a_file_get_the_lines_with_their_prefix(self, tmp_path: Path) -> None:
        log = tmp_path / "all.log"
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        log.write_text("[rank0]: one\n[default1]: two\nnobody's\n")
        with (
            log.open("ab") as out,
            still(SLEEP, tmp_path / "a", out=out) as one,
            still(SLEEP, tmp_path / "b", out=out) as two,
        ):
            lines = last_output.last_lines_by_rank(job_with(rank_of(one.pid, 0), rank_of(two.pid, 1)))
            assert [lines[pid].lines for pid in (one.pid, two.pid)] == [["[rank0]: one"], ["[default1]: two"]]

    def test_only_the_end_of_a_file_is_read(self, tmp_path: Path) -> None:
        log = tmp_path / "long.log"
        log.write_text("".join(f"line {number} {'x' * 900}\n" for number in range(3000)))
        lines = last_output.tail_lines(log)
        assert len(lines) == last_output.LINES
        assert lines[-1].startswith("line 2999 ")
        assert max(map(len, lines)) == last_output.LINE_LENGTH

    def test_pipe_and_terminal_are_not_read(self, tmp_path: Path) -> None:
        code = "read, write = os.pipe()\nos.dup2(write, 1)\n_, tty = os.openpty()\nos.dup2(tty, 2)\n" + SLEEP
        with still(code, tmp_path) as process:
            assert last_output.last_lines_by_rank(job_with(rank_of(process.pid, 0))) == {}


class TestSample:
    def test_sources_of_threads_that_the_main_thread_joins(self, tmp_path: Path) -> None:
        (tmp_path / "worker.py").write_text("import time\ndef work():\n    time.sleep(600)\n")
        code = "import worker\nthread = threading.Thread(target=worker.work)\nthread.start()\nup()\nthread.join()\n"
        with still(code, tmp_path) as process:
            report = asyncio.run(sampler.sample_job(job_of(process.pid), gap_s=0.2))
            assert set(report.sources) == {str(tmp_path / "still.py"), str(tmp_path / "worker.py")}
            (found,) = report.observed.seen
            assert [thread.frames[0].function for thread in found.samples[-1].others] == ["work"]

    def test_blocking_call_raises_inspection_error_after_the_limit(self) -> None:
        async def wait() -> None:
            await run_in_thread(threading.Event().wait, limit_s=0.1, subject="the logs of the job")

        with pytest.raises(InspectionError, match=r"the logs of the job: no answer within 0\.1 s"):
            asyncio.run(wait())

    def test_process_that_ended_between_samples_is_not_an_error(self, tmp_path: Path) -> None:
        with still(SLEEP, tmp_path) as process:
            job = job_of(process.pid)
            first = asyncio.run(stacks.sample_stacks(job.processes))
            process.kill()
            process.wait()
            assert procfs.process_of(process.pid) is None
            found = asyncio.run(sample_context(job, first))
            assert process_samples(job, [first], found)[0].children == []
