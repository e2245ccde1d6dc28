"""``ddpwizard doctor``: on this machine, and on saved snapshots."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.commands import doctor
from ddpwizard.app.evidence import Check
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.options import Options
from ddpwizard.app.snapshot import AllreduceSection, BenchRow, GpuSection, Snapshot, SoftwareSection, read_snapshot
from ddpwizard.knowledge.schema import NATS
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard, refused

SOFTWARE = SoftwareSection(
    python="/env/bin/python", python_version="3.12.1", torch="2.13.0+cpu", torch_path="/env/t", backends=["gloo"]
)
ROW = BenchRow(
    operation="all_reduce", backend="gloo", ranks=2, bytes=65536, seconds=2e-4, algbw_gbps=0.32768, busbw_gbps=0.32768,
    correct=True,
)  # fmt: skip
HEALTHY = Snapshot(
    taken_at=1.0,
    host="node-07",
    ddpwizard_version="0.1",
    software=SOFTWARE,
    gpus=GpuSection(problem="NVML Shared Library Not Found"),
    allreduce=AllreduceSection(backend="gloo", ranks=2, rows=[ROW]),
)
SICK = msgspec.structs.replace(
    HEALTHY,
    software=msgspec.structs.replace(SOFTWARE, backends=[]),
    failed={"network": "no /sys here"},
    allreduce=AllreduceSection(
        backend="gloo",
        ranks=2,
        rows=[],
        ended="failed",
        verdict="ranks 0–1 failed while joining the others: Unable to find address for: nope0",
    ),
)


def saved(directory: Path, snapshot: Snapshot | bytes) -> str:
    path = directory / "machine.json"
    path.write_bytes(snapshot if isinstance(snapshot, bytes) else msgspec.json.encode(snapshot))
    return str(path)


def keys(items: list[dict[str, Any]]) -> set[frozenset[str]]:
    return {frozenset(item) for item in items}


class TestReplay:
    def test_passed_checks_are_folded(self, tmp_path: Path):
        done = ddpwizard("doctor", "--replay", saved(tmp_path, HEALTHY))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].startswith("Machine  node-07") and lines[0].endswith("2 ok · 1 skipped")
        assert "✓ all-reduce, 2 ranks, gloo: correct" in lines
        assert "✓ 1 ok (--full shows them)" in lines
        assert "– no working NVIDIA driver" in lines, "what the machine lacks is listed"
        assert "64 KiB     200 µs   0.328 GB/s" in done.stdout
        assert "  algbw: size / time" in lines and any(
            line.startswith("  busbw: algbw x 2 (n - 1) / n") for line in lines
        )

    def test_full_lists_passed_checks(self, tmp_path: Path):
        done = ddpwizard("doctor", "--full", "--replay", saved(tmp_path, HEALTHY))
        assert "✓ torch 2.13.0+cpu, CPU only" in done.stdout
        assert "– no working NVIDIA driver" in done.stdout

    def test_failed_checks_come_first_then_unknown_ones(self, tmp_path: Path):
        done = ddpwizard("doctor", "--replay", saved(tmp_path, SICK))
        assert done.returncode == 1
        signs = [line[0] for line in done.stdout.splitlines()[1:] if line[0] in "✓✗!?–"]
        assert signs == ["✗", "✗", "?", "–"]
        assert "2 fail · 1 unknown · 1 skipped" in done.stdout.splitlines()[0]
        assert "→ install an official build of torch" in done.stdout
        assert all(len(line) <= 80 for line in done.stdout.splitlines())

    def test_only_a_failed_check_is_exit_code_1_unless_strict(self, tmp_path: Path):
        unknown = saved(tmp_path, msgspec.structs.replace(HEALTHY, failed={"network": "no /sys here"}))
        assert ddpwizard("doctor", "--replay", unknown).returncode == 0
        assert ddpwizard("doctor", "--strict", "--replay", unknown).returncode == 1
        assert ddpwizard("doctor", "--strict", "--replay", saved(tmp_path, HEALTHY)).returncode == 0

    def test_json_is_one_document(self, tmp_path: Path):
        done = ddpwizard("doctor", "--json", "--replay", saved(tmp_path, SICK))
        doc = json.loads(done.stdout)
        assert done.returncode == 1
        assert doc["schema"] == "ddpwizard.doctor/1"
        assert {"ddpwizard_version", "knowledge_version", "snapshot", "checks", "bench"} < set(doc)
        assert keys(doc["checks"]) == {frozenset(["id", "status", "title", "detail", "cause", "fix"])}
        assert [check["status"] for check in doc["checks"]] == ["fail", "fail", "unknown", "skip"]
        assert doc["bench"] == []

    def test_json_bench_rows(self, tmp_path: Path):
        doc = json.loads(ddpwizard("doctor", "--json", "--replay", saved(tmp_path, HEALTHY)).stdout)
        assert doc["bench"] == [msgspec.to_builtins(ROW)]

    def test_json_document_can_be_replayed(self, tmp_path: Path):
        text = ddpwizard("doctor", "--json", "--replay", saved(tmp_path, SICK)).stdout
        again = ddpwizard("doctor", "--json", "--replay", saved(tmp_path, text.encode()))
        assert json.loads(again.stdout)["checks"] == json.loads(text)["checks"]

    def test_ascii_output(self, tmp_path: Path):
        done = ddpwizard("doctor", "--ascii", "--full", "--replay", saved(tmp_path, SICK))
        assert done.stdout.isascii()
        assert "FAIL all-reduce, 2 ranks, gloo: failed" in done.stdout

    def test_control_characters_are_not_printed(self, tmp_path: Path):
        evil = msgspec.structs.replace(HEALTHY, host="n\x1b]0;owned\x07", failed={"network": "a\x1b[31mb\rc"})
        done = ddpwizard("doctor", "--replay", saved(tmp_path, evil))
        assert "\x1b" not in done.stdout and "\x07" not in done.stdout and "\r" not in done.stdout
        assert "ab" in done.stdout and "owned" not in done.stdout and "[31m" not in done.stdout


class TestBadInput:
    @pytest.mark.parametrize(
        "content",
        [b"", b"\x7fELF\x00\xff", b"[]", b'"x"', b"{}", b'{"schema": "ddpwizard.snapshot/99"}', b'{"a": "\xff"}'],
    )
    def test_invalid_snapshot_file_is_an_error(self, tmp_path: Path, content: bytes):
        done = ddpwizard("doctor", "--replay", saved(tmp_path, content))
        assert "machine.json" in refused(done, 2)
        assert done.stdout == ""

    def test_missing_directory_and_fifo_are_errors(self, tmp_path: Path):
        assert "No such file" in refused(ddpwizard("doctor", "--replay", str(tmp_path / "none.json")), 2)
        refused(ddpwizard("doctor", "--replay", str(tmp_path)), 2)
        os.mkfifo(tmp_path / "pipe")
        refused(ddpwizard("doctor", "--replay", str(tmp_path / "pipe")), 2)

    def test_empty_snapshot_is_an_inspection_error(self, tmp_path: Path):
        nothing = Snapshot(taken_at=1, host="b", ddpwizard_version="0", failed={"env": "no /proc"})
        assert "no /proc" in refused(ddpwizard("doctor", "--replay", saved(tmp_path, nothing)), 3)
        doc = json.loads(ddpwizard("doctor", "--json", "--replay", saved(tmp_path, nothing)).stdout)
        assert doc["schema"] == "ddpwizard.error/1"

    def test_replay_runs_and_saves_nothing(self, tmp_path: Path):
        refused(ddpwizard("doctor", "--bench", "--replay", saved(tmp_path, HEALTHY)), 2)

    @pytest.mark.parametrize("target", ["none/machine.json", "."])
    def test_unwritable_save_file_is_refused_before_probing(self, tmp_path: Path, target: str):
        done = ddpwizard("doctor", "--save", str(tmp_path / target))
        refused(done, 2)
        assert "checking " not in done.stderr

    def test_missing_interpreter_is_a_usage_error(self):
        assert "--python" in refused(ddpwizard("doctor", "--python", "/nowhere/python"), 2)


@pytest.mark.slow
class TestLive:
    def test_save_and_replay_agree_and_hold_no_secret(self, tmp_path: Path):
        path = tmp_path / "machine.json"
        environ = {"PYTORCH_API_KEY": "hunter2hunter2"}
        live = ddpwizard("doctor", "--json", "--allow", "reads", "--save", str(path), env=environ, limit_s=120)
        doc = json.loads(live.stdout)
        assert live.returncode in (0, 1)
        snapshot = read_snapshot(path.read_bytes(), "machine.json")
        assert snapshot.software is not None and snapshot.software.python == doc["snapshot"]["software"]["python"]
        assert "--allow connects" in snapshot.failed["resolve"]
        assert "hunter2" not in path.read_text() + live.stdout
        assert json.loads(ddpwizard("doctor", "--json", "--replay", str(path)).stdout)["checks"] == doc["checks"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["machine.json"]

    def test_bench_without_permission_names_the_required_level(self):
        done = ddpwizard("doctor", "--json", "--bench", "--allow", "reads", limit_s=120)
        doc = json.loads(done.stdout)
        assert "--allow allocates" in doc["snapshot"]["failed"]["allreduce"]
        assert doc["bench"] == []

    def test_environment_is_that_of_the_job_of_this_directory_or_of_the_pid(self, tmp_path: Path):
        """A job elsewhere is another one, also if it is the only one of this machine."""
        here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
        here.mkdir()
        elsewhere.mkdir()
        environ = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29517"}
        environ |= {"MASTER_ADDR": "127.0.0.1"}
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], cwd=here, env=environ) as rank:
            try:
                for directory, options, is_of_job in (
                    (here, [], True),
                    (elsewhere, [], False),
                    (elsewhere, ["--pid", str(rank.pid)], True),
                ):
                    done = ddpwizard("doctor", "--json", "--allow", "reads", *options, cwd=directory, limit_s=120)
                    env = json.loads(done.stdout)["snapshot"]["env"]
                    assert (str(rank.pid) in env["ranks"]) is is_of_job, done.stderr
                    assert is_of_job or f"--pid {rank.pid} (python)" in done.stderr
            finally:
                rank.kill()

    def test_job_that_ends_meanwhile_is_replaced_by_this_shell(self, monkeypatch: pytest.MonkeyPatch):
        with subprocess.Popen([sys.executable, "-c", ""]) as rank:
            rank.wait()
        gone = Process(
            pid=rank.pid, rank=0, local_rank=0, command=[], cwd=str(Path.cwd()), python="", environ={"RANK": "0"}
        )
        job = Job(
            launcher="torchrun",
            launcher_pid=None,
            launcher_command=[],
            world_size=2,
            master="",
            host="",
            processes=[gone],
        )
        monkeypatch.setattr(doctor, "_jobs", lambda pid: [job])
        snapshot = doctor._take_snapshot(built_in_knowledge(), Options(allow="reads"), bench=False, pid=None)
        assert snapshot.env and snapshot.env.owner == "this shell"
        assert "env" not in snapshot.failed

    def test_interpreter_without_torch_is_a_finding(self, tmp_path: Path):
        (tmp_path / "torch.py").write_text("raise ImportError('half an installation')")
        environ = {"PYTHONPATH": str(tmp_path)}
        done = ddpwizard("doctor", "--json", "--allow", "reads", env=environ, limit_s=120)
        assert done.returncode == 1
        (check,) = [check for check in json.loads(done.stdout)["checks"] if check["id"] == "software.torch"]
        assert check["status"] == "fail" and "half an installation" in check["detail"]


@pytest.mark.jobs
def test_bench_for_real():
    done = ddpwizard("doctor", "--json", "--bench", "--allow", "allocates", limit_s=180)
    rows = json.loads(done.stdout)["bench"]
    assert [row["bytes"] for row in rows] == [4, 65536, 1 << 20, 16 << 20]
    assert all(row["correct"] and row["ranks"] == 2 and row["operation"] == "all_reduce" for row in rows)
    assert "all-reduce: 16 MiB in" in done.stderr


class TestCauseOfACheck:
    def test_cause_of_check_has_the_highest_weight(self):
        knowledge = built_in_knowledge()
        weighed = {finding for cause in knowledge.causes.values() for finding in cause.findings}
        for finding in weighed:
            weights = {id_: NATS[c.findings[finding]] for id_, c in knowledge.causes.items() if finding in c.findings}
            best = max(weights.values())
            cause = doctor.cause_of_check(Check("x", "fail", "t", finding=finding), knowledge)
            expected = sorted(id_ for id_, nats in weights.items() if nats == best > 0)
            assert cause in (expected or [None]), finding

    def test_passed_or_unknown_check_has_no_cause(self):
        assert doctor.cause_of_check(Check("x", "ok", "t", finding="limits.shm-small"), built_in_knowledge()) is None
        assert doctor.cause_of_check(Check("x", "fail", "t"), built_in_knowledge()) is None
        assert doctor.cause_of_check(Check("x", "fail", "t", finding="nobody.knows"), built_in_knowledge()) is None


def test_colour_only_on_a_terminal_without_no_color(tmp_path: Path):
    """The same page in a pseudo-terminal with and without NO_COLOR."""
    import pty

    def page(**environ: str) -> str:
        parent, child = pty.openpty()
        command = [sys.executable, "-m", "ddpwizard", "doctor", "--replay", saved(tmp_path, SICK)]
        env = {**os.environ, "TERM": "xterm", **environ}
        with subprocess.Popen(command, stdout=child, stderr=subprocess.DEVNULL, stdin=child, env=env) as process:
            os.close(child)
            text = b""
            while True:
                try:
                    text += os.read(parent, 65536)
                except OSError:
                    break
        os.close(parent)
        assert process.returncode == 1
        return text.decode()

    assert "\x1b[31m" in page()
    assert "\x1b" not in page(NO_COLOR="1")


def test_replay_of_a_nested_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"snapshot":' + "[" * 200_000)
    assert "not a snapshot" in refused(ddpwizard("doctor", "--replay", str(tmp_path / "s.json")), 2)
