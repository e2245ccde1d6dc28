"""``agree-on-exit``: one decision of all ranks about leaving a loop that one rank left by a condition of its own."""

import ast

from ...review.patches.agree_on_condition import FLAGS, Flag, agreement, as_number
from ...training_script.held_locks import has_locks, lock_around
from ...training_script.name_resolution import Names
from ...training_script.nodes import unused_name
from ...training_script.syntax import call_argument
from ..facts import CaseFacts
from ..user_code import UserFile
from .types import RecipeResult

ON_CPU = {"gloo", "mpi"}


def agree_on_exit(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the condition that separated the ranks, if it leads out of a loop."""
    report = facts.context.report
    branch = facts.place(report.verdict.branch or "", "the condition") if report else None
    file = facts.file_as_started(branch.path) if branch else None
    if branch is None or file is None:
        return RecipeResult()
    exit_ = _exit_at(file, branch.line)
    names = _module_names(file)
    flag = unused_name(file.source.tree, FLAGS)
    if exit_ is None or names is None or not flag or _is_locked(file, exit_):
        return RecipeResult(places=[branch] if exit_ else [])
    dist, torch = names
    source = file.source
    new = Flag(dist, torch, flag, _device(facts, dist), guarded=False)
    value = as_number(source, exit_.test)
    edits = agreement(source, exit_.lineno, source.indent(exit_.lineno), value, "MAX", new)
    edits.append(source.replace(exit_.test, f"{flag}.item()"))
    patch = file.patched(edits)
    return RecipeResult(patches=[patch], places=[branch])


def _exit_at(file: UserFile, line: int) -> ast.If | None:
    """Return the ``if`` of a line that leaves a loop, where every rank tests it in each round."""
    parents = file.source.parents
    for node in ast.walk(file.source.tree):
        if not isinstance(node, ast.If) or node.lineno != line or node.orelse:
            continue
        if not isinstance(node.body[-1], ast.Break | ast.Return):
            return None
        above = parents.get(node)
        while isinstance(above, ast.With):
            above = parents.get(above)
        return node if isinstance(above, ast.For | ast.While) else None
    return None


def _is_locked(file: UserFile, stmt: ast.If) -> bool:
    """Return whether ranks may come to a statement one after another, so that none may wait there for all."""
    return has_locks(file.source.text) and lock_around(Names(file.source), stmt) is not None


def _module_names(file: UserFile) -> tuple[str, str] | None:
    """Return how the file names ``torch.distributed`` and ``torch``, or None if it imports neither."""
    by_meaning = {meaning: name for name, meaning in file.imports.items()}
    torch = by_meaning.get("torch")
    return (by_meaning.get("torch.distributed", f"{torch}.distributed"), torch) if torch else None


def _device(facts: CaseFacts, dist: str) -> str:
    """Return the argument that puts a tensor where the process group of the script reduces it."""
    given = [call_argument(call, "backend", 0) for _, call in facts.calls(["init_process_group"])]
    backends = {each.value if isinstance(each, ast.Constant) else None for each in given}
    if backends and backends <= ON_CPU:
        return ""
    return (
        ', device="cuda"' if backends == {"nccl"} else f', device="cuda" if {dist}.get_backend() == "nccl" else "cpu"'
    )
