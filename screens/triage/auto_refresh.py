"""Periodic sampling of jobs while a screen is open and on top."""

import asyncio
import time
from functools import partial
from pathlib import Path

from textual import on
from textual.message import Message
from textual.timer import Timer

from ...app.errors import InspectionError, UserError
from ...app.triage.types import JobReport
from ..dialogs.find_rank import FindRankMixin
from ..widgets.progress_line import ProgressLine

SAMPLE_LIMIT_S = 20.0
REFRESH_S = 5.0  # between the end of a sample and the next
ON_REQUEST, PERIODIC = "sample", "again"  # groups of workers


class AutoRefreshMixin(FindRankMixin):
    """A screen that samples the job of ``_pid``, or all jobs. It implements ``show_reports`` and ``show_head``."""

    _reports: list[JobReport]
    _ended: set[str]  # ids of jobs that have ended while this was open
    _pid: int | None
    _next: Timer | None = None
    watching = True  # False: sample only on request
    taken = False  # True once reports were shown
    outdated = False  # True while the next sample is taken after the screen came back to the top
    wait_s = REFRESH_S

    class Sampled(Message):
        """Reports of the current jobs, and the last reports of jobs that have ended since."""

        def __init__(self, reports: list[JobReport], ended: list[JobReport], elapsed_s: float) -> None:
            super().__init__()
            self.reports, self.ended, self.elapsed_s = reports, ended, elapsed_s

    class SamplingFailed(Message):
        """The jobs could not be sampled."""

        def __init__(self, error: UserError) -> None:
            super().__init__()
            self.error = error

    def action_sample(self) -> None:
        self._stop_refresh()
        self.query_one(ProgressLine).begin("sampling the ranks", SAMPLE_LIMIT_S)
        self.run_worker(partial(self._sample, periodic=False), group=ON_REQUEST, exclusive=True)

    def action_pause(self) -> None:
        self.watching = not self.watching
        self.schedule_next_sample()
        self.show_head()

    def on_screen_suspend(self) -> None:
        self._stop_refresh()

    def on_screen_resume(self) -> None:
        if self.watching and self.taken:
            self._stop_refresh()
            self.outdated = True
            self.show_head()
            self._sample_again()

    def schedule_next_sample(self) -> None:
        """Sample again after ``wait_s`` if this screen is on top."""
        self._stop_refresh()
        if self.watching and self.taken and self._is_on_top():
            self._next = self.set_timer(self.wait_s, self._sample_again)

    def _stop_refresh(self) -> None:
        if self._next:
            self._next.stop()
            self._next = None
        self.workers.cancel_group(self, PERIODIC)

    def _is_on_top(self) -> bool:
        """Return whether this is the top screen; ``is_current`` is True for the one below it too (Textual 8.2)."""
        return self.app.screen_stack[-1:] == [self]

    def _sample_again(self) -> None:
        if not self._is_on_top():  # a page was opened in the meantime
            return
        self.run_worker(partial(self._sample, periodic=True), group=PERIODIC, exclusive=True)

    async def _sample(self, periodic: bool) -> None:
        began = time.monotonic()
        try:
            reports = await self._triage(periodic)
            reports, ended = await asyncio.to_thread(self._with_history, reports)
            self.post_message(self.Sampled(reports, ended, time.monotonic() - began))
        except UserError as error:
            self.post_message(self.SamplingFailed(error))
        except OSError as error:  # a process ended while it was read
            self.post_message(self.SamplingFailed(InspectionError(str(error), "r samples again")))

    async def _triage(self, periodic: bool) -> list[JobReport]:
        try:
            return await self.state.triage(self._pid)
        except UserError:
            if periodic and self._is_gone():
                return []
            raise

    def _is_gone(self) -> bool:
        return self._pid is not None and not Path(f"/proc/{self._pid}").exists()

    def _with_history(self, reports: list[JobReport]) -> tuple[list[JobReport], list[JobReport]]:
        """Return the reports with the samples of those shown before, and the last reports of jobs that have ended."""
        from ...app.triage.merge_samples import extend_with_earlier_samples
        from ...app.triage.post_mortem import add_deaths_from_logs

        before = {report.job.id: report for report in self._reports}
        gone = before.keys() - {report.job.id for report in reports} - self._ended
        ended = [add_deaths_from_logs(before[id_]) for id_ in gone]
        return [extend_with_earlier_samples(before.get(report.job.id), report) for report in reports], ended

    @on(Sampled)
    def _sampled(self, event: Sampled) -> None:
        self.query_one(ProgressLine).end()
        self.wait_s = max(REFRESH_S, event.elapsed_s)
        self.outdated = False
        self.watching = self.watching and (bool(event.reports) or not self._is_gone())
        ended = {report.job.id: report for report in event.ended}
        self._reports = [ended.get(report.job.id, report) for report in self._reports]
        self.show_reports(event.reports)

    @on(SamplingFailed)
    def _failed(self, event: SamplingFailed) -> None:
        self.query_one(ProgressLine).end()
        self.wizard.show_error(event.error)
        self.schedule_next_sample()

    def cancel_running(self) -> bool:
        """Cancel a sample that was requested; periodic ones go on."""
        running = [worker for worker in self.workers if worker.node is self and worker.group == ON_REQUEST]
        running = [worker for worker in running if not worker.is_finished]
        for worker in running:
            worker.cancel()
        if running:
            self.query_one(ProgressLine).end()
            self.schedule_next_sample()
        return bool(running)

    def show_reports(self, found: list[JobReport]) -> None:
        """Show the reports."""
        raise NotImplementedError

    def show_head(self) -> None:
        """Show the time of the last sample and when the next one is due."""
        raise NotImplementedError
