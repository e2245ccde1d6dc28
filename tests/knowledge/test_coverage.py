"""Every topic of the notes has an entry, and COVERAGE.md says which."""

import json
from pathlib import Path

import pytest
from ddpwizard import knowledge as package
from ddpwizard.app.coverage import covered, markdown
from ddpwizard.knowledge.loader import load
from helpers.command import ddpwizard

KNOWLEDGE = load()


@pytest.mark.parametrize("topic", KNOWLEDGE.topics)
def test_a_topic_has_an_entry(topic: str):
    assert covered(KNOWLEDGE)[topic]


def test_the_table_is_the_one_that_is_kept():
    kept = Path(package.__path__[0], "COVERAGE.md").read_text()
    assert kept == markdown(KNOWLEDGE), "ddpwizard kb coverage --write knowledge/COVERAGE.md"


def test_a_topic_without_an_entry_is_told(tmp_path: Path):
    (tmp_path / "topics.yaml").write_text("our-own: What our team needs\n")
    done = ddpwizard("kb", "coverage", "--knowledge", str(tmp_path), "--json")
    assert done.returncode == 1
    row = next(row for row in json.loads(done.stdout)["topics"] if row["topic"] == "our-own")
    assert row["entries"] == []
