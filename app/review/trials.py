"""Trials of the patches of one file: the rules are run on the patched text, once for patches that all pass.

The text has to parse, the findings of the patches have to be gone, no new finding may appear, and no unbound name may
be read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from ..errors import UserError
from .patches.apply_edits import OverlappingEdits, apply_edits
from .rule_context import Patch, Script, Violation
from .rules import locked_collectives

MOST_TRIED = 25  # patches of one file
NOT_TRIED = f"was not tried: {MOST_TRIED} of this file were; make those, then review it again"

Found = list[tuple[str, Violation]]  # with their rules


class Candidate(NamedTuple):
    """A patch, and the finding that it is to fix."""

    rule: str
    violation: Violation
    patch: Patch


def try_patches(
    candidates: Sequence[Candidate], script: Script, found: Found, detect: Callable[[Script, Iterable[str]], Found]
) -> list[str]:
    """Return why each patch fails, "" where it does not.

    ``found``: the findings before. ``detect`` finds those after patches for findings of some rules.
    """
    tried = candidates[:MOST_TRIED]
    problems = _Trials(script, found, detect).problems(tried)
    return problems + [NOT_TRIED] * (len(candidates) - len(tried))


class _Trials:
    """Trials of the patches of one file: of all together, and of halves where that fails."""

    def __init__(self, script: Script, found: Found, detect: Callable[[Script, Iterable[str]], Found]) -> None:
        self.script, self.found, self.detect = script, found, detect

    @cached_property
    def before(self) -> Counter[tuple[str, str]]:
        """The findings before a patch."""
        return _keys(self.script, self.found)

    @cached_property
    def unbound(self) -> set[str]:
        """The names that are not bound before a patch."""
        return self.script.names.unresolved()

    def problems(self, candidates: Sequence[Candidate]) -> list[str]:
        """Return why each patch fails, "" where it does not."""
        if not candidates:
            return []
        problem = self._problem(candidates)
        if not problem or len(candidates) == 1:
            return [problem] * len(candidates)
        half = len(candidates) // 2
        return self.problems(candidates[:half]) + self.problems(candidates[half:])

    def _problem(self, candidates: Sequence[Candidate]) -> str:
        """Return why patches fail that are made together, "" if they do not."""
        try:
            after = apply_edits(self.script.source.text, [edit for each in candidates for edit in each.patch.edits])
            result = Script(after, self.script.source.path)
        except OverlappingEdits as error:
            return f"was tried and is not offered: {error}"
        except UserError as error:
            return f"was tried and is not offered: {error.message}"
        if unbound := result.names.unresolved() - self.unbound:
            return f"was tried and is not offered: it would read {', '.join(sorted(unbound))}, which is not bound"
        if len(locked := locked_collectives.in_text(result)) > len(locked_collectives.in_text(self.script)):
            return f"was tried and is not offered: it would communicate under the lock of line {locked[-1]}"
        left = _keys(result, self.detect(result, {each.rule for each in candidates}))
        result.forget()
        fixed = _keys(self.script, [(each.rule, each.violation) for each in candidates])
        if any(left[key] > self.before[key] - count for key, count in fixed.items()):
            return "was tried and is not offered: the finding would stay"
        if new := sorted(key[0] for key in left if left[key] > self.before[key]):
            return f"was tried and is not offered: it would cause {new[0]}"
        return ""


def _keys(script: Script, found: Iterable[tuple[str, Violation]]) -> Counter[tuple[str, str]]:
    """Return how many findings have each rule and line of code, which do not change when the line moves."""
    return Counter((rule, script.source.line(each.line).strip()) for rule, each in found)
