"""Errors in labs: what a description names exists."""

import shutil
from pathlib import Path

import pytest
from ddpwizard.knowledge.labs import problem_of_links, read_labs, read_valid_labs
from ddpwizard.knowledge.quiz import read_quiz
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard

KNOWLEDGE = built_in_knowledge()


def test_built_in_labs_and_questions_are_valid() -> None:
    assert read_valid_labs(KNOWLEDGE)[1] == []
    assert [each.id for each in read_labs().values() if problem_of_links(each, KNOWLEDGE)] == []
    assert len(read_labs()) >= 90 and len(read_quiz()) >= 10


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("cause: rank-paused", "cause: no-such", "no cause 'no-such'"),
        ("fix: take-it-out", "fix: no-such", "neither a fix of rank-paused nor a rule of the review: 'no-such'"),
        ("guesses: [dataloader-stall,", "guesses: [no-such,", "no cause 'no-such'"),
        (
            "hints:\n",
            "edits: [{file: throttle.py, old: absent, new: b}]\nhints:\n",
            "throttle.py has the text to replace 0 times",
        ),
        ("hints:\n", "checks: [{what: w, pattern: '(', value: 1}]\nhints:\n", "invalid regular expression"),
        (
            "hints:\n",
            "checks: [{what: w, pattern: x, value: 1, file: ../x}]\nhints:\n",
            "from the directory of the lab",
        ),
        ("hints:\n", "hint:\n", "hint"),
        ("failure: hang", "failure: measure", "has a question"),
        ("fix: take-it-out", "plot: {title: t, y: s, pattern: '(?P<y>.)'}", "the pattern needs y, and x or label"),
    ],
)
def test_error_is_reported_with_its_file(old: str, new: str, problem: str, tmp_path: Path) -> None:
    lab = tmp_path / "labs" / "ours"
    shutil.copytree(read_labs()["throttled-rank"].directory, lab)
    assert read_valid_labs(KNOWLEDGE, tmp_path)[1] == []
    text = (lab / "lab.yaml").read_text()
    assert old in text
    (lab / "lab.yaml").write_text(text.replace(old, new))
    found = read_valid_labs(KNOWLEDGE, tmp_path)[1]
    assert [each.path for each in found] == [lab / "lab.yaml"] and problem in str(found[0])


def test_kb_check_reports_them(tmp_path: Path) -> None:
    path = tmp_path / "quiz" / "odd.yaml"
    path.parent.mkdir()
    path.write_text("title: One\nranks: 2\nfirst: 2\nwhy: It says so.\nlog: |\n  [rank1]: KeyError\n")
    done = ddpwizard("kb", "check", str(tmp_path))
    assert done.returncode == 1 and f"{path}:3: the job has the ranks 0 to 1" in done.stdout
