"""The review of a migrated script: a decision by data of one rank becomes that of rank 0, any other finding refuses."""

import ast
import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

from ...knowledge_cache import load_knowledge
from ...training_script.nodes import nodes_below
from ...training_script.source import ScriptSource
from ..review import review_text
from ..types import ReviewFinding
from .facts import TrainingFacts
from .helper_code import MIGRATION, HelperCode, taken_names
from .rewriting import Rewriting
from .types import Refusal

BY_DATA = ("DW405", "DW406")
DECIDED = "decided_by_rank_0"
MOST_DECISIONS = 10
FIRST = range(1, 2)  # the line before, of a line that the migrated text does not have
LINE = re.compile(r"\bline (\d+)")


class Migrated(NamedTuple):
    """The text of a script before and after its rewriting, without a byte order mark."""

    before: str
    after: str
    path: str


def without_own_findings(made: Migrated) -> str:
    """Return the migrated text in which the review finds no error and no warning that the script did not have.

    Raises:
        Refusal: A finding is left; names its place in the script.
    """
    known = review_text(made.before, made.path, load_knowledge())
    new = _new_findings(made, known)
    for _ in range(MOST_DECISIONS):
        decided = next((test for each in new if (test := _deciding_test(made.after, each)) is not None), None)
        if decided is None:
            break
        made = made._replace(after=_decide_on_rank_0(made, decided))
        new = _new_findings(made, known)
    for found in new:
        if found.severity != "info":
            origins = _lines_before(made)
            message = _with_lines_before(found.message, origins)
            raise Refusal(origins.get(found.line, FIRST)[0], f"the migrated script would have {found.rule}: {message}")
    return made.after


def _with_lines_before(message: str, origins: dict[int, range]) -> str:
    """Return the message of a finding with the lines of the script before its migration."""
    return LINE.sub(lambda each: f"line {origins.get(int(each[1]), FIRST)[0]}", message)


def _new_findings(made: Migrated, known: Sequence[ReviewFinding]) -> list[ReviewFinding]:
    """Return the findings of the migrated text that its lines did not have before."""
    before = {(each.rule, line) for each in known for line in range(each.line, each.end_line + 1)}
    origins = _lines_before(made)
    return [
        each
        for each in review_text(made.after, made.path, load_knowledge())
        if not any((each.rule, line) in before for line in origins.get(each.line, FIRST))
    ]


def _lines_before(made: Migrated) -> dict[int, range]:
    """Return, for each line of the migrated text, the lines from which it comes, or the one above an added line."""
    old, new = made.before.splitlines(), made.after.splitlines()
    origins: dict[int, range] = {}
    for kind, start, end, to, to_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for line in range(to + 1, to_end + 1):
            first = start + line - to if kind == "equal" else start + 1
            origins[line] = range(first, first + 1 if kind == "equal" else max(first, end) + 1)
    return origins


def _deciding_test(text: str, found: ReviewFinding) -> ast.expr | None:
    """Return the condition of a finding that depends on data of one rank, unless rank 0 decides it already."""
    if found.rule not in BY_DATA:
        return None
    line = found.branch or found.line
    for node in nodes_below(ScriptSource(text, found.path).tree):
        if isinstance(node, (ast.If, ast.While)) and node.lineno == line:
            decides = isinstance(node.test, ast.Call) and ast.unparse(node.test.func).startswith(DECIDED)
            return None if decides else node.test
    return None


def _decide_on_rank_0(made: Migrated, test: ast.expr) -> str:
    """Return the text in which every rank takes the decision of rank 0 for a condition."""
    facts = TrainingFacts(made.after, made.path)
    rewriting = Rewriting(facts, HelperCode({MIGRATION: set()}, {}, taken_names(facts.names) - {DECIDED}))
    place = (test.lineno, test.col_offset)
    own = next(
        node
        for node in nodes_below(facts.source.tree)
        if isinstance(node, ast.expr) and type(node) is type(test) and (node.lineno, node.col_offset) == place
    )
    rewriting.surround(own, f"{rewriting.helpers.name(DECIDED)}(", ")")
    return rewriting.text()
