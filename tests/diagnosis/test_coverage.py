"""Every topic has an entry, and COVERAGE.md lists it."""

import json
from pathlib import Path

import pytest
from ddpwizard import knowledge as package
from ddpwizard.app.diagnosis.coverage import coverage_table, entries_by_topic
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard

KNOWLEDGE = built_in_knowledge()


@pytest.mark.parametrize("topic", KNOWLEDGE.topics)
def test_a_topic_has_an_entry(topic: str):
    assert entries_by_topic(KNOWLEDGE)[topic]


def test_the_table_is_the_one_that_is_kept():
    kept = Path(package.__path__[0], "COVERAGE.md").read_text()
    assert kept == coverage_table(KNOWLEDGE), "ddpwizard kb coverage --write knowledge/COVERAGE.md"


def test_topic_without_an_entry_is_listed(tmp_path: Path):
    (tmp_path / "topics.yaml").write_text("our-own: What our team needs\n")
    done = ddpwizard("kb", "coverage", "--knowledge", str(tmp_path), "--json")
    assert done.returncode == 1
    row = next(row for row in json.loads(done.stdout)["topics"] if row["topic"] == "our-own")
    assert row["entries"] == []
