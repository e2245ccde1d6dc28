"""``ddpwizard run -- COMMAND`` with real jobs: additions, unchanged behaviour, and reports."""

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ddpwizard.app.session import all_sessions
from ddpwizard.app.system import procfs, run_directory
from ddpwizard.screens.shell.state import last_step
from helpers.command import ddpwizard, refused
from helpers.jobs import MARK, SCRIPTS, free_port, line_of, torchrun, wait_for
from helpers.pseudo_terminal import Terminal, marked

pytestmark = [pytest.mark.jobs, pytest.mark.slow]

WITHOUT_PTRACE = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
BY_HAND = (
    "import os, subprocess, sys\n"
    "def rank(r):\n"
    "    own = {'RANK': str(r), 'LOCAL_RANK': str(r), 'WORLD_SIZE': '2'}\n"
    "    return subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, **own})\n"
    "ranks = [rank(r) for r in range(2)]\n"
    "sys.exit(max(rank.wait() != 0 for rank in ranks))\n"
)
# ddpwizard, but runs have their folders in the directory that is the first argument, not among those of other tests.
RUN_IN = (
    "import pathlib, sys\n"
    "from ddpwizard import cli\n"
    "from ddpwizard.app.system import run_directory\n"
    "run_directory.RUNS_DIRECTORY = pathlib.Path(sys.argv[1])\n"
    "sys.exit(cli.run(sys.argv[2:]))\n"
)


class Run:
    """A ``ddpwizard run`` that runs: its process, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path, mark: str) -> None:
        self.process, self._out, self._err, self.mark = process, out, err, mark

    @property
    def out(self) -> bytes:
        return self._out.read_bytes()

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def left(self) -> list[procfs.Proc]:
        """Return its living processes."""
        return [
            proc
            for proc in procfs.all_processes().values()
            if proc.environ.get(MARK) == self.mark and proc.state != "Z"
        ]

    def printed(self, text: str) -> None:
        wait_for(lambda: text in self.err or self.process.poll() is not None, f"{text!r} is printed: {self.err}")
        assert text in self.err, self.err

    def code(self) -> int:
        try:
            return self.process.wait(300)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.err}") from None

    def private(self) -> Path | None:
        """The run's folder, as the job sees it."""
        given = [proc.environ.get(run_directory.FOLDER_VARIABLE) for proc in self.left()]
        return next((Path(path) for path in given if path), None)


@contextmanager
def wizard(*arguments: str, cwd: Path, before: tuple[str, ...] = (), **environ: str) -> Iterator[Run]:
    """Start ``ddpwizard run`` with these arguments; nothing of it is left at the end."""
    out, err, mark = cwd / "stdout", cwd / "stderr", os.urandom(8).hex()
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environ, MARK: mark}
    command = [*before, sys.executable, "-m", "ddpwizard", "run", *arguments]
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
        )
    run = Run(process, out, err, mark)
    try:
        yield run
    finally:
        private = run.private()
        while left := run.left():
            for proc in left:
                with suppress(ProcessLookupError):
                    os.kill(proc.pid, signal.SIGKILL)
        process.wait()
        if private:
            shutil.rmtree(private, ignore_errors=True)


def script(name: str, directory: Path) -> Path:
    target = directory / name
    target.write_text((SCRIPTS / name).read_text())
    return target


def kept(run: Run) -> Path:
    """Return the directory that a run reports to have kept; the caller removes it."""
    line = next(line for line in run.err.splitlines() if "output and records of the ranks: " in line)
    return Path(line.rpartition(" ")[2])


