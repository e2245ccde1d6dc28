"""The parts of a lab as content: story, code, output, ranks, plot, evidence, fix."""

from collections.abc import Mapping, Sequence

from textual.content import Content
from textual.geometry import Size

from ...app.errors import UserError
from ...app.labs.lab_diagnosis import Repair
from ...app.labs.lab_session import LabSession
from ...app.labs.phrases import (
    ORIGINAL_FIRST,
    RUN_ORIGINAL,
    evidence_lines,
    numbered_code,
    question_text,
    rank_prefix_text,
    repair_advice_lines,
    repair_diff,
    repair_title_lines,
)
from ...app.labs.plot import picture_lines
from ...app.labs.rank_lines import rank_lines
from ...app.text.paragraphs import reflow
from ...app.triage.types import JobReport
from ..widgets.formatting import join_lines, safe_content
from ..widgets.source import diff_line
from .rank_panes import rank_panes

FIX_FOLLOWS = "The wizard makes the fix for your files."
NOTHING_PRINTED_YET = "Nothing is printed yet: each process imports torch first."
NOTHING_PRINTED = "The job has printed nothing."
PARTS = ("story", "code", "output", "ranks", "plot", "evidence", "fix")
SCROLL_BAR = 1  # column
EDIT_OR_RESTORE = "e: edit · x: restore the files"
NEXT_KEYS = {
    "run": "r: run it",
    "answer": "g: name the cause · h: a hint",
    "repair": "a: the fix of the wizard · e: edit your copy or its command",
    "prove": f"v: prove it · {EDIT_OR_RESTORE}",
    "done": "enter: the next lab · esc: back to the labs",
}
MAIN_ACTIONS = {
    "run": "run",
    "answer": "guess",
    "repair": "apply",
    "prove": "prove",
    "done": "next_lab",
}  # of a step: what Enter does


def next_keys(session: LabSession, part: str) -> str:
    """Return the keys of the next step, each with what it does, while ``part`` is shown."""
    lab, stage = session.lab, session.stage
    if stage == "answer" and lab.question:
        return f"{question_text(session)}  g: answer · h: a hint"
    if stage == "done" and lab.question:
        return "→: the reason · enter: the next lab"
    if lab.launch and stage == "answer" and session.ends_well_after_change:
        return f"g: name the cause, then prove it · o: {RUN_ORIGINAL}"
    if stage == "prove" and not session.progress.failed:
        return f"v: prove it ({ORIGINAL_FIRST}) · {EDIT_OR_RESTORE}"
    if stage == "prove" and session.progress.repaired:
        return f"n: the next lab · v: prove it again · {EDIT_OR_RESTORE}"
    if stage == "prove" and session.proof:
        return f"v: prove it again · {EDIT_OR_RESTORE}, then a: the fix of the wizard"
    files = ""
    if part != "code" and stage in ("run", "answer"):
        files = "" if lab.launch and stage == "answer" else f"→: the {'code' if lab.launch else 'log'} · "
    return files + NEXT_KEYS[stage]


def available_parts(
    session: LabSession, printed: Mapping[int | None, Sequence[str]], report: bool, has_run: bool
) -> list[str]:
    """Return the parts that have a content now; ``has_run``: a job was started."""
    answered = session.progress.answered
    shown = {
        "output": has_run or bool(printed),
        "ranks": report,
        "plot": bool(session.measured),
        "evidence": answered and (session.run is not None if session.lab.question else True),
        "fix": answered and bool(session.lab.fix) and session.found is not None,
    }
    return [part for part in PARTS if shown.get(part, True)]


def part_content(
    part: str,
    session: LabSession,
    printed: Mapping[int | None, Sequence[str]],
    report: JobReport | None,
    size: Size,
    launch: str,
    runs: bool,
) -> Content:
    """Return the content of a part, but not of the fix, for a pane of this size.

    ``launch`` has started the job that printed; while it ``runs``, its last lines are shown, later all.
    """
    lab = session.lab
    if part == "story":
        lines = [safe_content(reflow(lab.story)), Content(""), safe_content(f"$ {session.command}", "$muted")]
        return join_lines(*(lines if lab.launch else lines[:1]))
    if part == "code":
        return _code(session, size.width - SCROLL_BAR)
    if part == "output" and not printed:
        return safe_content(NOTHING_PRINTED_YET if runs else NOTHING_PRINTED, "$muted")
    if part == "output":
        return rank_panes(printed, launch, size.width - 2, size.height if runs else None)
    if part == "ranks" and report:
        return _plain(rank_lines(report, size.width - 2))
    if part == "plot" and lab.plot:
        return _plain(picture_lines(lab.plot, session.measured, size.width - 2, size.height - 1))
    return _plain(evidence_lines(session))


def _code(session: LabSession, width: int) -> Content:
    rows: list[Content] = []
    if prefix_text := rank_prefix_text(session):
        rows += [safe_content(prefix_text, "$muted"), Content("")]
    for path in session.lab.files:
        copy = session.directory / path.relative_to(session.lab.directory)
        rows.append(safe_content(str(copy), "bold"))
        rows += map(safe_content, numbered_code(copy.read_text(encoding="utf-8", errors="replace"), width))
    return join_lines(*rows)


def repair_content(repair: Repair | UserError | None, session: LabSession) -> Content:
    """Return a fix, why it cannot be made, or that it is being made."""
    if not isinstance(repair, Repair):
        return safe_content(str(repair)) if repair else safe_content(FIX_FOLLOWS, "$muted")
    return join_lines(
        *map(safe_content, repair_title_lines(repair, session.directory)),
        *map(diff_line, repair_diff(repair, session.directory).splitlines()),
        *map(safe_content, repair_advice_lines(repair)),
    )


def _plain(lines: Sequence[str]) -> Content:
    return join_lines(*map(safe_content, lines))
