"""A running job: the verdict, the ranks, the source; sampled every few seconds while the screen is open."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.diagnosis.case import FRONT_DOOR
from ...app.diagnosis.symptoms import symptom_of
from ...app.errors import UserError
from ...app.review.types import ReviewFinding
from ...app.text.units import count_text
from ...app.triage.job_text import changes_since, end_text, sample_time
from ...app.triage.rank_groups import RankGroup, job_title, rank_groups
from ...app.triage.time_shares import share_lines
from ...app.triage.types import JobReport
from ...app.triage.watched_job import WatchedJob, follow_job, report_at_end
from ..dialogs.find_rank import FIND_FROM
from ..widgets.choices import Choices
from ..widgets.formatting import join_lines, safe_content
from ..widgets.header_footer import Header, StatusLine
from ..widgets.progress_line import ProgressLine
from .auto_refresh import AutoRefreshMixin
from .rank_table import RankTable, source_of_ranks
from .stop_job import StopJobMixin
from .text import jobs_line, problem_line, verdict_text

SYMPTOM = (FRONT_DOOR, "hangs")
SOURCE_MARGINS = 5  # around the source, with the column of its scrollbar
NO_CAUSE = "No cause yet. Press a to answer questions."


class TriageScreen(AutoRefreshMixin, StopJobMixin):
    """The verdict on a job: which rank waits at which line, and why."""

    CSS_PATH = Path(__file__).with_name("triage.tcss")
    TITLE = "My job hangs"
    ABOUT = (
        "The ranks of a running job are sampled every few seconds, without stopping them. At the top is the verdict. "
        "Below, each row is a line of code at which ranks wait or run; enter shows the ranks, then one of them. The "
        "source follows. 'last moved' is the time since the ranks last made progress. With ≥ it is measured from the "
        "first sample, so the true time is longer."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fix", "fix", id="triage.fix", tooltip="Show the fixes for this job"),
        Binding("w", "why", "why", id="triage.why", tooltip="Show the evidence for and against the verdict"),
        Binding("n", "next_job", "next job", id="triage.next", tooltip="Show another job of this machine"),
        Binding("s", "stacks", "stacks", id="triage.stacks", tooltip="Show the stacks of all ranks"),
        Binding("e", "export", "export", id="triage.export", tooltip="Save this case as a page that can be shared"),
        Binding("p", "pause", "pause", id="triage.pause", tooltip="Pause or resume the periodic sampling"),
        Binding("r", "sample", "sample now", id="triage.sample", tooltip="Sample the ranks now"),
        Binding("ctrl+k", "stop_job", "stop job", id="triage.stop", tooltip="Stop or restart the job (asks first)"),
        Binding("a", "ask", "ask me", id="triage.ask", tooltip="Continue with questions"),
    ]

    class Reviewed(Message):
        """The culprit's script was reviewed."""

        def __init__(self, job: str, findings: list[ReviewFinding]) -> None:
            super().__init__()
            self.job, self.findings = job, findings

    def __init__(self, reports: Sequence[JobReport] = (), pid: int | None = None) -> None:
        super().__init__()
        self._reports, self._pid = list(reports), pid
        self._shown = 0
        self._groups: list[RankGroup] = []
        self._findings: list[ReviewFinding] = []
        self._reviews: dict[str, list[ReviewFinding]] = {}  # of the running files of a job whose cause is open
        self._divergences: dict[str, ReviewFinding | None] = {}  # the finding that gives the cause of a job
        self._ended: set[str] = set()
        self._in_case: object = None  # the verdict that the case has
        self._put: dict[str, Content] = {}  # content of each part
        self._wanted_rank: int | None = None
        self._watched: dict[str, WatchedJob] = {}  # by job

    @property
    def report(self) -> JobReport | None:
        """The job that is shown, or None."""
        return self._reports[self._shown] if self._shown < len(self._reports) else None

    def body(self) -> Iterable[Widget]:
        yield Static(id="jobs")
        yield Static(id="problem")
        yield Static(id="verdict")
        yield Static(id="names")
        yield Choices(numbered=False, verb="open", id="ranks")
        yield Static(id="more")
        yield Static(id="shares")
        yield self.find_line()
        with VerticalScroll(id="source"):
            yield Static(id="code")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Show the reports passed in, or sample."""
        if self._reports:
            self.outdated = True
            self.show_reports(self._reports)
        else:
            self.action_sample()

    # -- new reports

    def show_reports(self, found: list[JobReport]) -> None:
        """Show these jobs; one that has ended stays with its last report."""
        before = {report.job.id: report for report in self._reports}
        self._watched |= {report.job.id: follow_job(self._watched.get(report.job.id), report) for report in found}
        now = {report.job.id: self._explained(self._watched[report.job.id].report) for report in found}
        changes = [changes_since(before[id_], report) for id_, report in now.items() if id_ in before]
        gone = {id_ for id_ in before if id_ not in now}
        changes += [end_text(before[id_]) for id_ in gone - self._ended]
        self._ended = gone
        self._reports = [now.get(id_) or report_at_end(self._watched[id_], report) for id_, report in before.items()]
        self._reports += [report for id_, report in now.items() if id_ not in before]
        if self._pid is None:
            self.state.reports = list(now.values())
        self.taken = True
        self._update_case()
        if FRONT_DOOR not in self.state.case.answers and not self.state.case.is_moving:
            self.state.case.answer(*SYMPTOM)
        self._show()
        if text := " ".join(filter(None, changes)):
            self.show_status(f"{time.strftime('%H:%M:%S')}  {text}")
        elif self.report and self.report.verdict.cause and self.query_one(StatusLine).content.plain == NO_CAUSE:
            self.show_status("")
        self.schedule_next_sample()

    def _update_case(self) -> None:
        """Take the verdict on the shown job into the case if it has changed."""
        from ...app.diagnosis.job_evidence import add_triage

        report = self.report
        verdict = (
            (report.job.id, report.verdict.state, report.verdict.cause, report.verdict.culprits) if report else None
        )
        if report is None or verdict == self._in_case:
            return
        self._in_case = verdict
        self.state.record_navigation("triage", str(self._pid or ""))
        others = [other for other in self._reports if other is not report]
        add_triage(self.state.case, [report, *others])
        self.run_worker(self._review(report), group="review", exclusive=True)

    async def _review(self, report: JobReport) -> None:
        from ...app.diagnosis.job_evidence import review_job_script
        from ...app.diagnosis.reviewed_job import is_open, review_running_files

        review = review_running_files if is_open(report) else review_job_script
        findings = await asyncio.to_thread(review, report, self.state.knowledge)
        self.post_message(self.Reviewed(report.job.id, findings))

    def _explained(self, report: JobReport) -> JobReport:
        """Return a report with the cause that the review of its files gives, if the ranks do not show any."""
        from ...app.diagnosis.reviewed_job import divergence_finding, explain_by_review

        findings = self._reviews.get(report.job.id, [])
        found = divergence_finding(report, findings, self.state.knowledge) if findings else None
        self._divergences[report.job.id] = found
        return explain_by_review(report, self.state.knowledge, findings)

    @on(Reviewed)
    def _reviewed(self, event: Reviewed) -> None:
        from ...app.diagnosis.job_evidence import add_review
        from ...app.diagnosis.reviewed_job import is_open

        self._findings = event.findings
        add_review(self.state.case, event.findings)
        report = self.report
        if report and report.job.id == event.job and is_open(report):
            self._reviews[event.job] = event.findings
            self._reports[self._shown] = self._explained(report)
            self._update_case()
            self._show()

    # -- showing

    def _show(self) -> None:
        report = self.report
        self.keys_changed()
        if report is None:
            self._update(
                "verdict",
                Content(
                    "No distributed job of yours runs here. Start it, or run the wizard on the machine where it runs. "
                    "Press a to answer questions."
                ),
            )
            return
        ended = report.job.id in self._ended
        self.show_head()
        several = len(self._reports) > 1
        line = jobs_line(self._reports, self._shown, self._ended, self.ascii_only, self.size.width - 2)
        self._update("jobs", line if several else None)
        self._update("problem", problem_line(report, self.ascii_only, ended))
        self._update("verdict", verdict_text(report, self.state.knowledge, self.ascii_only, ended))
        self._show_ranks(report)
        shares = share_lines(self._watched[report.job.id].history) if report.verdict.state == "progressing" else []
        self._update("shares", join_lines(*map(safe_content, shares)) if shares else None)
        self._show_source()

    def show_head(self) -> None:
        report = self.report
        if report is None:
            return
        if report.job.id in self._ended:
            how = "ended"
        elif not self.watching:
            how = "paused"
        else:
            how = "sampling…" if self.outdated else f"every {self.wait_s:.0f} s"
        facts = ", ".join(filter(None, [sample_time(report), how]))
        symptom = symptom_of(self.state.case.answers)
        self.query_one(Header).show(f"{symptom.label if symptom else self.TITLE} › {job_title(report)}", facts)

    def _show_ranks(self, report: JobReport) -> None:
        choices = self.query_one("#ranks", Choices)
        self._groups = rank_groups(report)
        table = RankTable(self._groups, self.size.width - 4)
        marked = int(choices.marked.id) if choices.marked else -1
        # The marker stays on its rank: the row that holds that rank gets its id.
        ids = [marked if marked in group.members else group.members[0] for group in self._groups]
        self._update("names", Content.assemble("  ", table.header()))
        choices.set_items([table.row(group, str(id_)) for group, id_ in zip(self._groups, ids, strict=True)])
        most = self.size.height * 3 // 10
        many = f"  {len(self._groups)} places, {count_text(len(report.ranks), 'rank')}: / finds a rank"
        self._update("more", Content(many) if len(self._groups) > most else None)

    @on(Choices.Marked, "#ranks")
    def _show_source(self) -> None:
        report, marked = self.report, self.query_one("#ranks", Choices).highlighted
        if report is None:
            return
        rank = self._groups[marked].members[0] if marked < len(self._groups) else -1
        at = next((row.where for row in report.ranks if row.rank == rank), None)
        self._update("code", join_lines(*source_of_ranks(report, self.size.width - SOURCE_MARGINS, at)))

    def _update(self, part: str, content: Content | None) -> None:
        """Show a part if it has changed (an update repaints), and hide it if there is none."""
        content = content or Content("")
        if part not in self._put or not content.is_same(self._put[part]):
            self._put[part] = content
            widget = self.query_one(f"#{part}", Static)
            widget.set_class(bool(content.plain), "-open")
            widget.update(content)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self.report:
            self._show()

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "next_job":
            return len(self._reports) > 1
        if action in ("fix", "why", "stacks", "export", "stop_job"):
            return self.report is not None
        return action != "find" or (self.report is not None and len(self.report.ranks) > FIND_FROM)

    def row_of_rank(self, rank: int) -> int | None:
        self._wanted_rank = rank
        return next((n for n, group in enumerate(self._groups) if rank in group.members), None)

    def action_next_job(self) -> None:
        from .pick_job import PickJobDialog

        if len(self._reports) == 2:
            self._show_job(self._reports[1 - self._shown].job.id)
        else:
            self.app.push_screen(PickJobDialog("Jobs of this machine", self._reports), callback=self._show_job)

    def _show_job(self, chosen: str | None) -> None:
        at = next((n for n, report in enumerate(self._reports) if report.job.id == chosen), None)
        if at is not None:
            self._shown = at
            self._update_case()
            self._show()

    async def action_fix(self) -> None:
        report = self.report
        if report is None or not report.verdict.cause:
            self.show_status(NO_CAUSE)
            return
        finding = self._divergences.get(report.job.id)
        await self.wizard.open(
            "fix", cause=report.verdict.cause, report=report, findings=self._findings, finding=finding
        )

    async def action_why(self) -> None:
        await self.wizard.open("diagnosis")

    async def action_ask(self) -> None:
        await self.wizard.open("step")

    @on(Choices.Picked, "#ranks")
    def _picked(self) -> None:
        from .rank import RankScreen, RanksScreen

        report, at = self.report, self.query_one("#ranks", Choices).highlighted
        if report is None or at >= len(self._groups):
            return
        members = self._groups[at].members
        if len(members) == 1:
            self.app.push_screen(RankScreen(report, members, members[0]))
        else:
            self.app.push_screen(RanksScreen(report, members, self._wanted_rank))

    def action_stacks(self) -> None:
        from .rank import stacks_page

        if self.report:
            self.app.push_screen(stacks_page(self.report, self.size.width - 4))

    def action_export(self) -> None:
        from ...app import report

        try:
            assert self.state.case.session is not None
            self.show_status(f"Saved as {report.save_report(self.state.case.session, self.state.knowledge)}")
        except UserError as error:
            self.wizard.show_error(error)
