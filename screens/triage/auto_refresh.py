"""Looking at jobs again and again while a screen is open: in the background, and not while anything lies above it."""

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

LOOK_LIMIT_S = 20.0
AGAIN_S = 5.0  # between the end of a look and the next
SAMPLE, AGAIN = "sample", "again"  # groups of workers: a look that was asked for, and one by itself


class AutoRefreshMixin(FindRankMixin):
    """A screen that samples the job of ``_pid``, or all jobs. It implements ``show_reports`` and ``show_head``."""

    _reports: list[JobReport]
    _ended: set[str]  # ids of jobs that have ended while this was open
    _pid: int | None
    _next: Timer | None = None
    watching = True  # else only when asked
    taken = False  # whether anything was shown yet
    outdated = False  # what is shown was seen before this was on top, and the next look is under way
    wait_s = AGAIN_S

    class Sampled(Message):
        """The jobs were looked at; the look took ``elapsed_s``. ``ended``: the last reports of jobs that were there
        before."""

        def __init__(self, reports: list[JobReport], ended: list[JobReport], elapsed_s: float) -> None:
            super().__init__()
            self.reports, self.ended, self.elapsed_s = reports, ended, elapsed_s

    class SamplingFailed(Message):
        """The jobs could not be looked at."""

        def __init__(self, error: UserError) -> None:
            super().__init__()
            self.error = error

    def action_sample(self) -> None:
        self._rest()
        self.query_one(ProgressLine).begin("looking at the ranks", LOOK_LIMIT_S)
        self.run_worker(partial(self._sample, by_itself=False), group=SAMPLE, exclusive=True)

    def action_pause(self) -> None:
        self.watching = not self.watching
        self.schedule_next_sample()
        self.show_head()

    def on_screen_suspend(self) -> None:
        self._rest()

    def on_screen_resume(self) -> None:
        if self.watching and self.taken:
            self._rest()
            self.outdated = True
            self.show_head()
            self._look_again()

    def schedule_next_sample(self) -> None:
        """Look again after a while, where nothing is open above this and no look is under way."""
        self._rest()
        if self.watching and self.taken and self._is_on_top():
            self._next = self.set_timer(self.wait_s, self._look_again)

    def _rest(self) -> None:
        if self._next:
            self._next.stop()
            self._next = None
        self.workers.cancel_group(self, AGAIN)

    def _is_on_top(self) -> bool:
        """Whether nothing lies above it (``is_current`` is true of the screen below the top one too: Textual 8.2)."""
        return self.app.screen_stack[-1:] == [self]

    def _look_again(self) -> None:
        if not self._is_on_top():  # the page opened while this was on its way
            return
        self.run_worker(partial(self._sample, by_itself=True), group=AGAIN, exclusive=True)

    async def _sample(self, by_itself: bool) -> None:
        began = time.monotonic()
        try:
            reports = await self._triage(by_itself)
            reports, ended = await asyncio.to_thread(self._with_history, reports)
            self.post_message(self.Sampled(reports, ended, time.monotonic() - began))
        except UserError as error:
            self.post_message(self.SamplingFailed(error))
        except OSError as error:  # a process that goes while it is read
            self.post_message(self.SamplingFailed(InspectionError(str(error), "r looks again")))

    async def _triage(self, by_itself: bool) -> list[JobReport]:
        try:
            return await self.state.triage(self._pid)
        except UserError:
            if by_itself and self._is_gone():
                return []
            raise

    def _is_gone(self) -> bool:
        return self._pid is not None and not Path(f"/proc/{self._pid}").exists()

    def _with_history(self, reports: list[JobReport]) -> tuple[list[JobReport], list[JobReport]]:
        from ...app.triage.merge_samples import extend_with_earlier_samples
        from ...app.triage.post_mortem import add_deaths_from_logs

        before = {report.job.id: report for report in self._reports}
        gone = before.keys() - {report.job.id for report in reports} - self._ended
        ended = [add_deaths_from_logs(before[id_]) for id_ in gone]
        return [extend_with_earlier_samples(before.get(report.job.id), report) for report in reports], ended

    @on(Sampled)
    def _sampled(self, event: Sampled) -> None:
        self.query_one(ProgressLine).end()
        self.wait_s = max(AGAIN_S, event.elapsed_s)
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
        """End a look that was asked for; one by itself is nothing to wait for."""
        running = [worker for worker in self.workers if worker.node is self and worker.group == SAMPLE]
        running = [worker for worker in running if not worker.is_finished]
        for worker in running:
            worker.cancel()
        if running:
            self.query_one(ProgressLine).end()
            self.schedule_next_sample()
        return bool(running)

    def show_reports(self, found: list[JobReport]) -> None:
        """Show what was seen."""
        raise NotImplementedError

    def show_head(self) -> None:
        """Show when it was looked, and whether it is looked again."""
        raise NotImplementedError
