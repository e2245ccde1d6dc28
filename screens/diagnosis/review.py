"""Review of a script or of all scripts of a directory: the findings one by one, each with its patch."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...app.diagnosis.script_evidence import review_summary, take_findings
from ...app.errors import UserError
from ...app.fixes.migration import migrate_script, split_target
from ...app.fixes.patch_walk import PatchWalk, Written, walk_patches, written_lines
from ...app.fixes.undo import undo_fix
from ...app.review.migrations.targets import TARGETS
from ...app.review.output_formats import place_text
from ...app.review.types import ReviewFinding
from ...app.system.files import expand_user
from ...app.text.units import count_text
from ..dialogs.pick import PickDialog
from ..shell.base import WizardScreen
from ..widgets.choices import Choice, Choices
from ..widgets.formatting import join_lines, safe_content, status_sign
from ..widgets.line_input import LineInput
from ..widgets.source import diff_line, excerpt
from .migration import MigrationDialog

WALK_KEYS = "y accepts the patch, n skips it, s stops and writes what is accepted"
NO_FINDINGS = "m migrates the script to DDP, FSDP2 or a resumable run; tab goes back to the path."


class ReviewScreen(WizardScreen):
    """Asks for a script or a directory, and goes through what the rules find in it."""

    CSS_PATH = Path(__file__).with_name("review.tcss")
    TITLE = "Review my script"
    AUTO_FOCUS = "LineInput"
    ABOUT = (
        "Type the path of a training script, a notebook or a directory (tab completes it) and press enter. Scripts are "
        "read, not run. Go through the findings: y accepts the patch that is shown, n skips it. The accepted ones are "
        "written together after the last finding, or when s stops; u, or ddpwizard undo, reverts them. A file "
        "that a fix (f) changes is reviewed again. m migrates the script to DDP, FSDP2 or a resumable run, as does the "
        "path with --to ddp, fsdp2 or resume."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide(True)", "accept", id="review.accept", tooltip="Accept the patch, and go to the next one"),
        Binding("n", "decide(False)", "skip", id="review.skip", tooltip="Skip the finding, and go to the next one"),
        Binding("s", "stop", "stop", id="review.stop", tooltip="Stop here, and write the accepted patches"),
        Binding("m", "migrate", "migrate", id="review.migrate", tooltip="Migrate the script to DDP, FSDP2 or resume"),
        Binding("u", "undo", "undo", id="review.undo", tooltip="Revert the patches that were written"),
        Binding("f", "fix", "fix", id="review.fix", tooltip="Show the fix of the marked finding, and others"),
        Binding("d", "diagnosis", "diagnosis", id="review.diagnosis", tooltip="Show the causes that this supports"),
        Binding("tab", "complete", "complete", show=False, id="review.complete", tooltip="Complete the path"),
    ]

    class Reviewed(Message):
        """A script or directory was reviewed; ``again``: since a file of it has changed."""

        def __init__(self, path: Path, walk: PatchWalk, *, again: bool) -> None:
            super().__init__()
            self.path, self.walk, self.again = path, walk, again

    def __init__(self) -> None:
        super().__init__()
        self._path = Path()
        self._walk: PatchWalk | None = None
        self._written: Written | None = None
        self._open = False  # the findings are gone through, and nothing is written yet
        self._leaves = False  # escape was pressed once, with accepted patches that are not written

    def body(self) -> Iterable[Widget]:
        yield LineInput(placeholder="path of the script or directory, such as train.py", moves="#findings", id="path")
        yield Choices(id="findings", numbered=False, verb="fix")
        with VerticalScroll(id="detail"):
            yield Static(id="shown")

    # -- the review

    @on(Input.Submitted, "#path")
    def _given(self, event: Input.Submitted) -> None:
        typed = event.value.strip()
        if not typed:
            return
        try:
            given, target = split_target(typed)
        except UserError as error:
            self.wizard.show_error(error)
            return
        if target:
            self._migrate_to(target, given)
            return
        self.show_status("reviewing …")
        self.run_worker(self._review(typed), exclusive=True)

    def on_screen_resume(self) -> None:
        """Review again after a fix or an editor has changed a file; decisions on what is as before stay."""
        super().on_screen_resume()
        if self._walk and self._written is None and self._walk.has_changed_files():
            self.show_status("reviewing the changed files …")
            self.run_worker(self._review(str(self._path), self._walk), exclusive=True)

    async def _review(self, typed: str, earlier: PatchWalk | None = None) -> None:
        try:
            path = expand_user(typed)
            walk = await asyncio.to_thread(walk_patches, path, self.state.knowledge, earlier)
        except UserError as error:
            self.show_status("")
            self.wizard.show_error(error)
        else:
            self.post_message(self.Reviewed(path, walk, again=earlier is not None))

    @on(Reviewed)
    def _reviewed(self, event: Reviewed) -> None:
        self._path, self._walk, self._written = event.path, event.walk, None
        self._open = bool(event.walk.findings)
        if not event.again:  # the case keeps the findings that its fix was for
            take_findings(self.state.begin(), event.path, event.walk.findings)
        self.show_header(facts=event.path.resolve().name)
        summary = review_summary(event.path, event.walk.findings, len(self.state.knowledge.rules))
        left_out = [f"left out: {each.message}" for each in event.walk.skipped_files[:1]]
        if more := len(event.walk.skipped_files) - len(left_out):
            left_out.append(f"(and {more} more)")
        self.show_status("\n".join([summary, *([" ".join(left_out)] if left_out else [])]))
        self._show_rows(first=True)
        if event.walk.findings or self._is_script():
            self.query_one("#findings", Choices).focus()  # keys are letters in the line for the path
        self._show_marked()

    def _show_rows(self, first: bool = False) -> None:
        walk = self._walk
        rows = [Choice(str(at), partial(self._row, walk, at)) for at in range(len(walk.findings))] if walk else []
        self.query_one("#findings", Choices).set_items(rows, first=first)
        self.keys_changed()

    def _row(self, walk: PatchWalk, at: int) -> Content:
        finding = walk.findings[at]
        decided = "ok" if at in walk.accepted else "skip" if at in walk.skipped else ""
        sign = status_sign(decided, self.ascii_only) if decided else Content("    " if self.ascii_only else " ")
        text = safe_content(f"{place_text(finding, column=False)}  {finding.message}")
        room = max(8, self.app.size.width - 10)
        return Content.assemble(sign, " ", text.truncate(room, ellipsis=True))

    @on(Choices.Marked)
    def _show_marked(self) -> None:
        at, walk, width = self._at(), self._walk, self.app.size.width - 8
        rows: list[Content] = []
        if walk and at is not None:
            finding = walk.findings[at]
            rows += safe_content(f"{walk.position(at)}  {walk.heading(at)}", "bold").wrap(width)
            rows += safe_content(walk.patch_line(at), "$muted").wrap(width)
            rows += self._patch(finding, width)
            rows += [Content(""), *safe_content(finding.why).wrap(width)]
        elif walk and not walk.findings and self._is_script():
            rows += safe_content(NO_FINDINGS, "$muted").wrap(width)
        self._show_detail(rows)

    def _show_detail(self, rows: list[Content]) -> None:
        self.query_one("#shown", Static).update(join_lines(*rows))
        self.query_one("#detail").scroll_home(animate=False)
        self.keys_changed()

    def _patch(self, finding: ReviewFinding, width: int) -> list[Content]:
        """Render the diff of a finding without the names of the file, or the lines around one without a patch."""
        if finding.fix and finding.fix.diff:
            return [diff_line(line) for line in finding.fix.diff.splitlines()[2:]]
        return excerpt(f"{finding.path}:{finding.line}", self.state.texts, width)

    def _at(self) -> int | None:
        marked = self.query_one("#findings", Choices).marked
        return int(marked.id) if marked else None

    # -- decisions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "decide":
            finding = self._marked()
            return self._open and finding is not None and (parameters != (True,) or _has_patch(finding))
        if action == "migrate":
            return self._walk is not None and self._is_script()
        if action == "stop":
            return self._open
        return self._written is not None if action == "undo" else True

    def action_decide(self, accept: bool) -> None:
        walk, at = self._walk, self._at()
        if walk is None or at is None:
            return
        self._leaves = False
        following = walk.decide(at, accept)
        self._show_rows()
        if following is None:
            self.action_stop()
            return
        self.query_one("#findings", Choices).highlighted = following
        self.show_status(f"{walk.progress()}: {WALK_KEYS}")

    def action_stop(self) -> None:
        walk = self._walk
        if walk is None:
            return
        try:
            self._written = walk.write()
        except UserError as error:
            self.wizard.show_error(error)
            return
        self._open = False
        self._show_rows()
        lines = written_lines(self._written)
        if self._written is None:
            self.show_status(lines[0])
            return
        self.state.record_event("note", text=f"review: {'; '.join(lines)}")
        self._show_detail([line for text in lines for line in safe_content(text).wrap(self.app.size.width - 8)])
        files = count_text(len(self._written.applied.paths), "file")
        self.show_status(
            f"{len(self._written.done)} of {len(walk.findings)} applied, in {files}; u reverts that, as does "
            f"ddpwizard undo {self._written.applied.id}"
        )

    def action_undo(self) -> None:
        walk, written = self._walk, self._written
        if walk is None or written is None:
            return
        try:
            undo_fix(written.applied.id)
        except UserError as error:
            self.wizard.show_error(error)
            return
        walk.restart()
        self._written, self._open = None, True
        self._show_rows(first=True)
        self._show_marked()
        self.show_status(f"reverted: {count_text(len(written.applied.paths), 'file')} as before the review")

    async def action_back(self) -> None:
        walk = self._walk
        if walk and self._open and walk.accepted and not self._leaves:
            self._leaves = True
            self.show_status(f"{len(walk.accepted)} accepted, nothing written: s writes them, escape again leaves")
            return
        await self.wizard.back()

    # -- other ways on

    def _marked(self) -> ReviewFinding | None:
        at = self._at()
        return self._walk.findings[at] if self._walk and at is not None else None

    @on(Choices.Picked)
    async def _picked(self) -> None:
        await self.action_fix()

    async def action_fix(self) -> None:
        finding = self._marked()
        if self._walk and finding and finding.rule in self.state.knowledge.rules:
            await self.wizard.open("fix", cause=finding.cause, findings=self._walk.findings, finding=finding)
        else:
            self.show_status("No finding is marked: type the path of a script and press enter.")

    def action_migrate(self) -> None:
        rows = [Choice(name, safe_content(f"{name}: {what}")) for name, what in TARGETS.items()]
        dialog = PickDialog(f"Migrate {self._path.name} to", rows)
        self.app.push_screen(dialog, callback=lambda id_: self._migrate_to(id_, str(self._path)))

    def _migrate_to(self, target: str | None, typed: str) -> None:
        if target:
            self.run_worker(self._migrate(target, typed), exclusive=True)

    async def _migrate(self, target: str, typed: str) -> None:
        try:
            migration = await asyncio.to_thread(migrate_script, expand_user(typed), target)
        except UserError as error:
            self.wizard.show_error(error)
        else:
            self.app.push_screen(MigrationDialog(migration))

    def _is_script(self) -> bool:
        return self._path.suffix == ".py" and not self._path.is_dir()

    async def action_diagnosis(self) -> None:
        await self.wizard.open("diagnosis")

    def action_complete(self) -> None:
        path = self.query_one("#path", LineInput)
        if not path.has_focus:
            path.focus()
        elif not path.complete_path():
            self.query_one("#findings", Choices).focus()


def _has_patch(finding: ReviewFinding) -> bool:
    return finding.fix is not None and bool(finding.fix.edits)
