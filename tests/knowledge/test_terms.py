"""The terms: two sentences each, found by one spelling only, with a chapter and causes that exist."""

import re
from pathlib import Path

import pytest
from ddpwizard.app.text.suggestions import normalise
from ddpwizard.knowledge.chapters import chapter_ids
from ddpwizard.knowledge.loader import read_knowledge, read_valid_knowledge
from ddpwizard.knowledge.yaml_file import KnowledgeError
from helpers.built_in_knowledge import built_in_knowledge
from test_language import PATTERN

KNOWLEDGE = built_in_knowledge()
SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
TERM = """\
odd thing:
  text: A thing that is odd. It is seldom met.
  chapter: ranks
  causes: [port-in-use]
  also: [strange thing]
"""


def test_there_are_terms_on_every_chapter():
    assert len(KNOWLEDGE.terms) >= 90
    assert {term.chapter for term in KNOWLEDGE.terms.values()} == chapter_ids()


@pytest.mark.parametrize("name", KNOWLEDGE.terms)
def test_term_is_two_sentences(name: str):
    text = KNOWLEDGE.terms[name].text
    assert len(SENTENCE_END.findall(text)) == 2, text
    assert len(text) <= 300
    assert not PATTERN.findall(text)


def test_spelling_leads_to_one_term_and_to_no_other_entry():
    taken = {*KNOWLEDGE.causes, *map(str.lower, KNOWLEDGE.rules), *chapter_ids()}
    found: dict[str, str] = {}
    for name, term in KNOWLEDGE.terms.items():
        for spelling in (name, *term.also):
            assert found.setdefault(normalise(spelling), name) == name, spelling
            assert spelling.lower() not in taken, spelling


def test_a_team_adds_a_term_and_a_chapter(tmp_path: Path):
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "ours.yaml").write_text("order: 20\ntitle: Ours\nsummary: Ours.\npages: [Ours.]\n")
    (tmp_path / "terms.yaml").write_text(TERM.replace("chapter: ranks", "chapter: ours"))
    terms = read_knowledge(tmp_path).terms
    assert terms["odd thing"].also == ["strange thing"]
    assert KNOWLEDGE.terms.keys() < terms.keys()


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("chapter: ranks", "chapter: no-such", 3, "no chapter 'no-such'"),
        ("[port-in-use]", "[port-in-use, no-such]", 4, "no cause 'no-such'"),
        ("also:", "as:", 5, "as"),
        ("  chapter: ranks\n", "", 1, "chapter"),
    ],
)
def test_error_is_reported_with_file_and_line(old: str, new: str, line: int, problem: str, tmp_path: Path):
    path = tmp_path / "terms.yaml"
    path.write_text(TERM.replace(old, new))
    with pytest.raises(KnowledgeError) as caught:
        read_knowledge(tmp_path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert problem in caught.value.problem
    knowledge, problems = read_valid_knowledge(tmp_path)
    assert knowledge.terms == KNOWLEDGE.terms
    assert [each.path for each in problems] == [path]
