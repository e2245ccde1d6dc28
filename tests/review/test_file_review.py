"""The review of one file when a rule fails."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.review.file_review import review_file, review_or_skip
from ddpwizard.app.review.review import RULES
from ddpwizard.app.review.rule_context import Script, Violation
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import SkippedFile
from helpers.built_in_knowledge import built_in_knowledge


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script for which a rule raises."""

    def fail(script: Script) -> list[Violation]:
        raise KeyError(script.source.path)

    monkeypatch.setitem(RULES, "DW101", fail)
    path = tmp_path / "train.py"
    path.write_text("rank = 1\n")
    return path


def test_rule_that_fails_costs_one_line_in_a_review_of_files(script: Path) -> None:
    result = review_or_skip(script, ReviewSettings(), built_in_knowledge())
    assert isinstance(result, SkippedFile)
    assert result.message == f"{script}: an error of ddpwizard, KeyError"
    assert "traceback is in" in result.next_step


def test_rule_that_fails_is_one_line_for_a_diagnosis_and_the_screens(script: Path) -> None:
    with pytest.raises(UserError, match="an error of ddpwizard, KeyError"):
        review_file(script, built_in_knowledge())


def test_findings_in_the_tests_of_a_project_are_information(tmp_path: Path) -> None:
    code = "import torch\nimport torch.distributed as dist\ntorch.cuda.set_device(dist.get_rank())\n"
    severities: list[str] = []
    for folder in ("tests", "examples"):
        path = tmp_path / "project" / folder / "workers.py"
        path.parent.mkdir(parents=True)
        path.write_text(code)
        severities += [finding.severity for finding in review_file(path, built_in_knowledge())]
    assert severities == ["info", "error"]
