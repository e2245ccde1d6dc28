"""Migrated scripts train as before: one process and two ranks have the same losses and end with the same weights.

The samples of a step are the same where the order of the samples is fixed; a script that shuffles gets another order by
the migration, which does not depend on the number of ranks.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from ddpwizard.app.review.migrations.engine import migrate
from helpers.migration_scripts_list import CAN_BE_MIGRATED, RUNNER, SCRIPTS
from helpers.two_ranks import plain, torchrun

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
FSDP2 = pytest.param("fsdp2", marks=pytest.mark.calibration)

STEPS = 20
TOLERANCE = 1e-5
LOSS = re.compile(r"loss\D{0,3}(\d+\.\d+(?:e-?\d+)?)")
QUALITY = re.compile(r"(?:accuracy|valid|average) (\d+\.\d+)")


@pytest.mark.parametrize("target", ["ddp", FSDP2])
def test_migrated_scripts_train_as_one_process_does(target: str, tmp_path: Path) -> None:
    one_process: list[str] = []
    for name in CAN_BE_MIGRATED:
        text = (SCRIPTS / f"{name}.py").read_text()
        fixed = text.replace("shuffle=True", "shuffle=False")
        made = {"shuffled": _migrated(text, name, target), "fixed": _migrated(fixed, name, target)}
        programs = {"original": fixed}
        programs |= {f"{order}_{ranks}": code for order, code in made.items() for ranks in ("one", "two")}
        for kind, code in programs.items():
            (tmp_path / f"{name}_{kind}.py").write_text(code)
        one_process += [f"{name}_{kind}.py" for kind in programs if not kind.endswith("two")]
    imports = ["--import", "sklearn.datasets"] if find_spec("sklearn") else []
    command = [sys.executable, str(RUNNER), *imports, str(tmp_path), *one_process]
    env = {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1500, env=env)
    failed = [program for program, codes in json.loads(done.stdout).items() if any(codes)]
    assert not failed, "\n".join(_log(tmp_path, program.removesuffix(".py"))[-2000:] for program in failed)

    for name in CAN_BE_MIGRATED:
        reference, wanted = _losses(tmp_path, f"{name}_original"), _weights(tmp_path, f"{name}_original")
        assert len(reference) >= STEPS, name
        for kind in ("fixed_one", "fixed_two"):
            _check_same_training(tmp_path, f"{name}_original", f"{name}_{kind}")
        _check_same_training(tmp_path, f"{name}_shuffled_one", f"{name}_shuffled_two")
        assert wanted.keys() == _weights(tmp_path, f"{name}_shuffled_two").keys()


@pytest.mark.calibration
@pytest.mark.parametrize("target", ["ddp", "fsdp2"])
def test_migrated_script_runs_under_torchrun(target: str, tmp_path: Path) -> None:
    text = (SCRIPTS / "trainer_config.py").read_text()
    (tmp_path / "digits.py").write_text((SCRIPTS / "digits.py").read_text())
    (tmp_path / "train.py").write_text(_migrated(text, "trainer_config", target))
    alone = plain(tmp_path)
    two = torchrun(tmp_path)
    assert (alone.code, two.code) == (0, 0), alone.log + two.log
    losses = [[float(each) for each in LOSS.findall(log)] for log in (alone.log, two.log)]
    assert len(losses[0]) >= STEPS and losses[1] == pytest.approx(losses[0], abs=TOLERANCE)


def _migrated(text: str, name: str, target: str) -> str:
    made = migrate(text, f"{name}.py", target)
    assert not made.refusals and made.after != text, (name, made.refusals)
    return made.after


def _log(directory: Path, program: str) -> str:
    return "".join(log.read_text() for log in sorted((directory / program).glob("*.log")))


def _losses(directory: Path, program: str) -> list[float]:
    return [float(each) for each in LOSS.findall(_log(directory, program))]


def _weights(directory: Path, program: str) -> dict[str, torch.Tensor]:
    return torch.load(directory / program / "model.pt", weights_only=True)


def _check_same_training(directory: Path, one: str, other: str) -> None:
    """Check that two programs print the same losses and qualities, and end with the same weights."""
    found, wanted = _losses(directory, other), _losses(directory, one)
    assert len(found) == len(wanted) >= STEPS, (other, len(found), len(wanted))
    assert found[:STEPS] == pytest.approx(wanted[:STEPS], abs=TOLERANCE), other
    assert found == pytest.approx(wanted, abs=10 * TOLERANCE), other
    qualities = [[float(each) for each in QUALITY.findall(_log(directory, name))] for name in (one, other)]
    assert qualities[1] == pytest.approx(qualities[0], abs=1e-4), other
    first, second = _weights(directory, one), _weights(directory, other)
    assert first.keys() == second.keys(), other
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, rtol=1e-3, atol=1e-4, msg=lambda text: f"{other}: {text}")
