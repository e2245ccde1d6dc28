"""The demo job: four gloo processes on this machine that really hang, and are ended afterwards."""

import shutil
from pathlib import Path

from ..system.temporary_directories import make_temporary_directory
from .local_job import LocalJob, started_words

SCRIPT = Path(__file__).parents[2] / "assets" / "demo" / "train.py"
RANKS = 4
READY_WITHIN_S = 120.0  # importing torch four times on a slow disk


class DemoJob(LocalJob):
    """``async with DemoJob(python) as demo``: inside, the job hangs.

    ``pid`` is torchrun's, ``script`` the training script in a private ``directory``, which is removed on exit.
    """

    def __init__(self, python: str) -> None:
        launch = f"torchrun --standalone --nproc-per-node={RANKS} {SCRIPT.name}"
        super().__init__(started_words(launch, python), Path(), name="the demo job")

    @property
    def script(self) -> Path:
        """The training script of the job."""
        return self.directory / SCRIPT.name

    async def __aenter__(self) -> "DemoJob":
        """Start the job and wait until it hangs.

        Raises:
            UserError: The interpreter has no torch.
            InspectionError: The job ended, or did not hang in time.
        """
        self.directory = make_temporary_directory("ddpwizard-demo-")
        try:
            shutil.copyfile(SCRIPT, self.script)
            await super().__aenter__()
            await self.wait_until_hung(READY_WITHIN_S, RANKS)
        except BaseException:
            await self.end()
            raise
        return self

    async def end(self) -> None:
        try:
            await super().end()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
