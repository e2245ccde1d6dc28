"""``nested-collective``: which line to move out of which condition, by the stacks of the ranks."""

from collections.abc import Sequence

from ...system.paths import relative_to_cwd
from ...text.units import rank_ranges
from ...training_script.control_flow import Guard
from ...training_script.frame import StackFrame
from ...training_script.line_queries import LineQueries, ScriptFiles
from ...triage.rank_activity.frames import user_frames
from ...triage.types import JobReport
from ..facts import CaseFacts
from ..types import Place
from .types import RecipeResult


def move_out_of_condition(facts: CaseFacts) -> RecipeResult:
    """Return the statement to move, and the calls that lead from it to the collective."""
    report = facts.context.report
    branch = facts.place(report.verdict.branch or "", "the condition") if report else None
    if report is None or branch is None:
        return RecipeResult()
    frames = _frames_through(report, branch)
    inner = next((at for at, frame in enumerate(frames) if frame.path == branch.path and frame.line >= branch.line), -1)
    if inner < 0:
        return RecipeResult(places=facts.places)
    file = ScriptFiles(_texts(facts, report))[branch.path]
    frame = frames[inner]
    statement = " ".join(file.statement(frame.line).split())
    condition = file.line(branch.line).strip().rstrip(":")
    collective = report.verdict.collective or "the collective"
    if frame.line == branch.line:
        return RecipeResult(places=facts.places)
    calls = [_place(each, ScriptFiles(_texts(facts, report))) for each in frames[inner + 1 :]]
    chain = f" It calls {collective} at {calls[-1].shown}." if calls else ""
    ranks = rank_ranges(report.verdict.culprits) if report.verdict.culprits else ""
    text = (
        f"Move line {frame.line} `{statement}` out of `{condition}` of line {branch.line} in "
        f"{relative_to_cwd(branch.path)}, so that every rank runs it; today only rank {ranks or 'one'} does.{chain} "
        "What only prints, logs or writes a file stays under the condition, after it."
    )
    moved = Place(path=frame.path, line=frame.line, text=file.line(frame.line).strip(), label="move this line out")
    return RecipeResult(text=text, code=_example(file, branch.line, frame.line), places=[branch, moved, *calls])


def _example(file: LineQueries, condition: int, line: int) -> str:
    """Return the two statements as they should be: the call first, then the condition."""
    indent = file.source.indent(condition)
    call = file.statement(line).split("\n")
    inner = file.source.indent(line)
    moved = [indent + each.removeprefix(inner) for each in call]
    lines = [f"{moved[0]}    # every rank", *moved[1:], file.line(condition), f"{inner}...    # rank test: output only"]
    return "\n".join(each.removeprefix(indent) for each in lines)


def _frames_through(report: JobReport, branch: Place) -> list[StackFrame]:
    """Return the user's frames, outermost first, of the first rank that went through the condition."""
    culprits = set(report.verdict.culprits)
    ordered = sorted(report.observed.seen, key=lambda each: each.process.rank not in culprits)
    for seen in ordered:
        for sample in reversed(seen.samples):
            frames = user_frames(sample.stack)
            inside = [frame for frame in frames if frame.path == branch.path]
            if any(_is_under(report, branch, frame) for frame in inside):
                return frames
    return []


def _is_under(report: JobReport, branch: Place, frame: StackFrame) -> bool:
    """Return whether a frame is in the block of the condition."""
    file = ScriptFiles(report.sources)[branch.path]
    scope = file.scope(frame.line, frame.function)
    guards: Sequence[Guard] = file.guards(frame.line, scope)
    return any(guard.line == branch.line for guard in guards)


def _texts(facts: CaseFacts, report: JobReport) -> dict[str, str]:
    return {file.path: file.text for file in facts.files} | report.sources


def _place(frame: StackFrame, files: ScriptFiles) -> Place:
    text = files[frame.path].line(frame.line).strip()
    return Place(path=frame.path, line=frame.line, text=text, label=f"called in {frame.function}")
