"""Mixin for the screen of a lab: run the learner's copy, the original or the repaired job, and show it as it goes."""

from collections.abc import Awaitable

from textual import on
from textual.content import Content
from textual.message import Message

from ...app.errors import UserError
from ...app.labs.lab_run import START_LIMIT_S
from ...app.labs.phrases import FAILURE_TEXT, ORIGINAL_FIRST, not_shown_text
from ...app.labs.rank_output import printed_line
from ...app.triage.types import JobReport
from ..widgets.formatting import safe_content, status_sign
from ..widgets.progress_line import ProgressLine
from .lab_messages import OriginalRan, Printed, RunEnded, Sampled
from .lab_parts import next_keys
from .lab_view import LabViewMixin


class LabRunMixin(LabViewMixin):
    """``r``, ``o`` and ``v``; one run at a time."""

    def _next_keys(self) -> str:
        return next_keys(self.session, self.part)

    def action_run(self) -> None:
        self._begin("the job runs")
        self._run_in_worker(self._run())

    def action_run_original(self) -> None:
        self._begin("the original runs")
        self._launch = self._entry.lab.launch
        self._run_in_worker(self._run_original())

    def action_prove(self) -> None:
        self._begin("the repaired job runs" if self.session.progress.failed else ORIGINAL_FIRST)
        self._run_in_worker(self._prove())

    def _run_in_worker(self, run: Awaitable[RunEnded]) -> None:
        self.run_worker(self._post_end(run), group="lab", exclusive=True)

    async def _post_end(self, run: Awaitable[RunEnded]) -> None:
        try:
            self.post_message(await run)
        except UserError as error:
            self.post_message(RunEnded(error=error))

    async def _run(self) -> RunEnded:
        return RunEnded(await self.session.start(self._note_line, self._note_report))

    async def _run_original(self) -> RunEnded:
        await self.session.start_original(self._note_line, self._note_report)
        return RunEnded(shown=True)

    async def _prove(self) -> RunEnded:
        if not self.session.progress.failed:
            await self._run_original()
            self._note(OriginalRan())
        return RunEnded(proof=await self.session.prove(self._note_line))

    def _note_line(self, line: str) -> None:
        self._note(Printed(line))

    def _note_report(self, report: JobReport) -> None:
        self._note(Sampled(report))

    def _note(self, message: Message) -> None:
        self.post_message(message)

    def _begin(self, what: str) -> None:
        self._job_runs = self._has_run = True
        self.forget_repair()
        self._printed.clear()
        self._new_parts.clear()
        self._report, self._launch = None, self.session.launch
        self.query_one(ProgressLine).begin(what, START_LIMIT_S + self._entry.lab.within_s)
        self.show_status("esc stops it")
        self.show_part("output")

    @on(OriginalRan)
    def _begin_repaired(self) -> None:
        self._begin("the repaired job runs")

    @on(Printed)
    def _show_line(self, event: Printed) -> None:
        if line := printed_line(event.line):
            self._printed[line.rank].append(line.text)
            if self.part == "output":
                self.show_part("output")

    @on(Sampled)
    def _show_sample(self, event: Sampled) -> None:
        first, self._report = self._report is None, event.report
        if first or self.part == "ranks":
            self._offer_part("ranks")

    @on(RunEnded)
    def _run_ended(self, event: RunEnded) -> None:
        self._job_runs = False
        self.query_one(ProgressLine).end()
        if self.session.run and self.session.run.report and not event.proof:
            self._report = self.session.run.report
        part = self._part_after(event)
        if self.part == "output" and not self._printed:
            self.show_part(part)
        self._offer_part(part)
        self._show_result_in_output(failed=event.shown)
        if event.error:
            self.wizard.show_error(event.error)
        elif event.proof:
            sign = status_sign("ok" if event.proof.outcome == "proved" else "fail", self.ascii_only)
            result = safe_content(f"{event.proof.outcome}: {event.proof.what.removesuffix('.')}.  {self._next_keys()}")
            self.show_status(Content.assemble(sign, " ", result))
        elif event.shown:
            if self.session.found:
                self.make_repair()  # before it is asked for
            self.show_status(f"{FAILURE_TEXT[self._entry.lab.failure]}  {self._next_keys()}")
        else:
            text = not_shown_text(self.session)
            self.show_status(f"{text}  {self._next_keys()}" if self.session.ends_well_after_change else text)

    def _part_after(self, event: RunEnded) -> str:
        """Return the part that shows the result of a run best."""
        drawn = self.session.measured and (
            self.session.lab.question or (event.proof and event.proof.outcome == "proved")
        )
        if drawn and not event.error:
            return "plot"
        return "ranks" if self._report and not event.proof else "output"

    def cancel_running(self) -> bool:
        if not self._job_runs:
            return False
        super().cancel_running()
        self._job_runs = False
        self.query_one(ProgressLine).end()
        self._show_result_in_output(failed=False)
        self.show_status(self.cancelled_text())
        self.keys_changed()
        return True

    def cancelled_text(self) -> str:
        return f"The job is stopped.  {self._next_keys()}"
