"""Command lines of interpreters and of launchers, recognised."""

import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.launchers.recognise import is_wizard, launcher_name, parse_python


class TestParsePython:
    """The script or module that an interpreter runs."""

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("python train.py --lr 1", ["train.py", "--lr", "1"]),
            ("python -u train.py", ["train.py"]),
            ("python -W ignore -X dev train.py -m x", ["train.py", "-m", "x"]),
            ("python -Wignore -Xdev -uB train.py", ["train.py"]),
            ("python -uW ignore train.py", ["train.py"]),
            ("python --check-hash-based-pycs always train.py", ["train.py"]),
            ("python -m pkg.train --lr 1", ["-m", "pkg.train", "--lr", "1"]),
            ("python -mpkg.train -c", ["-m", "pkg.train", "-c"]),
            ("python -um pkg.train", ["-um", "pkg.train"]),
            ("python -- train.py", ["train.py"]),
        ],
    )
    def test_script_and_arguments(self, line: str, words: list[str]) -> None:
        found = parse_python(line.split())
        assert found
        assert found.script_words == words
        assert found.target == words[found.is_module]

    @pytest.mark.parametrize("line", ["", "python", "python -c 1 train.py", "python -uc 1", "python -", "python -m"])
    def test_no_file(self, line: str) -> None:
        assert parse_python(line.split()) is None

    @pytest.mark.parametrize(
        "options",
        [[], ["-uB"], ["-W", "ignore"], ["-Wignore"], ["-IX", "dev"], ["--check-hash-based-pycs", "always"], ["--"]],
    )
    def test_cpython_runs_the_same_script(self, tmp_path: Path, options: list[str]) -> None:
        (tmp_path / "show.py").write_text("import sys\nprint(*sys.argv, end='')\n")
        command = [sys.executable, *options, str(tmp_path / "show.py"), "-W", "x"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = parse_python(command)
        assert found
        assert found.script_words == printed.split(" ")


class TestLauncherName:
    """The launcher that a command line starts."""

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("/usr/bin/python3.11 /usr/bin/torchrun train.py", "torchrun"),
            ("python -mtorch.distributed.run train.py", "torchrun"),
            ("python -u -m torch.distributed.launch train.py", "torchrun"),
            ("python /v/torch/distributed/run.py train.py", "torchrun"),
            ("python /v/bin/accelerate launch train.py", "accelerate"),
            ("python /v/bin/accelerate-launch train.py", "accelerate"),
            ("python /v/bin/accelerate config --config_file launch", None),
            ("python -m accelerate.commands.accelerate_cli launch train.py", "accelerate"),
            ("python /v/bin/deepspeed train.py", "deepspeed"),
            ("python -u -m deepspeed.launcher.launch --world_info=x train.py", "deepspeed"),
            ("mpirun -np 2 python train.py", "mpirun"),
            ("slurmstepd: [4711.0]", "srun"),
            ("python train.py torchrun", None),
            ("torchrunner", None),
        ],
    )
    def test_name(self, line: str, name: str | None) -> None:
        assert launcher_name(line.split()) == name


def test_wizard_and_its_supervisor() -> None:
    assert is_wizard(["python", "-IS", "/v/ddpwizard/app/system/supervisor.py", "3"])
    assert is_wizard(["python", "-mddpwizard", "run"])
    assert not is_wizard(["python", "train.py", "ddpwizard"])
