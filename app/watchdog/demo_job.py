"""The demo job: four gloo processes on this machine that really hang, and are ended afterwards."""

import asyncio
import os
import shutil
from collections import deque
from pathlib import Path
from types import TracebackType

from ..errors import InspectionError, UserError
from ..jobs import discover
from ..jobs.types import Job
from ..launchers.rank_variables import without_launch_variables
from ..system import procfs
from ..system.subprocesses import ProcessOutcome, run_process
from ..system.temporary_directories import make_temporary_directory
from ..system.waiting import wait_for
from ..triage.sampling.sampler import sample_job

SCRIPT = Path(__file__).parents[2] / "assets" / "demo" / "train.py"
RANKS = 4
READY_WITHIN_S = 120.0  # importing torch four times on a slow disk
LIVES_AT_MOST_S = 3600.0
ENDS_WITHIN_S = 10.0
SAMPLE_GAP_S = 0.25


class DemoJob:
    """``async with DemoJob(python) as demo``: inside, the job hangs.

    ``pid`` is torchrun's, ``script`` the training script in a private ``directory``, ``output`` its last lines.
    On exit its processes are ended and the directory is removed.
    """

    def __init__(self, python: str) -> None:
        self.python = python
        self.pid = 0
        self.output: deque[str] = deque(maxlen=200)
        self.directory = self.scratch = Path()
        self.script = Path()
        self._run: asyncio.Task[ProcessOutcome] | None = None

    async def __aenter__(self) -> "DemoJob":
        """Start the job and wait until it hangs.

        Raises:
            UserError: The interpreter has no torch.
            InspectionError: The job ended, or did not hang in time.
        """
        self.directory = make_temporary_directory("ddpwizard-demo-")
        self.scratch = make_temporary_directory("ddpwizard-demo-tmp-")  # torchrun leaves files when it is killed
        self.script = self.directory / SCRIPT.name
        try:
            shutil.copyfile(SCRIPT, self.script)
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", self.script.name]
            self._run = asyncio.ensure_future(
                run_process(
                    [self.python, *launch],
                    limit_s=LIVES_AT_MOST_S,
                    env=without_launch_variables(os.environ) | {"TMPDIR": str(self.scratch)},
                    cwd=self.directory,
                    on_output=self.output.append,
                )
            )
            await wait_for(READY_WITHIN_S, self._until_hung())
        except asyncio.TimeoutError as error:
            await self._end()
            raise InspectionError(
                f"the demo job did not hang within {READY_WITHIN_S:.0f} s",
                "try again when this machine is less busy",
            ) from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _until_hung(self) -> None:
        assert self._run
        while True:
            await asyncio.wait([self._run], timeout=SAMPLE_GAP_S)
            if self._run.done():
                raise self._start_error(self._run.result())
            job = self._job()
            if job and job.launcher_pid and len(job.processes) == RANKS:
                report = await sample_job(job, gap_s=SAMPLE_GAP_S)
                if report.verdict.state == "hung" and not any(row.state == "starting" for row in report.ranks):
                    self.pid = job.launcher_pid
                    return

    def _job(self) -> Job | None:
        here = str(self.directory)
        return next((job for job in discover.find_jobs() if any(p.cwd == here for p in job.processes)), None)

    def _start_error(self, outcome: ProcessOutcome) -> UserError:
        if "No module named 'torch" in outcome.log:
            return UserError(
                f"{self.python} has no torch, which the demo job needs",
                "name an interpreter that has it: ddpwizard --demo --python PATH",
            )
        return InspectionError(
            f"the demo job {outcome.why}", "check that torchrun works there; --python PATH selects another interpreter"
        )

    async def _end(self) -> None:
        try:
            if self._run:
                self._run.cancel()
                await asyncio.wait([self._run])
                # The supervisor ends them; they use the directory until then.
                until = asyncio.get_running_loop().time() + ENDS_WITHIN_S
                while self._alive() and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            for directory in (self.directory, self.scratch):
                shutil.rmtree(directory, ignore_errors=True)

    def _alive(self) -> bool:
        here = str(self.directory)
        return any(proc.state != "Z" and proc.cwd == here for proc in procfs.all_processes().values())
