"""A real job is stopped, and started again with its own command line, environment and output file."""

import asyncio
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.jobs import control, discover
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.options import Options
from ddpwizard.app.system import procfs
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.screens.plain.prompt import Prompt
from ddpwizard.screens.plain.stop_job import can_stop, stop_job
from ddpwizard.screens.shell.state import WizardState
from helpers.jobs import torchrun, wait_for

pytestmark = pytest.mark.jobs

SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("rank", os.environ["RANK"], os.environ["OWN_SETTING"], os.getcwd(), flush=True)
time.sleep(600)
"""


def job_of(pid: int, script: Path) -> Job | None:
    found = [job for job in discover.find_jobs() if job.launcher_pid == pid and len(job.processes) == 2]
    return found[0] if found and all(str(script) in each.command for each in found[0].processes) else None


def test_a_job_is_stopped_and_started_again(tmp_path: Path) -> None:
    script, output = tmp_path / "deaf.py", tmp_path / "out.log"
    script.write_text(SCRIPT)
    with output.open("ab") as file:
        environ = {**os.environ, "OWN_SETTING": "seven"}
        first = subprocess.Popen(torchrun(script, 2), cwd=tmp_path, env=environ, stdout=file, stderr=file)
    wait_for(lambda: output.read_text().count("seven") == 2, "both ranks")
    job = wait_for(lambda: job_of(first.pid, script), "the job")
    start = control.plan_start(job)
    assert (start.cwd, start.output) == (tmp_path, output)
    assert not control.has_ended(job)
    pids = [first.pid, *(each.pid for each in job.processes)]
    assert control.stop_job(job, grace_s=0.5) == 3
    assert not [pid for pid in pids if (proc := procfs.process_of(pid)) and proc.state != "Z"]
    assert control.has_ended(job)
    again = control.start_job(start)
    try:
        wait_for(lambda: output.read_text().count("seven") == 4, "both ranks of the second start")
        assert output.read_text().count(str(tmp_path)) == 4
    finally:
        control.stop_job(wait_for(lambda: job_of(again, script), "the second job"), grace_s=0.5)
    with pytest.raises(UserError, match="cannot be read"):
        control.plan_start(job)


def test_plain_mode_stops_and_restarts_a_job_after_a_question_whose_default_is_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, output = tmp_path / "deaf.py", tmp_path / "out.log"
    script.write_text(SCRIPT.replace("SIG_IGN", "SIG_DFL"))
    with output.open("ab") as file:
        environ = {**os.environ, "OWN_SETTING": "seven"}
        first = subprocess.Popen(torchrun(script, 2), cwd=tmp_path, env=environ, stdout=file, stderr=file)
    wait_for(lambda: output.read_text().count("seven") == 2, "both ranks")
    job = wait_for(lambda: job_of(first.pid, script), "the job")
    reports = asyncio.run(triage_jobs(pid=first.pid))

    def answered(*answers: str) -> list[str]:
        """Return what is shown when the wizard is asked to stop the job and gets these answers."""
        given, state = iter(answers), WizardState(Options(plain=True))
        prompt, shown = Prompt(), list[str]()
        monkeypatch.setattr(prompt, "ask", lambda _prompt: next(given))
        monkeypatch.setattr(prompt, "write", lambda *lines: shown.extend(lines))
        state.reports = reports
        assert can_stop(state)
        stop_job(state, prompt)
        return shown

    answered("1")
    assert "was stopped" not in " ".join(answered("2", ""))
    assert control.is_running(job), "nothing was stopped without a yes"
    shown = "\n".join(answered("3", "y"))
    assert shlex.join(job.launcher_command) in shown and f"output to {output}" in shown
    again = int(re.findall(r"Started again as pid (\d+)", shown)[0])
    assert not control.is_running(job)
    try:
        wait_for(lambda: output.read_text().count("seven") == 4, "both ranks of the second start")
    finally:
        control.stop_job(wait_for(lambda: job_of(again, script), "the second job"))
