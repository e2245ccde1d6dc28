"""The loader is strict: every error in an entry is reported with file and line."""

import functools
import os
from pathlib import Path

import pytest
from ddpwizard.knowledge import loader
from ddpwizard.knowledge.loader import read_knowledge, read_valid_knowledge
from ddpwizard.knowledge.yaml_file import KnowledgeError

ENTRY = """\
id: odd-cause
title: An odd cause
family: hang
summary: Something odd.
symptoms: [it is odd]
explain: |
  It is odd.
findings: {limits.shm-small: strong}
questions: {symptom: {hangs: weak}}
signatures:
  - {pattern: "odd thing \\\\d+", literal: "odd thing", weight: strong}
fixes:
  - {id: repair, kind: text, title: Repair it}
verify: {probe: limits, gone: [limits.shm-small]}
holds_for: {torch: ">=2.1"}
sources: [{title: A page, url: "https://example.org", checked: "2.13"}]
"""


convert_once = functools.cache(loader.convert)


@pytest.fixture(autouse=True)
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse each file of the built-in base once for all tests here; links and patterns are checked in each test."""
    monkeypatch.setattr(loader, "convert", convert_once)


def write(directory: Path, text: str, name: str = "odd-cause.yaml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_the_built_in_base_holds_together():
    knowledge = read_knowledge(thorough=True)
    assert knowledge.causes
    assert {"DW101", "DW202", "DW409", "DW501"} < set(knowledge.rules)


def test_a_team_adds_a_cause_with_one_file(tmp_path: Path):
    write(tmp_path, ENTRY)
    assert read_knowledge(tmp_path).causes["odd-cause"].title == "An odd cause"


def test_difference_in_one_entry_is_in_both(tmp_path: Path):
    difference = "tells_apart: {port-in-use: there a port is taken; here it is odd}\nfindings:"
    write(tmp_path, ENTRY.replace("findings:", difference, 1))
    causes = read_knowledge(tmp_path).causes
    assert causes["port-in-use"].tells_apart["odd-cause"] == "there it is odd; here a port is taken"
    assert causes["odd-cause"].tells_apart["port-in-use"] == "there a port is taken; here it is odd"


def test_group_of_phrases_means_each_of_them(tmp_path: Path):
    write(tmp_path, "odd-group: [odd thing, strange thing]\n", name="phrases.yaml")
    clue = "clues: [{all: [$odd-group|weird, $deepspeed], why: It is odd.}]\nfindings:"
    write(tmp_path, ENTRY.replace("findings:", clue, 1))
    knowledge = read_knowledge(tmp_path)
    first, second = knowledge.causes["odd-cause"].clues[0].all
    assert first == "odd thing|strange thing|weird" and "zero-3" in second.split("|")
    assert {"odd thing", "strange thing"} <= knowledge.stems.keys()


def test_group_within_a_phrase_means_the_phrase_with_each_of_its_phrases(tmp_path: Path):
    write(tmp_path, "odd: [odd, strange]\nthing: [thing, case]\n", name="phrases.yaml")
    write(tmp_path, ENTRY.replace("findings:", "clues: [{all: [$odd $thing here|weird], why: Odd.}]\nfindings:", 1))
    (term,) = read_knowledge(tmp_path).causes["odd-cause"].clues[0].all
    assert term.split("|") == ["odd thing here", "odd case here", "strange thing here", "strange case here", "weird"]


@pytest.mark.parametrize("name", ["in_scope_words.yaml", "scope.yaml"])
def test_a_team_adds_words_under_either_file_name(name: str, tmp_path: Path):
    write(tmp_path, "- oddword\n", name=name)
    assert "oddword" in read_knowledge(tmp_path).in_scope_words


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("summary: Something odd.", "sumary: Something odd.", 4, "sumary"),
        ("weight: strong}", "weight: huge}", 11, "huge"),
        ("family: hang", "family: hung", 3, "hung"),
        ("limits.shm-small: strong", "limits.shm-tiny: strong", 8, "limits.shm-tiny"),
        ("{symptom: {hangs: weak}}", "{symptoms: {hangs: weak}}", 9, "symptoms"),
        ("{hangs: weak}", "{hung: weak}", 9, "hung"),
        ("{hangs: weak}", "{hangs: weak, unsure: weak}", 9, "no evidence"),
        ("symptoms: [it is odd]", "symptoms: [it is odd, 1.10]", 5, "float"),
        ("id: odd-cause", "id: Odd_Cause", 1, "Odd_Cause"),
        ("id: odd-cause", "id: other-cause", 1, "file name"),
        ("odd thing \\\\d+", "odd thing (", 11, "invalid regular expression"),
        ("odd thing \\\\d+", "odd thing (a+)+$", 11, "a repeat inside a repeat"),
        ('literal: "odd thing"', 'literal: "od"', 11, "too short"),
        ("verify: {probe: limits", "verify: {probe: limit", 14, "limit"),
        ("kind: text,", "kind: patch,", 13, "review rule"),
        ("kind: text,", "kind: text, safety: unsafe,", 13, "why_unsafe"),
        ("holds_for:", "see_also: [no-such]\nholds_for:", 15, "no-such"),
        ("findings:", "clues: [{all: [$no-such], why: It is odd.}]\nfindings:", 8, "$no-such"),
        ("findings:", "clues: [{all: [odd]}]\nfindings:", 8, "why"),
        ("title: An odd cause", "title: An odd cause\ntitle: Twice", 3, "duplicated"),
        ("title: An odd cause", "yes: An odd cause", 2, "quote it"),
        ("title: An odd cause", "title: 'An odd cause", 18, ""),
    ],
)
def test_error_is_reported_with_file_and_line(tmp_path: Path, old: str, new: str, line: int, says: str):
    assert old in ENTRY
    path = write(tmp_path, ENTRY.replace(old, new, 1))
    with pytest.raises(KnowledgeError) as caught:
        read_knowledge(tmp_path)
    assert caught.value.path == path
    assert says in caught.value.problem
    if says:
        assert caught.value.line == line, str(caught.value)


def test_text_that_is_not_utf8_is_reported(tmp_path: Path):
    (tmp_path / "odd-cause.yaml").write_bytes(b"title: \xff\xfe")
    with pytest.raises(KnowledgeError):
        read_knowledge(tmp_path)


def test_no_tag_can_build_an_object(tmp_path: Path):
    write(tmp_path, ENTRY.replace("An odd cause", "!!python/object/apply:os.system [true]"))
    with pytest.raises(KnowledgeError):
        read_knowledge(tmp_path)


def test_the_version_changes_with_the_content(tmp_path: Path):
    write(tmp_path, ENTRY)
    before = read_knowledge(tmp_path).version
    write(tmp_path, ENTRY.replace("Something odd.", "Something odder."))
    assert read_knowledge(tmp_path).version != before


def test_invalid_entries_are_left_out_and_the_valid_ones_stay(tmp_path: Path):
    write(tmp_path, ENTRY)
    broken = [
        write(tmp_path, "id: x\n", name="bad.yaml"),
        write(tmp_path, ENTRY.replace("id: odd-cause", "id: other-cause\nsee_also: [bad]"), name="other-cause.yaml"),
        write(tmp_path, "[" * 100_000, name="deep.yaml"),
        tmp_path / "endless.yaml",
        tmp_path / "pipe.yaml",
    ]
    broken[3].symlink_to("/dev/zero")
    os.mkfifo(broken[4])
    knowledge, problems = read_valid_knowledge(tmp_path)
    assert {problem.path for problem in problems} == set(broken)
    assert "odd-cause" in knowledge.causes
    assert not knowledge.causes.keys() & {"x", "other-cause"}


def test_shared_file_that_contradicts_built_in_entries_is_left_out(tmp_path: Path):
    write(tmp_path, ENTRY)
    shared = write(
        tmp_path, "symptom:\n  text: What?\n  why: So.\n  answers: {hangs: It hangs}\n", name="questions.yaml"
    )
    knowledge, problems = read_valid_knowledge(tmp_path)
    assert [problem.path for problem in problems] == [shared]
    assert "odd-cause" in knowledge.causes and len(knowledge.questions["symptom"].answers) > 1
