"""``nested-collective``: which line to move out of which condition, by the stacks of the ranks."""

import ast
from collections.abc import Sequence

from ...review.side_effects import writes_output
from ...system.paths import relative_to_cwd
from ...text.units import rank_ranges
from ...training_script.control_flow import Guard
from ...training_script.frame import StackFrame
from ...training_script.line_queries import LineQueries, ScriptFiles
from ...training_script.syntax import FUNCTIONS, last_name, nodes_of_body
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
    through = _frames_through(report, branch)
    frames = next(iter(through.values()), [])
    files = ScriptFiles(_texts(facts, report))
    inner = next((at for at, frame in enumerate(frames) if _guard(files, branch, frame)), -1)
    if inner < 0:
        return RecipeResult(places=facts.places(report.verdict.cause or ""))
    file, frame = files[branch.path], frames[inner]
    statement = " ".join(file.statement(frame.line).split())
    condition = file.line(branch.line).strip().rstrip(":")
    collective = report.verdict.collective or "the collective"
    calls = [_place_of_frame(each, files) for each in frames[inner + 1 :]]
    chain = f" It calls {collective} at {calls[-1].shown}." if calls else ""
    ranks = rank_ranges(list(through))
    guard = _guard(files, branch, frame)
    called = frames[inner + 1].function.rpartition(".")[2] if calls else collective
    narrowed = _without_rank(guard, branch, frame, called, file) if guard else None
    if narrowed:
        way_on, code = narrowed
        text = f"{way_on}, so that every rank runs it; today only {_only(ranks)}.{chain}"
        return RecipeResult(text=text, code=code, places=[branch, *calls])
    exits = guard is not None and guard.exits
    way = "above" if exits else "out of"
    text = (
        f"Move line {frame.line} `{statement}` {way} `{condition}` of line {branch.line} in "
        f"{relative_to_cwd(branch.path)}, so that every rank runs it; today only {_only(ranks)}.{chain}"
    )
    text += _needed_assignments(file, branch.line, frame.line) + _writing_function(
        files, frames[inner + 1 :], condition
    )
    moved = Place(path=frame.path, line=frame.line, text=file.line(frame.line).strip(), label="move this line")
    code = "" if exits or guard is None else _example(file, guard, frame.line)
    return RecipeResult(text=text, code=code, places=[branch, moved, *calls])


def _needed_assignments(file: LineQueries, branch: int, line: int) -> str:
    """Return which lines under the condition set what the moved line uses: they have to move with it."""
    condition = next(
        (node for node in ast.walk(file.module) if isinstance(node, ast.If) and node.lineno == branch), None
    )
    names = [node for each in condition.body for node in ast.walk(each)] if condition else []
    names = [node for node in names if isinstance(node, ast.Name)]
    used = {node.id for node in names if node.lineno == line and isinstance(node.ctx, ast.Load)}
    needed = {
        node.id: node.lineno
        for node in names
        if node.id in used and isinstance(node.ctx, ast.Store) and branch < node.lineno < line
    }
    if not needed:
        return ""
    which = ", ".join(f"`{name}` (set in line {at})" for name, at in needed.items())
    return f" It uses {which}: move what sets {'it' if len(needed) == 1 else 'them'} as well."


def _writing_function(files: ScriptFiles, called: Sequence[StackFrame], condition: str) -> str:
    """Return which function on the way to the collective writes: every rank would, if the whole call were moved."""
    for frame in called:
        functions = [
            node
            for node in ast.walk(files[frame.path].module)
            if isinstance(node, FUNCTIONS) and node.lineno <= frame.line <= (node.end_lineno or 0)
        ]
        for function in functions:
            written = next((n for n in nodes_of_body(function) if isinstance(n, ast.Call) and writes_output(n)), None)
            if written:
                return (
                    f" But `{function.name}` also writes (line {written.lineno}), and would on every rank: keep that "
                    f"line under `{condition}`, and only what communicates out of it."
                )
    return ""


