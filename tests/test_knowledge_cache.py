"""The knowledge that is kept between starts is the one that the files say, always."""

from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.knowledge_cache import load_knowledge
from ddpwizard.app.system import paths
from ddpwizard.knowledge.loader import read_knowledge
from helpers.command import loaded_modules

ENTRY = """\
id: odd-cause
title: An odd cause
family: hang
summary: Something odd.
symptoms: [it is odd]
explain: It is odd.
fixes: [{id: mend, kind: text, title: Mend it}]
verify: {probe: limits}
holds_for: {torch: ">=2.1"}
sources: [{title: A page, url: "https://example.org", checked: "2.13"}]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_second_reading_says_the_same():
    first = load_knowledge()
    kept = list(paths.cache_dir().glob("*.msgpack"))
    assert len(kept) == 1
    assert load_knowledge() == first == read_knowledge()


def test_the_second_reading_needs_no_yaml():
    read = "from ddpwizard.app.knowledge_cache import load_knowledge; load_knowledge()"
    assert "yaml" in loaded_modules(read)
    assert "yaml" not in loaded_modules(read)


def test_a_changed_entry_is_read_anew(tmp_path: Path):
    path = tmp_path / "odd-cause.yaml"
    path.write_text(ENTRY)
    assert load_knowledge(tmp_path).causes["odd-cause"].title == "An odd cause"
    path.write_text(ENTRY.replace("An odd cause", "Another title"))
    assert load_knowledge(tmp_path).causes["odd-cause"].title == "Another title"
    assert len(list(paths.cache_dir().glob("*.msgpack"))) == 1, "and takes the place of what was kept"


def test_a_persons_own_entries_are_taken_by_themselves():
    team = paths.team_knowledge_dir()
    team.mkdir(parents=True)
    (team / "odd-cause.yaml").write_text(ENTRY)
    assert "odd-cause" in load_knowledge().causes


def test_what_is_kept_may_be_damaged():
    whole = load_knowledge()
    (kept,) = paths.cache_dir().glob("*.msgpack")
    for content in (b"", b"nonsense", kept.read_bytes()[:-10], msgspec.msgpack.encode({"seal": b"", "known": 1})):
        kept.write_bytes(content)
        assert load_knowledge() == whole


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_knowledge().causes


def test_a_wrong_entry_is_told_with_file_and_line(tmp_path: Path):
    (tmp_path / "odd-cause.yaml").write_text(ENTRY.replace("hang", "hung"))
    with pytest.raises(UserError, match=r"odd-cause\.yaml:3"):
        load_knowledge(tmp_path)