class TestNothingChanges:
    def test_bytes_path_and_own_start_up_modules(self, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "sitecustomize.py").write_text("import os\nos.environ['THEIR_SITECUSTOMIZE'] = 'ran'\n")
        (theirs / "run_helper_module.py").write_text("VALUE = 7\n")
        command = torchrun(script("run_bytes.py", tmp_path), 2)
        path = os.pathsep.join(filter(None, [str(theirs), os.environ.get("PYTHONPATH")]))
        with wizard("--json", "--", *command, cwd=tmp_path, PYTHONPATH=path, HELPER="1") as run:
            private = wait_for(run.private, "the private folder")
            assert run.code() == 0, run.err
        assert run.out == bytes(range(256)) + b"\n"
        around = json.loads(next(line for line in run.err.splitlines() if line.startswith("{")))
        file = str(theirs / "sitecustomize.py")
        assert around == {"path": [], "theirs": "ran", "file": file, "helper": 7}
        assert run.err.count("ddpwizard") == 1 and "WorkerServer" not in run.err
        assert not private.exists()

    @pytest.mark.parametrize("option", ["-S", "-I", "-E"])
    def test_python_that_takes_no_start_up_module(self, option: str, tmp_path: Path) -> None:
        with wizard("--", sys.executable, option, "-c", "print('it runs')", cwd=tmp_path) as run:
            assert (run.code(), run.out, run.err.count("\n")) == (0, b"it runs\n", 1)

    @pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)])
    def test_ends_at_once_with_the_jobs_code(self, ends: str, code: int, tmp_path: Path) -> None:
        with wizard("--", "sh", "-c", ends, cwd=tmp_path) as run:
            assert (run.code(), run.out) == (code, b"")
            start = f"ddpwizard: watching; diagnoses after 5 min without progress, or on kill -USR1 {run.process.pid}\n"
            assert run.err == start

    def test_no_such_command(self, tmp_path: Path) -> None:
        assert "no-such-program: no such command" in refused(ddpwizard("run", "--", "no-such-program"), 127)
        assert "cannot be started" in refused(ddpwizard("run", "--", "/tmp"), 126)
        assert "no command" in refused(ddpwizard("run"), 2)
        for command, code in (("no-such-program", 127), ("/tmp", 126)):
            done = subprocess.run([sys.executable, "-c", RUN_IN, str(tmp_path), "run", "--", command], timeout=300)
            assert done.returncode == code
        assert not list(tmp_path.iterdir()), "no folder is left"

    def test_options_of_the_job_stay_its_own(self, tmp_path: Path) -> None:
        with wizard("--", "echo", "--report", "x", "--json", "-h", cwd=tmp_path) as run:
            assert (run.code(), run.out) == (0, b"--report x --json -h\n")


