"""Stop the job of a verdict, or stop it and start it again, after a question."""

import asyncio

from ...app.errors import UserError
from ...app.jobs import control
from ...app.system.terminate import GRACE_S, LAST_S
from ...app.triage.job_text import job_line, job_name, restart_text, stopped_text
from ...app.triage.types import JobReport
from ..dialogs.pick import PickDialog
from ..shell.base import WizardScreen
from ..widgets.choices import Choice
from ..widgets.formatting import safe_content
from ..widgets.progress_line import ProgressLine

KEEP, STOP, RESTART = "keep", "stop", "restart"


class StopJobMixin(WizardScreen):
    """A screen with a job that can be stopped. It implements ``report``."""

    @property
    def report(self) -> JobReport | None:
        """The job that is shown, or None."""
        raise NotImplementedError

    def action_stop_job(self) -> None:
        report = self.report
        if report is None:
            return
        start: control.JobStart | None = None
        rows = [Choice(KEEP, "No, let it run"), Choice(STOP, f"Stop it: {job_line(report)}")]
        try:
            start = control.plan_start(report.job)
            rows.append(Choice(RESTART, safe_content(restart_text(start))))
        except UserError as error:
            self.show_status(f"It cannot be started again from here: {error.message}.")
        self.app.push_screen(
            PickDialog(f"Stop {job_name(report)}?", rows), callback=lambda choice: self._stop(report, choice, start)
        )

    def _stop(self, report: JobReport, choice: str | None, start: control.JobStart | None) -> None:
        if choice in (STOP, RESTART):
            self.query_one(ProgressLine).begin("stopping the job", GRACE_S + LAST_S)
            again = start if choice == RESTART else None
            self.run_worker(self._stop_and_start(report, again), group="stop", exclusive=True)

    async def _stop_and_start(self, report: JobReport, start: control.JobStart | None) -> None:
        try:
            ended = await asyncio.to_thread(control.stop_job, report.job)
            self.show_status(stopped_text(ended, start, control.start_job(start) if start else 0))
        except UserError as error:
            self.wizard.show_error(error)
        finally:
            self.query_one(ProgressLine).end()
