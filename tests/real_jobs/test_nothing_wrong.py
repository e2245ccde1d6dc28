"""Real jobs in which nothing is wrong: whatever the user says of them, no proof of a fix ends in "proved".

Logs of other machines are in ``tests/fixes/test_nothing_wrong.py``.
"""

from pathlib import Path

import pytest
from ddpwizard.app.options import Options
from ddpwizard.app.session import Outcome, proof_outcome
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport
from ddpwizard.screens.plain.prompt import EndOfInput
from ddpwizard.screens.plain.wizard import PlainWizard
from ddpwizard.screens.shell.state import WizardState
from helpers.eager_prompt import EagerPrompt
from helpers.jobs import SCRIPTS, RunningJob, launched_as_forks, running_as_forks, torchrun, triage_until, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow]
HANGS, TOO_SLOW, WRONG = "1", "3", "4"  # rows of Home
PORT_IN_USE = "[rank0]: RuntimeError: The server socket has failed to listen on port 29500: address already in use\n"
SAVING = """
import subprocess, time
import torch.distributed as dist

dist.init_process_group("gloo")
print("step 1", flush=True)
if dist.get_rank() == 0:
    WAIT  # as long as a large checkpoint takes
dist.barrier()
dist.destroy_process_group()
"""


def outcome(job: RunningJob, home: str, text: str = "") -> tuple[Outcome | None, EagerPrompt]:
    """Choose a row of Home, take the first fix of the first cause, write it where that is possible, and prove it."""

    async def triage(_pid: int | None) -> list[JobReport]:
        return await triage_jobs(pid=job.pid)

    prompt = EagerPrompt([home], text=text, command=" ".join(job.command))
    state = WizardState(Options(plain=True, allow="reads"), triage=triage)
    with pytest.raises(EndOfInput):
        PlainWizard(state, prompt).begin("home", {})
    assert state.reports and state.case.session
    event = state.case.session.last("proof")
    return (proof_outcome(event) if event else None), prompt


@pytest.mark.parametrize(
    "symptom", [HANGS, *(pytest.param(each, marks=pytest.mark.calibration) for each in (TOO_SLOW, WRONG))]
)
def test_a_job_that_moves(symptom: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with launched_as_forks("steps.py", tmp_path, 2) as job:
        triage_until(job.pid, "progressing")
        found, prompt = outcome(job, symptom)
    assert found != "proved", "\n".join(prompt.written)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("long_steps.py", ("numpy", "all")),
        pytest.param("long_steps.py", ("torch", "1"), marks=pytest.mark.calibration),
        pytest.param("slow_shelf.py", ("0",), marks=pytest.mark.calibration),
    ],
)
def test_a_job_with_long_steps(
    script: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / script
    copy.write_text((SCRIPTS / script).read_text())
    with running_as_forks(torchrun(copy, 2, *arguments), copy, tmp_path, OMP_NUM_THREADS="1") as job:
        wait_for(lambda: job.printed("step 1"), "two steps are made", 240)
        found, prompt = outcome(job, TOO_SLOW)
    assert found != "proved", "\n".join(prompt.written)


@pytest.mark.parametrize(
    "wait", ["time.sleep(8)", pytest.param("subprocess.run(['sleep', '20'])", marks=pytest.mark.calibration)]
)
def test_a_rank_that_saves_while_the_others_wait(wait: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look like a hang: the job ends well by itself, and so does a run for proof."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "save.py"
    script.write_text(SAVING.replace("WAIT", wait))
    with running_as_forks(torchrun(script, 2), script, tmp_path) as job:
        wait_for(lambda: job.printed("step 1"), "the job has begun")
        found, prompt = outcome(job, HANGS)
    assert found != "proved", "\n".join(prompt.written)


def test_the_log_of_another_machine_next_to_a_healthy_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with launched_as_forks("steps.py", tmp_path, 2) as job:
        triage_until(job.pid, "progressing")
        found, prompt = outcome(job, "2", PORT_IN_USE)
    assert found != "proved", "\n".join(prompt.written)