def _without_rank(
    guard: Guard, branch: Place, frame: StackFrame, called: str, file: LineQueries
) -> tuple[str, str] | None:
    """Return what to do, and the code, where the condition can do without the rank, and moving a line is not it.

    That is a condition inside of the statement itself (``rank == 0 and f()``), and one term of several that lead past
    the line (``if step % 10 or rank > 0: continue``).
    """
    place = f"line {branch.line} in {relative_to_cwd(branch.path)}"
    if guard.line == frame.line:
        calls = (node for node in ast.walk(file.module) if isinstance(node, ast.Call) and node.lineno == frame.line)
        call = next((node for node in calls if last_name(node.func) == called), None)
        if call is None:
            return None
        return f"Call `{called}` of {place} without the condition `{ast.unparse(guard.test)}`", (
            f"{ast.unparse(call)}    # every rank"
        )
    terms = guard.test.values if isinstance(guard.test, ast.BoolOp) and isinstance(guard.test.op, ast.Or) else []
    own = [term for term in terms if guard.scope.depends_on_rank(term)]
    shared = [term for term in terms if term not in own]
    if not (guard.exits and own and shared):
        return None
    kept, taken = (" or ".join(map(ast.unparse, some)) for some in (shared, own))
    statement = " ".join(file.statement(frame.line).split())
    code = [
        f"if {kept}:",
        "    continue" if guard.how == "continue" else "    ...    # as it was",
        "...",
        f"if not ({taken}):",
        "    ...    # only what prints, logs or writes",
    ]
    return f"Take `{taken}` out of the condition of {place}, before line {frame.line} `{statement}`", "\n".join(code)


def _only(ranks: str) -> str:
    return f"rank {ranks} does" if ranks.isdigit() else "some ranks do"


def _example(file: LineQueries, guard: Guard, line: int) -> str:
    """Return the statements as they should be: the call first, then the test of the rank for what is only output.

    A part of the condition that is the same on every rank (``step % 10 == 0 and rank == 0``) stays around both.
    """
    inner = file.source.indent(line)
    call = [each.removeprefix(inner) for each in file.statement(line).split("\n")]
    terms = guard.test.values if isinstance(guard.test, ast.BoolOp) and isinstance(guard.test.op, ast.And) else []
    shared = [term for term in terms if not guard.scope.depends_on_rank(term)]
    own = [term for term in terms if term not in shared] or [guard.test]
    test = " and ".join(map(ast.unparse, own))
    lines = [f"{call[0]}    # every rank", *call[1:], f"if {test if guard.needs else f'not ({test})'}:"]
    lines += ["    ...    # only what prints, logs or writes"]
    if not shared or not guard.needs:
        return "\n".join(lines)
    return "\n".join([f"if {' and '.join(map(ast.unparse, shared))}:", *(f"    {each}" for each in lines)])


def _frames_through(report: JobReport, branch: Place) -> dict[int, list[StackFrame]]:
    """Return the user's frames, outermost first, of each rank that went through the condition."""
    files = ScriptFiles(report.sources)
    found: dict[int, list[StackFrame]] = {}
    for seen in report.observed.seen:
        stacks = (user_frames(sample.stack) for sample in reversed(seen.samples))
        frames = next((each for each in stacks if any(_guard(files, branch, frame) for frame in each)), None)
        if frames and seen.process.rank is not None:
            found[seen.process.rank] = frames
    return found


def _guard(files: ScriptFiles, branch: Place, frame: StackFrame) -> Guard | None:
    """Return the condition if it decides whether the line of a frame is reached, else None."""
    if frame.path != branch.path:
        return None
    file = files[frame.path]
    guards: Sequence[Guard] = file.guards(frame.line, file.scope(frame.line, frame.function))
    return next((guard for guard in guards if guard.line == branch.line), None)


def _texts(facts: CaseFacts, report: JobReport) -> dict[str, str]:
    return {file.path: file.text for file in facts.files} | report.sources


def _place_of_frame(frame: StackFrame, files: ScriptFiles) -> Place:
    text = files[frame.path].line(frame.line).strip()
    return Place(path=frame.path, line=frame.line, text=text, label=f"called in {frame.function}")
