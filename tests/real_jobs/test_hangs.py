"""Real jobs that hang in different ways: state, cause, ranks and lines must be right in every one."""

import asyncio
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.system import procfs
from ddpwizard.app.system.procfs import Proc
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport
from helpers.hang_cases import HANGS, Hang
from helpers.hang_jobs import Truth, judged, standing, wrong
from helpers.jobs import SCRIPTS, running, torchrun, wait_for

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
# Jobs whose processes are idle once they hang: one starts while the other is sampled.
QUIET = [hang for hang in HANGS if hang.quiet]
BUSY = [hang for hang in HANGS if not hang.quiet]
AT_A_TIME = 2
SAMPLING = Lock()  # a sample in one thread slows down the reads of one in another beyond their limits of time
CALIBRATION = {True: [pytest.mark.calibration], False: []}
Judged = tuple[Truth, JobReport]


@pytest.fixture(scope="module")
def quiet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, "Future[Judged]"]:
    """The report of each selected quiet job, once all have been sampled and ended."""
    selected = {item.name for item in request.session.items}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return {
            hang.name: pool.submit(verdict_of, hang, tmp_path_factory.mktemp(hang.name))
            for hang in QUIET
            if f"{test_verdict_of_quiet_job.__name__}[{hang.name}]" in selected
        }


def verdict_of(hang: Hang, directory: Path) -> Judged:
    """Start the job, wait until it hangs, and sample it."""
    if hang.cut and os.geteuid() != 0:
        pytest.skip("needs root, for a network of its own")
    with standing(hang, directory, may_fork=True) as there, SAMPLING:
        return there.truth, judged(there)


def assert_right(truth: Truth, report: JobReport) -> None:
    faults = wrong(truth, report)
    ranks = [(row.rank, row.state, row.collective, row.where, row.note) for row in report.ranks]
    assert not faults, f"{faults}; {report.verdict.why}; {ranks}"


@pytest.mark.parametrize(
    "hang", [pytest.param(hang, id=hang.name, marks=CALIBRATION[hang.calibration]) for hang in QUIET]
)
def test_verdict_of_quiet_job(hang: Hang, quiet: dict[str, "Future[Judged]"]) -> None:
    assert_right(*quiet[hang.name].result())


@pytest.mark.parametrize(
    "hang", [pytest.param(hang, id=hang.name, marks=CALIBRATION[hang.calibration]) for hang in BUSY]
)
def test_verdict_of_busy_job(hang: Hang, tmp_path: Path) -> None:
    assert_right(*verdict_of(hang, tmp_path))


class TestControls:
    def test_job_that_crashes_leaves_nothing_that_could_be_called_hung(self, tmp_path: Path) -> None:
        script = tmp_path / "shapes.py"
        script.write_text((SCRIPTS / "shapes" / "train.py").read_text())
        starter = [sys.executable, "-c", "import subprocess, sys, time; subprocess.run(sys.argv[1:]); time.sleep(600)"]
        with running([*starter, *torchrun(script, 2)], script, tmp_path, OMP_NUM_THREADS="1") as job:
            launcher = wait_for(lambda: _launcher(job.processes()), "the launcher is there")
            wait_for(lambda: procfs.process_of(launcher) is None, "the job has crashed")
            with pytest.raises(UserError, match=f"no process has the pid {launcher}"):
                asyncio.run(triage_jobs(pid=launcher))
            assert launcher not in {report.job.launcher_pid for report in asyncio.run(triage_jobs())}


def _launcher(processes: list[Proc]) -> int | None:
    return next((proc.pid for proc in processes if "torch.distributed.run" in proc.command[:4]), None)
