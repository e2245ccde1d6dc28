"""Every topic has an entry, and COVERAGE.md lists it."""

import json
from pathlib import Path

import pytest
from ddpwizard import knowledge as package
from ddpwizard.app.diagnosis.coverage import causes_without_lab, coverage_table, topic_coverage
from ddpwizard.knowledge.labs import read_labs
from ddpwizard.knowledge.quiz import read_quiz
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard

KNOWLEDGE = built_in_knowledge()
LABS = read_labs()
QUIZ = read_quiz()
COVERED = {each.topic: each for each in topic_coverage(KNOWLEDGE, LABS, QUIZ)}


@pytest.mark.parametrize("topic", KNOWLEDGE.topics)
def test_a_topic_has_an_entry(topic: str):
    assert COVERED[topic].entries


@pytest.mark.parametrize("topic", KNOWLEDGE.topics)
def test_a_topic_has_a_lab_or_the_reason_why_not(topic: str):
    covered = COVERED[topic]
    assert bool(covered.labs or covered.logs) != bool(covered.no_lab)


def test_a_cause_without_a_lab_gives_the_reason():
    assert all(causes_without_lab(KNOWLEDGE, LABS).values())


def test_a_topic_has_the_labs_rules_and_checks_of_its_entries():
    covered = COVERED["D3"]
    assert (covered.entries, covered.labs, covered.logs) == (["local-rank-device"], [], ["local-rank-device"])
    assert "DW101" in covered.rules and "gpus" in covered.checks


def test_a_topic_has_the_quiz_logs_of_its_causes():
    assert COVERED["D9"].quiz == ["10-the-end-of-an-epoch"]
    assert {item.cause for item in QUIZ} <= {*KNOWLEDGE.causes}


def test_the_table_is_the_one_that_is_kept():
    kept = Path(package.__path__[0], "COVERAGE.md").read_text()
    assert kept == coverage_table(KNOWLEDGE, LABS, QUIZ), "ddpwizard kb coverage --write knowledge/COVERAGE.md"


def test_topic_without_an_entry_is_listed(tmp_path: Path):
    (tmp_path / "topics.yaml").write_text("our-own: What our team needs\n")
    done = ddpwizard("kb", "coverage", "--knowledge", str(tmp_path), "--json")
    assert done.returncode == 1
    row = next(row for row in json.loads(done.stdout)["topics"] if row["topic"] == "our-own")
    assert row["entries"] == []
