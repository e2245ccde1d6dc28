"""Cases in which nothing is wrong on this machine never end in "proved": the wizard's own flow, to its end.

Logs of other machines and scripts that run well here; running jobs are in ``tests/real_jobs/test_nothing_wrong.py``.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from ddpwizard.app.fixes.proof import is_proved_by_probe
from ddpwizard.app.options import Options
from ddpwizard.app.session import Session, proof_outcome
from ddpwizard.screens.plain.prompt import EndOfInput
from ddpwizard.screens.plain.wizard import PlainWizard
from ddpwizard.screens.shell.state import WizardState
from helpers.eager_prompt import EagerPrompt

pytestmark = pytest.mark.slow
NOTHING = "no proof"  # the wizard offers none
RUN_THE_ALL_REDUCE = ("NCCL version", "peer access")  # a real one, for ten seconds
NOT_PROVED_HERE = ("too many threads", "a healthy log")  # of OTHER_MACHINES: by nothing that can be seen here

OTHER_MACHINES: dict[str, str] = yaml.safe_load(Path(__file__).with_name("other_machines.yaml").read_text())
CRASH = """[rank1]: Traceback (most recent call last):
[rank1]:   File "{script}", line 2, in <module>
[rank1]:     print(rows["price"])
[rank1]: KeyError: 'price'
============================================================
{script} FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-03_08:15:02
  host      : {host}
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 4477)
============================================================
"""
HEALTHY = "rows = {'price': 3}\nprint(rows['price'])\n"
DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.ones(2, 4)).sum().backward()
dist.destroy_process_group()
"""


def crash_log(script: Path, host: str) -> str:
    return CRASH.format(script=script, host=host)


class Case(NamedTuple):
    outcome: str
    prompt: EagerPrompt
    session: Session


@pytest.fixture(scope="module")
def inspected() -> WizardState:
    """This machine, inspected once as on Home."""
    state = WizardState(Options(plain=True, allow="reads"))
    with pytest.raises(EndOfInput):
        PlainWizard(state, EagerPrompt()).begin("home", {})
    return state


@pytest.fixture
def machine(inspected: WizardState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WizardState:
    """A wizard on this machine, which runs no job, in a directory with a healthy script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HEALTHY)
    state = WizardState(Options(plain=True, allow="allocates"))
    assert inspected.snapshot
    state.merge_snapshot(inspected.snapshot)
    state.reports = []
    return state


def walk(machine: WizardState, text: str) -> Case:
    """Paste a text, take the first fix of the first cause, apply it where that is possible, and prove it."""
    prompt = EagerPrompt(text=text, command=f"{sys.executable} train.py")
    with pytest.raises(EndOfInput):
        PlainWizard(machine, prompt).begin("paste", {})
    session = machine.case.session
    assert session
    event = session.last("proof")
    return Case(proof_outcome(event) if event else NOTHING, prompt, session)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.calibration] if name in RUN_THE_ALL_REDUCE else [])
        for name in OTHER_MACHINES
    ],
)
def test_the_log_of_another_machine(machine: WizardState, name: str) -> None:
    case = walk(machine, OTHER_MACHINES[name])
    assert case.outcome != "proved" and not machine.proved, "\n".join(case.prompt.written)
    assert (case.outcome == NOTHING) == (name in NOT_PROVED_HERE), "\n".join(case.prompt.written)


def test_a_log_of_another_host_on_a_shared_disk(machine: WizardState, tmp_path: Path) -> None:
    """The log is a file here and names a path that exists here, but the job failed on another host."""
    log = tmp_path / "slurm-77.out"
    log.write_text(crash_log(tmp_path / "train.py", "gpu-31.cluster.example"))
    (tmp_path / "train.py").write_text(HEALTHY)  # the newer file
    case = walk(machine, str(log))
    assert case.outcome == "not shown here", "\n".join(case.prompt.written)
    assert any("was not seen on this machine" in line for line in case.prompt.written)


def test_a_log_that_names_a_longer_path_is_of_another_script(machine: WizardState, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(crash_log(Path(f"/scratch{tmp_path}/train.py"), os.uname().nodename))
    (tmp_path / "train.py").write_text(HEALTHY)
    assert walk(machine, str(log)).outcome == "not shown here"


def test_a_failure_that_comes_and_goes(machine: WizardState, tmp_path: Path) -> None:
    """The log is of this machine and of this script, which has not changed since and runs well."""
    log = tmp_path / "run.log"
    log.write_text(crash_log(tmp_path / "train.py", os.uname().nodename))
    case = walk(machine, str(log))
    assert case.outcome == "not shown here", "\n".join(case.prompt.written)
    assert any("no file has changed since it failed" in line for line in case.prompt.written)


def test_a_crash_here_that_was_corrected_by_hand_is_proved(machine: WizardState, tmp_path: Path) -> None:
    """The same flow does end in "proved" where something was wrong, and a file has changed since."""
    log, script = tmp_path / "run.log", tmp_path / "train.py"
    log.write_text(crash_log(script, os.uname().nodename))
    before = script.stat().st_mtime - 60
    os.utime(log, (before, before))
    case = walk(machine, str(log))
    assert case.outcome == "proved", "\n".join(case.prompt.written)


def test_a_healthy_script_that_is_reviewed(machine: WizardState, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DDP)
    assert walk(machine, str(tmp_path / "train.py")).outcome == NOTHING


def test_only_a_finding_that_was_there_can_be_proved(machine: WizardState) -> None:
    """A check that shows no fault, only that all is well, proves no cause: the job may have started only now."""
    causes = machine.knowledge.causes.values()
    by_probe = [cause for cause in causes if is_proved_by_probe(cause, machine.knowledge)]
    assert len(by_probe) > 10 and all(cause.verify.gone for cause in by_probe)
