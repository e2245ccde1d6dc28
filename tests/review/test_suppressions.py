"""Comments that suppress findings."""

import pytest
from ddpwizard.app.review.file_review import review_source
from ddpwizard.app.review.review import apply_patches
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import ReviewFinding
from helpers.review_snippets import KNOWLEDGE, script

UNUSED = "DW001"


def found(text: str, settings: ReviewSettings | None = None) -> list[ReviewFinding]:
    """Return the findings in a text."""
    return review_source(text, "/w/train.py", settings or ReviewSettings(), KNOWLEDGE)[0]


def rules(code: str, settings: ReviewSettings | None = None) -> list[str]:
    """Return the rules of the findings in a snippet."""
    return [finding.rule for finding in found(script(code), settings)]


@pytest.mark.parametrize(
    "code",
    [
        "if dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignore\n",
        "if dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignore[DW401] single rank group\n",
        "if dist.get_rank() == 0:\n    dist.barrier()  # noqa  # DDPWIZARD:ignore[DW401]\n",
        "if dist.get_rank() == 0:\n    # ddpwizard: ignore[dw401]\n    dist.barrier()\n",
        "if dist.get_rank() == 0:\n    # ddpwizard: ignore[DW401]\n    # a reason\n\n    dist.barrier()\n",
        "if dist.get_rank() == 0:\n    dist.all_reduce(\n        x,\n    )  # ddpwizard: ignore[DW401]\n",
    ],
)
def test_comment_on_the_line_or_above_suppresses(code: str) -> None:
    assert rules(code.replace("ddpwizard:", "other:").replace("DDPWIZARD:", "other:")) == ["DW401"]
    assert rules(code) == []


@pytest.mark.parametrize(
    "code",
    [
        "if dist.get_rank() == 0:\n    dist.barrier(); x = '# ddpwizard: ignore'\n",
        "if dist.get_rank() == 0:\n    '''\n    # ddpwizard: ignore\n    '''\n    dist.barrier()\n",
        "if dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignored\n",
    ],
)
def test_text_that_is_no_such_comment_suppresses_nothing(code: str) -> None:
    assert rules(code) == ["DW401"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1  # ddpwizard: ignore\n", "nothing is found on line 4"),
        ("# ddpwizard: ignore[DW401] why\nx = 1\n", "DW401 is not found on line 5"),
        ("x = 1  # ddpwizard: ignore[DW999]\n", "DW999 is no rule"),
        ("x = 1  # ddpwizard: ignore[]\n", "it names no rule"),
    ],
)
def test_comment_without_effect_is_a_finding(code: str, problem: str) -> None:
    (finding,) = found(script(code))
    assert (finding.rule, finding.severity, finding.line) == (UNUSED, "info", 4)
    assert problem in finding.message
    assert script(code).splitlines()[3][finding.column - 1 :].startswith("# ddpwizard")


def test_each_rule_in_brackets_is_judged() -> None:
    code = "if dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignore[DW401, DW203]\n"
    (finding,) = found(script(code))
    assert finding.message == "`# ddpwizard: ignore[DW401, DW203]` has no effect: DW203 is not found on line 5"


def test_rule_that_did_not_run_is_not_judged() -> None:
    code = "x = 1  # ddpwizard: ignore[DW401]\ny = 1  # ddpwizard: ignore\n"
    assert rules(code, ReviewSettings(select=("DW203", UNUSED))) == []
    assert rules(code, ReviewSettings(select=("DW401", UNUSED))) == [UNUSED]
    assert rules(code, ReviewSettings(ignore=(UNUSED,))) == []


def test_severity_of_the_settings_counts() -> None:
    code = "if dist.get_rank() == 0:\n    dist.barrier()\n"
    assert [f.severity for f in found(script(code), ReviewSettings(severity={"DW401": "info"}))] == ["info"]


def test_suppressed_finding_is_not_patched() -> None:
    text = script(
        "if dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignore\nif dist.get_rank() == 0:\n"
        "    dist.barrier()\n"
    )
    after, done = apply_patches(text, found, ["safe", "unsafe"])
    assert len(done) == 1
    assert after.count("    dist.barrier()") == 1
    assert "    dist.barrier()  # ddpwizard: ignore\n" in after


def test_lines_count_with_every_kind_of_newline() -> None:
    code = "x = 1\nif dist.get_rank() == 0:\n    dist.barrier()  # ddpwizard: ignore[DW401]\n"
    for newline in ("\n", "\r\n", "\r"):
        assert found("\ufeff" + script(code).replace("\n", newline)) == []
