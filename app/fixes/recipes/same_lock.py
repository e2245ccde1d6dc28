"""``same-lock``: a lock that a thread waits for while it holds it becomes one that a thread may take again."""

import ast

from ...training_script.frame import StackFrame
from ...training_script.syntax import last_name
from ...triage.rank_activity.frames import user_frames
from ..facts import CaseFacts
from ..types import Place
from ..user_code import UserFile
from .types import RecipeResult


def same_lock(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the line that makes the lock, if the stack shows that its holder waits for it."""
    report = facts.context.report
    culprits = set(report.verdict.culprits) if report else set()
    for seen in report.observed.seen if report else []:
        if seen.process.rank in culprits and seen.samples:
            frames = user_frames(seen.samples[-1].stack)
            if held := _held_twice(facts, frames):
                return _reentrant(facts, held, frames)
    return RecipeResult()


def _held_twice(facts: CaseFacts, frames: list[StackFrame]) -> str:
    """Return the name of the lock that the innermost frame waits for inside of a block that holds it, or ""."""
    inner = facts.file_as_started(frames[-1].path) if frames else None
    wanted = _locks(inner, frames[-1].line, first_line=True) if inner else set()
    for frame in frames[:-1]:
        file = facts.file_as_started(frame.path)
        held = wanted & _locks(file, frame.line, first_line=False) if file else set()
        if held and frame.path == frames[-1].path:
            return min(held)
    return ""


def _locks(file: UserFile, line: int, *, first_line: bool) -> set[str]:
    """Return the expressions of the ``with`` statements that begin at a line, or whose block contains it."""
    found: set[str] = set()
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.With):
            begins = node.lineno == line
            contains = node.lineno < line <= (node.end_lineno or node.lineno)
            if begins if first_line else contains:
                found |= {ast.unparse(item.context_expr) for item in node.items}
    return found


def _reentrant(facts: CaseFacts, held: str, frames: list[StackFrame]) -> RecipeResult:
    file = facts.file_as_started(frames[-1].path)
    places = [facts.place(f"{frame.path}:{frame.line}", f"takes {held}") for frame in frames[-2:]]
    shown: list[Place] = [place for place in places if place]
    for node in ast.walk(file.source.tree) if file else []:
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=made, args=[], keywords=[])) if (
                file and ast.unparse(target) == held and last_name(made) == "Lock"
            ):
                if isinstance(made, ast.Name):  # its import would have to change as well
                    return RecipeResult(places=shown)
                edit = file.source.replace(made, f"{file.source.code(made).removesuffix('Lock')}RLock")
                patch = file.patched([edit])
                return RecipeResult(patches=[patch], places=shown)
    return RecipeResult(places=shown)