class TestSignals:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 11), (signal.SIGTERM, 31)])
    def test_a_signal_to_the_wizard_reaches_the_job_once(self, number: int, code: int, tmp_path: Path) -> None:
        with wizard("--", sys.executable, str(SCRIPTS / "run_count.py"), cwd=tmp_path) as run:
            wait_for(lambda: run.out, "the job is ready")
            run.process.send_signal(number)
            assert run.code() == code, run.err

    def test_ctrl_c_at_the_terminal_reaches_the_job_once(self) -> None:
        count = [sys.executable, str(SCRIPTS / "run_count.py")]
        with Terminal([sys.executable, "-m", "ddpwizard", "run", "--", *count]) as terminal:
            terminal.wait_for("ready")
            terminal.send("ctrl+c")
            assert terminal.process.wait(120) == 11

    def test_ctrl_c_ends_a_command_that_takes_no_notice_of_it_with_130(self) -> None:
        # not "sh -c": dash loses a SIGINT that comes between its echo and its fork
        heedless = "import signal, time; signal.signal(2, signal.SIG_DFL); print('ready', flush=True); time.sleep(100)"
        with Terminal([sys.executable, "-m", "ddpwizard", "run", "--", sys.executable, "-c", heedless]) as terminal:
            terminal.wait_for("ready")
            terminal.send("ctrl+c")
            assert terminal.process.wait(120) == 130

    def test_term_ends_a_torchrun_job_and_leaves_nothing(self, tmp_path: Path) -> None:
        with wizard("--", *torchrun(script("run_totals.py", tmp_path), 2), cwd=tmp_path) as run:
            wait_for(lambda: run.out.count(b"has its total") == 2, "both ranks are there")
            private = run.private()
            run.process.send_signal(signal.SIGTERM)
            assert run.code() == 1, run.err  # torchrun's own answer to it
            assert private and not private.exists()
            assert not run.left()

    def test_closed_terminal_ends_launcher_and_ranks(self, tmp_path: Path) -> None:
        job = torchrun(script("run_totals.py", tmp_path), 2)
        with Terminal([sys.executable, "-m", "ddpwizard", "run", "--", *job], cwd=tmp_path) as terminal:
            terminal.wait_until(lambda: terminal.text.count("has its total") == 2, "both ranks")
            terminal.close()
            wait_for(lambda: not marked(terminal.mark), "wizard, launcher and ranks have ended")

    def test_the_warning_makes_it_look_and_a_job_that_does_not_know_it_lives_on(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        with wizard("--hang-after", "0", "--", *torchrun(job, 2), cwd=tmp_path) as run:
            wait_for(lambda: run.out.count(b"has its total") == 2, "both ranks are there")
            run.process.send_signal(signal.SIGUSR1)
            run.printed("SIGUSR1 received; diagnosing the job")
            run.printed("run_totals.py:")
            assert run.process.poll() is None
            run.process.send_signal(signal.SIGTERM)
            assert run.code() == 1
            shutil.rmtree(kept(run))


def best_cause_of(session: str) -> str:
    """Return the first cause of a session with its share, as its export shows it."""
    text = html.unescape(ddpwizard("sessions", "export", session).stdout)
    found = re.search(r"Most likely: .* \(>?\d+%\)", text)
    assert found, text
    return found[0]


class TestHang:
    def stopped(self, tmp_path: Path, command: list[str], before: tuple[str, ...] = ()) -> dict[str, object]:
        """Run a job that hangs with ``--then stop``; the job of its report."""
        report = tmp_path / "report.json"
        handed = f"{sys.executable} -c \"import sys; open('handed', 'w').write(sys.stdin.read())\""
        options = ["--hang-after", "4", "--then", "stop", "--report", str(report), "--on-hang", handed]
        with wizard(*options, "--", *command, cwd=tmp_path, before=before) as run:
            assert run.code() == 1, run.err
            assert not run.left()
            assert "ending the job" in run.err
            private = kept(run)
            printed = "".join(path.read_text() for path in private.glob("*.log"))
            assert printed.count("has its total") == 2
            shutil.rmtree(private)
        document = json.loads(report.read_text())
        assert document["schema"] == "ddpwizard.triage/1"
        assert json.loads((tmp_path / "handed").read_text()) == document
        return document["jobs"][0]

    def check(self, job: dict[str, object], script: Path) -> None:
        verdict = job["verdict"]
        assert isinstance(verdict, dict)
        assert (verdict["state"], verdict["culprits"]) == ("hung", [0])
        assert (verdict["where"], verdict["branch"]) == (line_of(script, "HANG"), line_of(script, "BRANCH"))
        assert (verdict["collective"], verdict["cause"]) == ("all_reduce", "rank-conditional-collective")

    def test_torchrun(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        self.check(self.stopped(tmp_path, torchrun(job, 2)), job)

    def test_mp_spawn_under_plain_python(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        self.check(self.stopped(tmp_path, [sys.executable, str(job), "spawn"]), job)
        (session,) = all_sessions()
        assert [event.kind for event in session.events].count("triage") == 1
        assert last_step(session)["screen"] == "diagnosis"
        assert best_cause_of(session.id) in (tmp_path / "stderr").read_text()

    def test_verdict_outlasts_a_broken_team_entry_and_an_unwritable_session(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        team = tmp_path / "config" / "ddpwizard" / "knowledge"
        team.mkdir(parents=True)
        (team / "bad.yaml").write_text("id: x\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
        job = script("run_totals.py", tmp_path)
        self.check(self.stopped(tmp_path, [sys.executable, str(job), "spawn"]), job)
        printed = (tmp_path / "stderr").read_text()
        assert f"{team}/bad.yaml:1: " in printed and "cannot write the session file" in printed

    def test_accelerate(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
        options = ["--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
        place = f"--main_process_port={free_port()}"
        self.check(self.stopped(tmp_path, [*launch, *options, place, str(job)]), job)

    def test_deepspeed(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        world = "eyJsb2NhbGhvc3QiOiBbMCwgMV19"  # {"localhost": [0, 1]} in base64
        launch = [sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={world}", "--node_rank=0"]
        place = ["--master_addr=127.0.0.1", f"--master_port={free_port()}", "--no_local_rank"]
        self.check(self.stopped(tmp_path, [*launch, *place, str(job)]), job)

    def test_without_the_right_to_trace(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        self.check(self.stopped(tmp_path, torchrun(job, 2), tuple(WITHOUT_PTRACE)), job)

    def test_triage_from_outside_without_the_right_to_trace(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        with wizard("--hang-after", "0", "--", *torchrun(job, 2), cwd=tmp_path) as run:
            wait_for(lambda: run.out.count(b"has its total") == 2, "both ranks are there")
            launcher = next(proc.pid for proc in run.left() if "torch.distributed.run" in proc.command[:3])
            looked = [sys.executable, "-m", "ddpwizard", "triage", "--json", "--pid", str(launcher)]

            def verdict(before: list[str]) -> dict[str, object]:
                done = subprocess.run([*before, *looked], capture_output=True, timeout=300, check=False)
                assert done.returncode == 1, done.stderr
                return json.loads(done.stdout)["jobs"][0]

            with_rights, without = verdict([]), verdict(WITHOUT_PTRACE)
            self.check(with_rights, job)
            assert without["verdict"] == with_rights["verdict"]

    def test_kept_job_continues_and_is_reported_once(self, tmp_path: Path) -> None:
        job = script("run_totals.py", tmp_path)
        report = tmp_path / "report.md"
        with wizard("--hang-after", "4", "--report", str(report), "--", *torchrun(job, 2), cwd=tmp_path) as run:
            run.printed(f"report: {report}")
            assert "run_totals.py" in report.read_text()
            assert run.process.poll() is None
            run.process.send_signal(signal.SIGTERM)
            assert run.code() == 1
            assert run.err.count("diagnosing the job") == 1
            shutil.rmtree(kept(run))


class TestDeath:
    @pytest.mark.parametrize(
        ("how", "message"), [("kill", "killed by SIGKILL"), ("raise", "ValueError: no batch left")]
    )
    def test_a_rank_dies_and_nobody_ends_the_other(self, how: str, message: str, tmp_path: Path) -> None:
        job = script("run_dies.py", tmp_path)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WAIT_ON": "1"}
        command = [sys.executable, "-c", BY_HAND, str(job), how]
        with wizard("--then", "stop", "--", *command, cwd=tmp_path, before=(), **place) as run:
            run.code()
            assert "rank 1 (pid" in run.err and message in run.err, run.err
            shutil.rmtree(kept(run))

    @pytest.mark.parametrize(
        ("how", "message"), [("kill", "killed by SIGKILL"), ("raise", "ValueError: no batch left")]
    )
    def test_the_first_to_die_under_torchrun(self, how: str, message: str, tmp_path: Path) -> None:
        job = script("run_dies.py", tmp_path)
        report = tmp_path / "report.json"
        with wizard("--report", str(report), "--", *torchrun(job, 2, how), cwd=tmp_path) as run:
            assert run.code() == 1
            assert message in json.loads(report.read_text())["why"]
            assert re.search(rf"ddpwizard: rank 1 \(pid \d+\) died.*{message}", run.err), run.err
            (session,) = all_sessions()
            assert f"ddpwizard sessions resume {session.id}" in run.err
            if how == "raise":
                assert f"raised at {line_of(job, 'ERROR')} in <module>" in run.err
                ranked = next(event.data["causes"] for event in session.events if event.kind == "diagnosis")
                assert ranked[0][0] == "script-error"
                assert best_cause_of(session.id) in run.err
            private = kept(run)
            assert any("rank 1 is about to end" in path.read_text() for path in private.glob("*.log"))
            shutil.rmtree(private)


class TestOutputOfCpp:
    """Messages that C++ code prints to standard error."""

    def test_the_message_of_an_abort_is_read_as_diagnose_reads_it(self, tmp_path: Path) -> None:
        job = script("run_sizes.py", tmp_path)
        report = tmp_path / "report.json"
        with wizard("--report", str(report), "--", *torchrun(job, 2), cwd=tmp_path) as run:
            assert run.code() == 1
        shutil.rmtree(kept(run))
        message = "op.preamble.length <= op.nbytes. 4000 vs 32"
        passed_on = run.err.split("ddpwizard: rank 1")[0]
        assert passed_on.count(message) == 1, run.err
        (first, *_) = json.loads(report.read_text())["causes"]
        assert message in first["because"][0]["what"]
        (read, *_) = json.loads(ddpwizard("diagnose", "-", "--json", "--no-probe", stdin=passed_on).stdout)["causes"]
        assert first["id"] == read["id"] == "collective-desync"
        assert abs(first["confidence"] - read["confidence"]) < 0.05

    def test_a_rank_at_a_terminal_keeps_it_and_its_size(self, tmp_path: Path) -> None:
        job = tmp_path / "job.py"
        job.write_text(
            "import os, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "os.write(2, b'%d %s columns\\n' % (os.isatty(2), str(os.get_terminal_size(2).columns).encode()))\n"
            "print('a line of print', flush=True)\n"
            "os.abort()\n"
        )
        with Terminal([sys.executable, "-m", "ddpwizard", "run", "--", *torchrun(job, 1)], cwd=tmp_path) as terminal:
            terminal.wait_for("output and records of the ranks: ")
            assert terminal.process.wait(120) == 1
            private = Path(re.search(r"/tmp/ddpw-\w+", terminal.output.decode())[0])  # type: ignore[index]
        assert b"1 80 columns\r\n" in terminal.output
        copy = "".join(path.read_text() for path in private.glob("*.log"))
        assert re.search(r"\d 1 80 columns\n", copy) and "a line of print" in copy
        shutil.rmtree(private)

    def test_a_rank_started_by_a_rank_writes_more_than_a_pipe_holds(self, tmp_path: Path) -> None:
        job = tmp_path / "job.py"
        job.write_text(
            "import os, subprocess, sys, torch.distributed as dist\n"
            "if len(sys.argv) == 1:\n"
            "    dist.init_process_group('gloo')\n"
            "    child = subprocess.Popen([sys.executable, __file__, 'child'], stdout=subprocess.PIPE)\n"
            "    child.stdout.readline()\n"
            "    os.write(2, b'y' * 2_000_000 + b'\\n')\n"
            "    sys.exit(child.wait())\n"
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
            "os.write(1, b'ready\\n')\n"
            "os.write(2, b'x' * 2_000_000 + b'\\n')\n"
        )
        with wizard("--", *torchrun(job, 1), cwd=tmp_path) as run:
            assert run.code() == 0, run.err
        assert (run.err.count("x"), run.err.count("y")) >= (2_000_000, 2_000_000)

    def test_the_job_outlives_the_watchdog(self, tmp_path: Path) -> None:
        job = tmp_path / "job.py"
        job.write_text(
            "import os, time, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "print('ready', flush=True)\n"
            "while not os.path.exists('go'): time.sleep(0.05)\n"
            "os.write(2, b'x' * 200_000 + b'\\n')\n"
            "open('done', 'w').close()\n"
        )
        with wizard("--", *torchrun(job, 1), cwd=tmp_path) as run:
            wait_for(lambda: b"ready" in run.out, "the rank is there")
            run.process.kill()
            run.process.wait()
            (tmp_path / "go").touch()
            wait_for((tmp_path / "done").exists, "the rank ends normally")
            wait_for(lambda: "x" * 200_000 in run.err, "its output arrives")


class TestFirstEnd:
    """The end of rank 1 between two all-reduces, after which rank 0 loses it."""

    JOB = (
        "import ctypes, sys\nimport torch\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(4))\n"
        "if dist.get_rank() == 1:\n"
        "    {end}\n"
        "dist.all_reduce(torch.ones(4))\n"
    )

    def test_without_an_error_comes_before_the_lost_connection(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(self.JOB.format(end="sys.exit(0)"))
        with wizard("--", *torchrun(tmp_path / "train.py", 2), cwd=tmp_path) as run:
            assert run.code() == 1
            assert re.search(r"rank 1 \(pid \d+\) left first: it ended without an error", run.err), run.err
            assert "died first" not in run.err and "longer time-out" not in run.err
            assert "Let all ranks leave together" in run.err
            shutil.rmtree(kept(run))

    def test_by_a_signal_names_the_line(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(self.JOB.format(end="ctypes.string_at(0)"))
        with wizard("--", *torchrun(tmp_path / "train.py", 2), cwd=tmp_path) as run:
            assert run.code() == 1
            assert re.search(r"rank 1 \(pid \d+\) died first: killed by SIGSEGV\n", run.err), run.err
            assert f"in {tmp_path / 'train.py'}:7 in <module>" in run.err
            shutil.rmtree(kept(run))


class TestErrorBeforeTorch:
    """An error that ends the ranks, or the launcher, before torch.distributed is imported."""

    @pytest.mark.parametrize(
        ("text", "error"),
        [("import no_such_module\n", "ModuleNotFoundError: No module named"), ("if True\n", "SyntaxError: ")],
    )
    def test_of_the_script(self, text: str, error: str, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text(text)
        with wizard("--", *torchrun(script, 2), cwd=tmp_path) as run:
            assert run.code() == 1
            assert re.search(rf"ddpwizard: rank [01] \(pid \d+\) died first: {error}", run.err), run.err
            assert f"raised at {script}:1" in run.err
            assert "An error of your script, not a fault of distributed training" in run.err
            assert error in run.err.split("ddpwizard: rank")[0], "it is printed as before"
            shutil.rmtree(kept(run))

    def test_of_a_command_without_a_launcher(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("import no_such_module\n")
        with wizard("--", sys.executable, "train.py", cwd=tmp_path) as run:
            assert run.code() == 1
            assert "died first: ModuleNotFoundError" in run.err and "An error of your script" in run.err
            shutil.rmtree(kept(run))

    def test_of_the_launcher(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("print('never')\n")
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            options = ["--nnodes=1", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
            command = [sys.executable, "-m", "torch.distributed.run", *options, "train.py"]
            with wizard("--", *command, cwd=tmp_path) as run:
                assert run.code() == 1
                assert "died first: DistNetworkError" in run.err, run.err
                assert "raised at" not in run.err, "the line is one of torch"
                assert "The rendezvous port is already taken" in run.err
                shutil.rmtree(kept(run))

    def test_of_a_program_that_a_rank_starts_is_none_of_the_job(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', '1 / 0'])\nprint('fine')\n")
        with wizard("--", *torchrun(script, 2), cwd=tmp_path) as run:
            assert run.code() == 0
            assert "died" not in run.err and "output and records" not in run.err, run.err


class TestErrorOfOneRank:
    """One rank fails or has fewer batches, and the others wait for it."""

    HANDLED = (
        "import time\nimport torch\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "def train():\n"
        "    for step in range(9):\n"
        "        if dist.get_rank() + step == 4:\n"
        "            raise ValueError('bad row 7')\n"
        "        dist.all_reduce(torch.ones(3))\n"
        "try:\n"
        "    train()\n"
        "except Exception as error:\n"
        "    print(f'failed: {error!r}', flush=True)\n"
        "    time.sleep(600)\n"
        "    raise\n"
    )
    UNEVEN = (
        "import torch\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for row in list(range(8))[dist.get_rank() :]:\n"
        "    dist.all_reduce(torch.ones(300))  # IN\n"
        "dist.all_reduce(torch.ones(1))  # AFTER\n"
    )

    def test_that_sleeps_after_it(self, tmp_path: Path) -> None:
        job = tmp_path / "train.py"
        job.write_text(self.HANDLED)
        options = ["--hang-after", "4", "--then", "stop"]
        with wizard(*options, "--", *torchrun(job, 2), cwd=tmp_path) as run:
            assert run.code() == 1
            assert "is in the `except` block at train.py:12 after an error: ValueError: bad row 7" in run.err, run.err
            assert "an error of your script" in run.err, run.err
            *_, verdict, last = run.err.splitlines()
            assert "after an error" in verdict and "output and records of the ranks" in last
            shutil.rmtree(kept(run))

    def test_whose_fewer_batches_end_it_in_another_collective(self, tmp_path: Path) -> None:
        job = tmp_path / "train.py"
        job.write_text(self.UNEVEN)
        with wizard("--", *torchrun(job, 2), cwd=tmp_path) as run:
            assert run.code() == 1
            for marker in ("IN", "AFTER"):
                assert Path(line_of(job, marker)).name in run.err.partition("died first")[2], run.err
            assert "Ranks have unequal numbers of batches" in run.err, run.err
            assert "(100%)" not in run.err
            shutil.rmtree(kept(run))
