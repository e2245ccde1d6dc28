"""The checks of this machine: failures first, passed checks folded into one row; the all-reduce test on request."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...app.errors import UserError
from ...app.evidence import Check
from ...app.probes.context import level_permitted
from ...app.probes.summary import counts_text, shows_nothing
from ...app.snapshot import AllreduceSection, Snapshot
from ...app.text.units import bytes_text, gbps_text
from ...knowledge.schema import Intrusiveness
from ..dialogs.confirm import ConfirmDialog
from ..home.status_cells import machine_line
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content, status_sign
from ..widgets.progress_line import ProgressLine

ORDER = ("fail", "warn", "unknown", "skip", "ok")
BENCH = "allreduce"
HEALTHY = "healthy"
STEPS = "▁▂▃▄▅▆▇█"


class DoctorScreen(WizardScreen):
    """All checks of this machine."""

    CSS_PATH = Path(__file__).with_name("doctor.tcss")
    TITLE = "This machine"
    ABOUT = (
        "All checks of this machine, failures first. Next to the list: what the marked check means, and how to fix it. "
        "The all-reduce test starts real processes, so here it runs only when you start it."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "bench", "all-reduce test", id="check.bench", tooltip="Run a real all-reduce on this machine"),
        Binding("o", "fold", "show passed", id="check.fold", tooltip="Show or hide the passed checks"),
        Binding("r", "refresh", "refresh", id="check.look", tooltip="Run all checks again"),
        Binding("s", "save", "save", id="check.save", tooltip="Save a snapshot, to analyse it elsewhere"),
    ]

    class SnapshotTaken(Message):
        """A probe has finished or failed."""

        def __init__(self, probe: str, found: Snapshot) -> None:
            super().__init__()
            self.probe, self.found = probe, found

    def __init__(self) -> None:
        super().__init__()
        self._open = False
        self._waiting: set[str] = set()

    def body(self) -> Iterable[Widget]:
        with Container(id="sides"):
            yield Choices(self._rows(), numbered=False, verb="", id="checks")
            with VerticalScroll(id="detail"):
                yield Static(id="why")
        yield ProgressLine(self.ascii_only)

    def on_mount(self) -> None:
        self._show()
        seen = self.state.snapshot
        if seen is None or any(
            getattr(seen, p) is None and p not in seen.failed for p in self.state.may_probe("reads")
        ):
            self.action_refresh()

    # -- probing

    def action_refresh(self) -> None:
        probes = self.state.may_probe("reads")
        self._waiting = set(probes)
        limit_s = max((self.state.knowledge.probes[probe].limit_s for probe in probes), default=0)
        self.query_one(ProgressLine).begin("inspecting this machine", limit_s)
        self._run(probes, "reads")

    def _run(self, probes: list[str], granted: Intrusiveness) -> None:
        self.workers.cancel_group(self, "probes")
        for probe in probes:
            self.run_worker(self._probe(probe, granted), group="probes")

    async def _probe(self, probe: str, granted: Intrusiveness) -> None:
        self.post_message(
            self.SnapshotTaken(probe, await self.state.run_probes([probe], self.state.context(), granted))
        )

    @on(SnapshotTaken)
    def _snapshot_taken(self, event: SnapshotTaken) -> None:
        self._waiting.discard(event.probe)
        if not self._waiting:
            self.query_one(ProgressLine).end()
        self.state.add_snapshot(event.found)
        self._show()

    async def action_bench(self) -> None:
        spec = self.state.knowledge.probes[BENCH]
        if level_permitted(spec.intrusiveness, self.state.granted):
            self._bench()
            return
        await self.app.push_screen(
            ConfirmDialog(
                "Run a real all-reduce on this machine?",
                yes=f"Run it, {spec.limit_s:g} s at most",
                details="It starts one process per GPU (two without GPUs) and takes a little GPU memory. It may slow "
                "down a job that runs on this machine.",
            ),
            callback=lambda yes: self._bench() if yes else None,
        )

    def _bench(self) -> None:
        spec = self.state.knowledge.probes[BENCH]
        self._waiting = {BENCH}
        self.query_one(ProgressLine).begin(spec.title, spec.limit_s)
        self._run([BENCH], spec.intrusiveness)

    def cancel_running(self) -> bool:
        if not super().cancel_running():
            return False
        self._waiting = set()
        self.query_one(ProgressLine).end()
        return True

    # -- showing

    def _show(self) -> None:
        self.show_header(facts=counts_text(self.state.checks) or machine_line(self.state))
        self.query_one(Choices).set_items(self._rows())
        self._show_marked()

    def _rows(self) -> list[Choice]:
        checks = sorted(self.state.checks, key=lambda check: ORDER.index(check.status))
        healthy = [check for check in checks if shows_nothing(check)]
        shown = checks if self._open else [check for check in checks if check not in healthy]
        rows = [Choice(f"{n}", self._label(check)) for n, check in enumerate(shown)]
        if healthy and not self._open:
            skipped = sum(check.status == "skip" for check in healthy)
            more = f" {len(healthy) - skipped}{' more' if shown else ''} passed"
            more += f", {skipped} skipped" if skipped else ""
            rows.append(
                Choice(
                    HEALTHY, Content.assemble(status_sign("ok", self.ascii_only), more, ("  o shows them", "$muted"))
                )
            )
        self._shown = shown
        return rows

    def _label(self, check: Check) -> Content:
        return Content.assemble(status_sign(check.status, self.ascii_only), " ", safe_content(check.title))

    @on(Choices.Marked)
    def _marked(self) -> None:
        self._show_marked()

    @on(Choices.Picked)
    def _picked(self, event: Choices.Picked) -> None:
        if event.id == HEALTHY:
            self.action_fold()

    def _show_marked(self) -> None:
        marked = self.query_one(Choices).marked
        rows: list[Content] = []
        if marked and marked.id != HEALTHY:
            check = self._shown[int(marked.id)]
            rows = [safe_content(check.title, "bold")]
            rows += [safe_content(check.detail)] if check.detail else []
            rows += [safe_content(check.where, "$muted")] if check.where else []
            rows += [Content.assemble(("→ ", "$accent"), safe_content(check.fix))] if check.fix else []
            if check.id.partition(".")[0] == BENCH:
                rows += self._bench_rows()
        elif marked:
            rows = [Content.styled("All these checks passed.", "$muted")]
        self.query_one("#why", Static).update(join_lines(*rows) if rows else "")

    def _bench_rows(self) -> list[Content]:
        section = self.state.snapshot.allreduce if self.state.snapshot else None
        return bench_rows(section) if section else []

    # -- actions

    def action_fold(self) -> None:
        self._open = not self._open
        self._show()

    def action_save(self) -> None:
        if self.state.snapshot is None:
            self.show_status("No snapshot was taken yet.")
            return
        import msgspec

        from ...app.system.files import write_new_file

        content = msgspec.json.format(msgspec.json.encode(self.state.snapshot)).decode()
        try:
            self.show_status(
                f"Saved as {write_new_file(f'snapshot-{self.state.snapshot.host}.json', content, mode=0o600)}"
            )
        except UserError as error:
            self.wizard.show_error(error)


def bench_rows(section: AllreduceSection) -> list[Content]:
    """Render the live test as a small graph and a table: bytes, time, bus bandwidth."""
    if not section.rows:
        return []
    most = max(row.busbw_gbps for row in section.rows) or 1.0
    graph = "".join(STEPS[min(7, int(row.busbw_gbps / most * 7.99))] for row in section.rows)
    head = f"{section.ranks} ranks, {section.backend}   {graph}   bus bandwidth up to {gbps_text(most)}"
    rows = [Content(""), safe_content(head), Content.styled(f"{'bytes':>10} {'ms':>10} {'GB/s':>8}", "$muted")]
    for row in section.rows:
        wrong = "" if row.correct else "  wrong data"
        rows.append(
            safe_content(f"{bytes_text(row.bytes):>10} {row.seconds * 1000:>10.2f} {row.busbw_gbps:>8.2f}{wrong}")
        )
    return rows
