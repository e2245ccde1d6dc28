"""Trials of the patches of one file: together as long as all pass, and each that fails by itself."""

from collections.abc import Iterable

import pytest
from ddpwizard.app.review.rule_context import Patch, Script, Violation
from ddpwizard.app.review.trials import MOST_TRIED, Candidate, Found, try_patches
from ddpwizard.app.training_script.edits import Edit


class _Trials:
    """Patches of lines ``bad = …`` of a script, tried with a rule that finds these lines."""

    def __init__(self, text: str) -> None:
        self.script, self.analysed = Script(text, "train.py"), 0

    def run(self, *edits: tuple[str, str]) -> list[str]:
        """Return the problems of patches that each replace one text by another."""
        text = self.script.source.text
        found = self._detect(self.script, [])
        by_line = {each[1].line: each for each in found}
        candidates: list[Candidate] = []
        for old, new in edits:
            start = text.index(old)
            patch = Patch(id="x", safety="safe", edits=[Edit(start, start + len(old), new)])
            candidates.append(Candidate(*by_line[text.count("\n", 0, start) + 1], patch))
        self.analysed = 0
        return try_patches(candidates, self.script, found, self._detect)

    def _detect(self, script: Script, rules: Iterable[str]) -> Found:
        self.analysed += 1
        lines = enumerate(script.source.text.split("\n"), 1)
        return [
            (kind, Violation(line=number, column_bytes=1, end_line=number, message="m", confidence=1.0))
            for number, line in lines
            for kind in ("bad", "worse")
            if line.startswith(f"{kind} = ")
        ]


FOUR = "".join(f"bad = {n}\n" for n in range(4))


def test_patches_that_all_pass_take_one_analysis() -> None:
    trials = _Trials(FOUR)
    assert trials.run(*((f"bad = {n}", f"good = {n}") for n in range(4))) == [""] * 4
    assert trials.analysed == 1


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("bad = {}", "the finding would stay"),
        ("worse = {}", "it would cause worse"),
        ("good = nowhere + {}", "it would read nowhere, which is not bound"),
        ("good = (({}", "not valid Python"),
    ],
)
def test_of_several_patches_only_the_one_that_fails_is_refused(which: int, after: str, why: str) -> None:
    edits = [(f"bad = {n}", (after if n == which else "good = {}").format(n)) for n in range(4)]
    problems = _Trials(FOUR).run(*edits)
    assert why in problems[which]
    assert [problem for n, problem in enumerate(problems) if n != which] == [""] * 3


def test_patches_that_overlap_pass_each_by_itself() -> None:
    trials = _Trials("bad = 0\nbad = 1\n")
    assert trials.run(("bad = 0\nbad", "good = 0\nbad"), ("bad = 1", "good = 1")) == ["", ""]
    assert trials.analysed == 2


def test_findings_on_lines_that_are_alike_are_counted() -> None:
    trials = _Trials("bad = 0\nbad = 0\nbad = 0 \n")
    assert trials.run(("bad = 0\nbad = 0\n", "good = 0\nbad = 0\n"), ("bad = 0 ", "good = 0")) == ["", ""]
    first, second = trials.run(("bad = 0\nbad = 0\n", "bad = 0\n\n"), ("bad = 0 ", "bad = 0"))
    assert first == ""
    assert "the finding would stay" in second


def test_number_of_patches_that_are_tried_is_limited() -> None:
    trials = _Trials("".join(f"bad = {n:02}.0\n" for n in range(MOST_TRIED + 2)))
    problems = trials.run(*((f"bad = {n:02}.0", f"good = {n:02}.0") for n in range(MOST_TRIED + 2)))
    assert problems[:MOST_TRIED] == [""] * MOST_TRIED
    assert all(problem.startswith("was not tried") for problem in problems[MOST_TRIED:])
    assert trials.analysed == 1
