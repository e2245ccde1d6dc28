"""Review snippets of scripts in tests."""

import textwrap
from collections.abc import Sequence

from ddpwizard.app.review.review import apply_patches, review_text
from ddpwizard.app.review.types import ReviewFinding
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
IMPORTS = "import os\nimport torch\nimport torch.distributed as dist\n"


def script(code: str) -> str:
    """Return a snippet as a script, with the usual imports before it."""
    return IMPORTS + textwrap.dedent(code)


def apply_fixes(
    text: str, rules: Sequence[str] | None = None, safeties: Sequence[str] = ("safe", "unsafe")
) -> tuple[str, list[ReviewFinding]]:
    """Return a script with the patches of these rules and levels of safety, and the findings that they fixed."""
    return apply_patches(text, lambda changed: review_text(changed, "train.py", KNOWLEDGE, rules), safeties)


def found(code: str, rule: str) -> list[ReviewFinding]:
    """Return the findings of a rule in a snippet."""
    return review_text(script(code), "train.py", KNOWLEDGE, [rule])


def lines(code: str, rule: str) -> list[str]:
    """Return the lines of the findings of a rule, stripped."""
    text = script(code).split("\n")
    return [text[finding.line - 1].strip() for finding in found(code, rule)]


def repaired(code: str, rule: str) -> str:
    """Return the snippet, without its imports, with the patches of a rule applied; no finding may be left."""
    after, _ = apply_fixes(script(code), [rule])
    assert review_text(after, "train.py", KNOWLEDGE, [rule]) == []
    return after.removeprefix(IMPORTS)


def refused(code: str, rule: str) -> str:
    """Return the reason why the only finding of a rule has no patch."""
    (finding,) = found(code, rule)
    assert finding.fix
    assert finding.fix.safety == "display", finding.fix.diff
    assert not finding.fix.edits
    assert finding.fix.why_unsafe
    return finding.fix.why_unsafe
