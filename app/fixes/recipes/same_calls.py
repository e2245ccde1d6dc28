"""``same-calls``: the condition that leads the ranks to different collectives, and the call of each."""

import ast
from collections.abc import Iterator, Sequence

from ...text.units import rank_ranges
from ...training_script.line_queries import LineQueries, ScriptFiles, collectives_in
from ..facts import CaseFacts
from ..types import Place
from .types import RecipeResult

SHOWN_CALLS = 3


def same_calls(facts: CaseFacts) -> RecipeResult:
    """Return both calls on every rank if the condition depends on the rank, else the decision taken together."""
    report = facts.context.report
    calls = _calls(facts)
    if report is None and (found := facts.divergences):
        text = f"The review of the script finds the place: {found[0].what}"
        return RecipeResult(text=text, places=[place for item in found if (place := facts.place(item.where))])
    if report is None or len(calls) < 2:
        return RecipeResult()
    files = ScriptFiles({file.path: file.text for file in facts.files} | report.sources)
    branch = facts.place(report.verdict.branch or _branch_between(calls, files), "the condition")
    condition = _condition(files[branch.path], branch.line) if branch else None
    if branch is None or condition is None:
        return RecipeResult()
    test = ast.unparse(condition.test)
    led = [f"{call.label} to `{call.text}` ({call.shown})" for call in calls[:SHOWN_CALLS]]
    text = f"The condition `{test}` at {branch.shown} leads {', '.join(led[:-1])} and {led[-1]}."
    file = files[branch.path]
    scope = file.scope(branch.line, "")
    by_rank = scope.depends_on_rank(condition.test)
    code = _on_every_rank(condition, file) if by_rank else _decided_together(test)
    return RecipeResult(text=text, code=code, places=[branch, *calls])


def _calls(facts: CaseFacts) -> list[Place]:
    """Return the collectives in which the ranks wait, each with its ranks."""
    report = facts.context.report
    ranks: dict[str, list[int]] = {}
    for row in report.ranks if report else []:
        if row.where and row.collective:
            ranks.setdefault(row.where, []).append(row.rank)
    named = ((where, f"rank{'s' * (len(some) > 1)} {rank_ranges(some)}") for where, some in ranks.items())
    return [place for where, who in named if (place := facts.place(where, who))]


def _branch_between(calls: Sequence[Place], files: ScriptFiles) -> str:
    """Return the innermost condition with calls of the ranks in both of its blocks, as ``path:line``, or ""."""
    path = calls[0].path
    lines = [call.line for call in calls if call.path == path]
    found = [
        node.lineno
        for node in ast.walk(files[path].module)
        if isinstance(node, ast.If) and all(any(_within(block, line) for line in lines) for block in _blocks(node))
    ]
    return f"{path}:{max(found)}" if found else ""


def _blocks(condition: ast.If) -> tuple[list[ast.stmt], list[ast.stmt]]:
    return condition.body, condition.orelse


def _within(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def _condition(file: LineQueries, line: int) -> ast.If | None:
    return next((node for node in ast.walk(file.module) if isinstance(node, ast.If) and node.lineno == line), None)


def _on_every_rank(condition: ast.If, file: LineQueries) -> str:
    """Return the statements of both blocks that communicate, in one order and without the condition."""
    first = list(_communicating(condition.body, file))
    rest = [text for text in _communicating(condition.orelse, file) if text not in first]
    return "\n".join(f"{text}    # every rank" for text in (*first, *rest))


def _communicating(block: Sequence[ast.stmt], file: LineQueries) -> Iterator[str]:
    for statement in block:
        if collectives_in([statement], file.module):
            yield ast.unparse(statement).splitlines()[0]


def _decided_together(test: str) -> str:
    return "\n".join(
        [
            f"flag = torch.tensor(float(bool({test})), device=device)",
            "dist.all_reduce(flag, op=dist.ReduceOp.MAX)    # every rank, every step",
            "if flag.item() > 0:    # the same on all ranks",
        ]
    )
