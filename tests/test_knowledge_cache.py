"""The cached knowledge always equals what the files contain."""

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
fixes: [{id: repair, kind: text, title: Repair it}]
verify: {probe: limits}
holds_for: {torch: ">=2.1"}
sources: [{title: A page, url: "https://example.org", checked: "2.13"}]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_cached_knowledge_equals_the_files():
    first = load_knowledge()
    cached = list(paths.cache_dir().glob("*.msgpack"))
    assert len(cached) == 1
    assert load_knowledge() == first == read_knowledge()


def test_cached_knowledge_is_loaded_without_yaml():
    read = "from ddpwizard.app.knowledge_cache import load_knowledge; load_knowledge()"
    assert "yaml" in loaded_modules(read)
    assert "yaml" not in loaded_modules(read)


def test_changed_entry_is_read_again(tmp_path: Path):
    path = tmp_path / "odd-cause.yaml"
    path.write_text(ENTRY)
    assert load_knowledge(tmp_path).causes["odd-cause"].title == "An odd cause"
    path.write_text(ENTRY.replace("An odd cause", "Another title"))
    assert load_knowledge(tmp_path).causes["odd-cause"].title == "Another title"
    assert len(list(paths.cache_dir().glob("*.msgpack"))) == 1, "the new cache file replaces the old one"


def test_team_entries_are_loaded_by_default():
    team = paths.team_knowledge_dir()
    team.mkdir(parents=True)
    (team / "odd-cause.yaml").write_text(ENTRY)
    assert "odd-cause" in load_knowledge().causes


def test_damaged_cache_is_rebuilt():
    expected = load_knowledge()
    (cached,) = paths.cache_dir().glob("*.msgpack")
    for content in (
        b"",
        b"nonsense",
        cached.read_bytes()[:-10],
        msgspec.msgpack.encode({"fingerprint": b"", "knowledge": 1}),
        b"\x81\xa1z" + b"\x91" * 5000,
    ):
        cached.write_bytes(content)
        assert load_knowledge() == expected


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_knowledge().causes


def test_invalid_entry_is_left_out_and_named_also_from_the_cache(tmp_path: Path):
    (tmp_path / "odd-cause.yaml").write_text(ENTRY.replace("hang", "hung"))
    for _ in range(2):
        knowledge = load_knowledge(tmp_path)
        assert knowledge.causes and "odd-cause" not in knowledge.causes
        assert [problem.startswith(f"{tmp_path}/odd-cause.yaml:3: ") for problem in knowledge.left_out] == [True]


def test_missing_directory_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="no such directory"):
        load_knowledge(tmp_path / "none")
