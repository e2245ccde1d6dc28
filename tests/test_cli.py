"""The command line: fast start, and one line with an exit code for every refusal."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard import __version__, cli
from ddpwizard.cli import COMMANDS
from helpers.command import ddpwizard, loaded_modules, refused
from helpers.jobs import wait_for

HEAVY = {"torch", "textual", "networkx", "libcst", "rich", "numpy", "psutil", "yaml", "msgspec"}


def test_version_imports_nothing_heavy():
    modules = loaded_modules("from ddpwizard.cli import run; run(['--version'])")
    assert not modules & HEAVY


def test_diagnose_imports_no_screen_no_graph_no_torch():
    modules = loaded_modules(
        "import io, sys; sys.stdin = io.TextIOWrapper(io.BytesIO(b'nccl'))\n"
        "from ddpwizard.cli import run; run(['diagnose', '-', '--json'])"
    )
    assert not modules & {"torch", "textual", "networkx", "rich", "numpy"}


def test_version_is_printed():
    done = ddpwizard("--version")
    assert done.returncode == 0
    assert __version__ in done.stdout


def test_every_command_has_help_and_the_common_options():
    for name in COMMANDS:
        done = ddpwizard(name, "--help")
        assert done.returncode == 0, done.stderr
    assert "--json" in ddpwizard("diagnose", "--help").stdout


def test_shell_completion():
    done = ddpwizard(env={"_DDPWIZARD_COMPLETE": "bash_source"})
    assert done.returncode in (0, 2)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ddpwizard"))],
        env={"_DDPWIZARD_COMPLETE": "bash_source", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert "complete" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["explain", "no-such-cause"], "no-such-cause"),
        (["diagnose", "/no/such/file"], "/no/such/file"),
        (["kb", "list", "--knowledge", "/no/such/dir"], "/no/such/dir"),
        (["diagnose", "-", "--allow", "everything"], "everything"),
    ],
)
def test_usage_error_is_one_line_with_exit_code_2(arguments: list[str], message: str):
    assert message in refused(ddpwizard(*arguments), 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--python", "/no/such/python", "doctor"], "/no/such/python"),
        (["--python", sys.executable, "doctor", "--python", "/no/such/later"], "/no/such/later"),
        (["--knowledge", "/no/such/dir", "kb", "list"], "/no/such/dir"),
        (["--demo", "triage"], "--demo"),
    ],
)
def test_option_before_the_command_counts_as_after_it(arguments: list[str], message: str):
    assert message in refused(ddpwizard(*arguments), 2)


def test_ascii_before_the_command_and_both_directories_of_knowledge(tmp_path: Path):
    assert ddpwizard("--ascii", "explain", "port-in-use").stdout.isascii()
    assert not ddpwizard("explain", "port-in-use").stdout.isascii()
    twice = ddpwizard("--knowledge", str(tmp_path), "kb", "list", "--knowledge", str(tmp_path / "none"))
    assert "none: no such directory" in refused(twice, 2)


def test_errors_are_json_with_json_option():
    done = ddpwizard("explain", "no-such-cause", "--json")
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["schema"] == "ddpwizard.error/1"
    assert answer["next"]


def test_json_after_the_dashes_of_run_is_an_option_of_the_job():
    done = ddpwizard("run", "--on-hang", "no-such-program", "--", "true", "--json")
    assert "no-such-program" in refused(done, 2)
    assert not done.stdout
    own = ddpwizard("run", "--json", "--on-hang", "no-such-program", "--", "true")
    assert json.loads(own.stdout)["schema"] == "ddpwizard.error/1"


def test_the_output_of_a_job_is_not_changed_by_json():
    done = ddpwizard("run", "--json", "--", "sh", "-c", "echo result")
    assert (done.returncode, done.stdout) == (0, "result\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_unreadable_settings_directory_is_ignored(tmp_path: Path):
    tmp_path.chmod(0o755)
    closed = tmp_path / "config"
    (closed / "ddpwizard" / "knowledge").mkdir(parents=True)
    closed.chmod(0o700)
    nobody = ["setpriv", "--reuid", "65534", "--clear-groups"]
    if subprocess.run([*nobody, sys.executable, "-c", "import ddpwizard"], capture_output=True, check=False).returncode:
        pytest.skip("another user cannot run this interpreter")
    done = subprocess.run(
        [*nobody, sys.executable, "-m", "ddpwizard", "kb", "list"],
        env={**os.environ, "XDG_CONFIG_HOME": str(closed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr


def test_traceback_is_written_to_the_log_file_only(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from ddpwizard import cli

    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("broken on purpose, with HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345")

    monkeypatch.setattr(cli.group, "main", broken)
    assert cli.run(["kb", "list"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "broken on purpose" in error
    assert str(state / "ddpwizard.log") in error
    log = state / "ddpwizard.log"
    assert "Traceback" in log.read_text() and "hf_abcdef" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (["plan", "--nothing-like-it"], "ddpwizard plan --help lists the options and arguments"),
        (["kb", "nothing-like-it"], "ddpwizard kb --help lists the commands"),
        (["--nothing-like-it"], "ddpwizard --help lists the commands"),
    ],
)
def test_wrong_argument_names_the_help_of_its_command(
    words: list[str], help_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from ddpwizard import cli

    assert cli.run(words) == 2
    assert help_ in capsys.readouterr().err


@pytest.mark.parametrize("words", [["kb", "list", "--json"], ["plan", "--model", "gpt2", "--gpus", "2"], ["--help"]])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_unwritable_output_is_one_line(words: list[str], output: str):
    command = shlex.join([sys.executable, "-m", "ddpwizard", *words])
    done = subprocess.run(["sh", "-c", f"{command} {output}"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode in (2, 3)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "standard output" in done.stderr


@pytest.mark.parametrize("words", [["diagnose", "loss is nan"], ["undo"], ["diagnose", "-"], ["plan", "--spec", "-"]])
def test_closed_standard_input_is_empty_and_no_terminal(words: list[str], tmp_path: Path):
    command = shlex.join([sys.executable, "-m", "ddpwizard", *words])
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    closed, empty = (
        subprocess.run(
            ["sh", "-c", f"{command} {given}"], capture_output=True, text=True, timeout=180, check=False, env=environ
        )
        for given in ("<&-", "</dev/null")
    )
    assert "Traceback" not in closed.stderr and "NoneType" not in closed.stderr
    assert (closed.returncode, closed.stdout, closed.stderr) == (empty.returncode, empty.stdout, empty.stderr)


CLOSED_EARLY = {
    "more than one buffer": ["kb", "list", "--json"],
    "less than one buffer": ["completion", "bash"],
    "help": ["--help"],
    "an error": ["explain", "no-such-word"],
    "plain mode": ["learn", "--plain"],
}


@pytest.mark.parametrize("case", CLOSED_EARLY)
@pytest.mark.parametrize("both", [False, True], ids=["stdout", "both streams"])
def test_a_reader_that_ends_first_is_no_error(case: str, both: bool, tmp_path: Path):
    status, errors = tmp_path / "status", tmp_path / "errors"
    command = f"sleep 1; {shlex.join([sys.executable, '-m', 'ddpwizard', *CLOSED_EARLY[case]])} </dev/null"
    pipe = "2>&1" if both else f"2>{errors}"
    script = f"({command}; echo $? >{status}) {pipe} | head -n 0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=180, check=False)
    assert done.stderr == ""
    assert status.read_text() == ("2\n" if case == "an error" else "141\n")
    assert both or errors.read_text().count("\n") == (case == "an error")


def test_an_interrupt_while_python_imports_ends_silently(tmp_path: Path):
    started = tmp_path / "started"
    (tmp_path / "click.py").write_text(f"import time\nopen({str(started)!r}, 'w')\ntime.sleep(600)\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-c", f"from {_entry_point()} import main; main()", "--version"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(started.exists, "the import has begun")
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=30)
    assert (process.returncode, *printed) == (130, b"", b"")


def _entry_point() -> str:
    """The module of the console script."""
    text = Path(cli.__file__).with_name("pyproject.toml").read_text()
    scripts = re.search(r'^ddpwizard = "([\w.]+):main"$', text, re.MULTILINE)
    assert scripts
    return scripts[1]


def test_state_directory_that_cannot_be_made_is_one_line_with_the_next_step(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "ddpwizard", "learn", "2.1"],
        env={**os.environ, "XDG_STATE_HOME": str(blocked)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    (line,) = done.stderr.splitlines()
    assert str(blocked) in line and "XDG_STATE_HOME" in line and "traceback" not in line
