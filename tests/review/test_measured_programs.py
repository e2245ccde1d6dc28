"""The review of programs whose truth is measured: what it finds in the broken ones, and silence in their twins."""

import shutil
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.types import ReviewFinding
from helpers.measured_programs import PROGRAMS, path_of, read_truth
from helpers.review_snippets import KNOWLEDGE

TRUTH = read_truth()
NEAR = 3  # lines between a finding and the cause
COUNT_FOUND = 174  # at least; raise it with what the rules find


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the programs: in the tests of a project findings are less severe."""
    copied = tmp_path_factory.mktemp("measured")
    for kind in ("broken", "healthy"):
        shutil.copytree(PROGRAMS / kind, copied / kind)
    return copied


def reviewed(program: Path) -> list[ReviewFinding]:
    """Return the errors and warnings in all files of a program."""
    files = sorted(program.glob("*.py")) if program.is_dir() else [program]
    findings = [each for file in files for each in review_file(file, KNOWLEDGE)]
    return [each for each in findings if each.severity != "info"]


@pytest.mark.parametrize("name", [truth.name for truth in TRUTH])
def test_nothing_in_a_program_that_runs(name: str, programs: Path) -> None:
    program = programs / path_of("healthy", name).relative_to(PROGRAMS)
    assert [(each.rule, each.line) for each in reviewed(program)] == []


def test_most_causes_are_found(programs: Path) -> None:
    missed = [
        truth.name
        for truth in TRUTH
        if not any(
            Path(each.path) == programs / "broken" / truth.file and abs(each.line - truth.line) <= NEAR
            for each in reviewed(programs / path_of("broken", truth.name).relative_to(PROGRAMS))
        )
    ]
    assert len(TRUTH) - len(missed) >= COUNT_FOUND, missed
