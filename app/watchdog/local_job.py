"""A real job that the wizard starts in a directory and ends afterwards."""

import asyncio
import os
import shlex
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
from ..triage.types import JobReport
from .worker_lines import WorkerLines

LIVES_AT_MOST_S = 3600.0
ENDS_WITHIN_S = 10.0
SAMPLE_GAP_S = 0.25
MOST_LINES = 5_000  # of output that are kept
# A thread of gloo may still hold a tensor of the last collective when the script ends. It then needs the GIL, and the
# process is aborted if the interpreter is gone. A pause at the end lets the thread have it (torch 2.13).
# Half of the CPU time of a short job is the garbage collector's: while torch is imported, and in the last collection.
START_SCRIPT = """\
import atexit, gc, time
gc.set_threshold(500_000, 20, 100)
atexit.register(gc.freeze)
atexit.register(time.sleep, 0.2)
"""
MODULES = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
    "deepspeed": "deepspeed.launcher.runner",
}


def started_words(line: str, python: str) -> list[str]:
    """Return the words that start a command line as typed with an interpreter: its launchers are modules of it."""
    first, *rest = shlex.split(line)
    if first in MODULES:
        return [python, "-m", MODULES[first], *rest]
    return [python, *rest] if first == "python" else [first, *rest]


class LocalJob:
    """``async with LocalJob(words, directory, name=…) as job``: inside, the job runs in that directory.

    ``pid`` is that of its launcher once ``wait_until_hung`` has returned, ``output`` what it printed last. On exit its
    processes are ended.
    """

    def __init__(
        self,
        words: Sequence[str],
        directory: Path,
        *,
        name: str,
        environ: Mapping[str, str] | None = None,
        lives_at_most_s: float = LIVES_AT_MOST_S,
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        """``name`` is used in messages."""
        self.words, self.directory, self.name = list(words), directory, name
        self.pid = 0
        self.output: deque[str] = deque(maxlen=MOST_LINES)
        self.scratch = Path()
        self._environ, self._lives_at_most_s = dict(environ or {}), lives_at_most_s
        self._on_output = on_output
        self._lines = WorkerLines()
        self._run: asyncio.Task[ProcessOutcome] | None = None

    async def __aenter__(self) -> "LocalJob":
        self.scratch = make_temporary_directory("ddpwizard-job-tmp-")  # torchrun leaves files when it is killed
        start = self.scratch / "start"
        start.mkdir()
        (start / "sitecustomize.py").write_text(START_SCRIPT, encoding="utf-8")
        own = {
            "TMPDIR": str(self.scratch),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(start), os.environ.get("PYTHONPATH")])),
        }
        self._run = asyncio.ensure_future(
            run_process(
                self.words,
                limit_s=self._lives_at_most_s,
                env=without_launch_variables(os.environ) | own | self._environ,
                cwd=self.directory,
                on_output=self._printed,
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def wait_until_ended(self) -> ProcessOutcome:
        """Wait for the end of the job, at most for its limit."""
        assert self._run
        return await asyncio.shield(self._run)

    async def wait_until_hung(self, within_s: float, ranks: int) -> JobReport:
        """Wait until all ranks of the job hang, and return what was sampled of it.

        Raises:
            UserError: The interpreter has no torch.
            InspectionError: The job ended, or did not hang in time.
        """
        try:
            return await wait_for(within_s, self._until_hung(ranks))
        except asyncio.TimeoutError as error:
            raise InspectionError(
                f"{self.name} did not hang within {within_s:.0f} s", "try again when this machine is less busy"
            ) from error

    async def _until_hung(self, ranks: int) -> JobReport:
        assert self._run
        while True:
            await asyncio.wait([self._run], timeout=SAMPLE_GAP_S)
            if self._run.done():
                raise self.start_error(self._run.result())
            job = self.find()
            if job and len(job.processes) == ranks:
                report = await sample_job(job, gap_s=SAMPLE_GAP_S)
                if report.verdict.state == "hung" and not any(row.state == "starting" for row in report.ranks):
                    self.pid = job.launcher_pid or job.processes[0].pid
                    return report

    def find(self) -> Job | None:
        """Return the job as discovery finds it, None before its ranks run."""
        here = str(self.directory)
        return next((job for job in discover.find_jobs() if any(p.cwd == here for p in job.processes)), None)

    def start_error(self, outcome: ProcessOutcome) -> UserError:
        """Return why the job has ended, as an error."""
        if "No module named 'torch" in outcome.log:
            return UserError(
                f"{self.words[0]} has no torch, which {self.name} needs",
                "name an interpreter that has it: --python PATH",
            )
        return InspectionError(
            f"{self.name} {outcome.why}", "check that torchrun works there; --python PATH selects another interpreter"
        )

    def _printed(self, line: str) -> None:
        self._note(self._lines.add(line))

    def _note(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.output.append(line)
            if self._on_output:
                self._on_output(line)

    async def end(self) -> None:
        """End all processes of the job."""
        try:
            if self._run and not self._run.done():
                self._run.cancel()
                await asyncio.wait([self._run])
            # The supervisor ends them; they use the directory until then.
            until = asyncio.get_running_loop().time() + ENDS_WITHIN_S
            while self._alive() and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        finally:
            self._note(self._lines.rest())
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _alive(self) -> bool:
        here = str(self.directory)
        return any(proc.state != "Z" and proc.cwd == here for proc in procfs.all_processes().values())
