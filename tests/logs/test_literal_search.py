"""Literals are found in texts of any size, wherever the chunks are cut."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.logs import literal_search, read
from ddpwizard.app.logs.literal_search import LiteralScanner, TextBlock, overlapping_blocks
from hypothesis import given, settings
from hypothesis import strategies as st

WORDS = [b"NCCL", b"CCL WARN", b"NCCL WARN x", b"odd thing", b"zzzz"]


def cut(text: bytes, size: int) -> Iterator[bytes]:
    yield from (text[at : at + size] for at in range(0, len(text), size))


def all_places(text: bytes, scanner: LiteralScanner, size: int) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for block, places in scanner.look_ahead(overlapping_blocks(cut(text, size))):
        for literal, here in places.items():
            found.setdefault(literal, []).extend(block.offset + at for at in here)
    return found


def naive(text: bytes, literal: bytes) -> list[int]:
    return [at for at in range(len(text)) if text.startswith(literal, at)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal_search, "AHEAD_BYTES", 40)
    monkeypatch.setattr(literal_search, "BACK_BYTES", 10)
    monkeypatch.setattr(literal_search, "SMALL_BYTES", 0)
    monkeypatch.setattr(literal_search, "SLICE_BYTES", 32)
    monkeypatch.setattr(literal_search, "FREQUENT", 10_000)


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, b"\n", b" ", b"x", b"NC"]), max_size=120).map(b"".join), st.integers(1, 90))
def test_matches_at_block_borders_are_found(text: bytes, size: int):
    found = all_places(text, LiteralScanner(WORDS), size)
    assert found == {word: naive(text, word) for word in WORDS if word in text}


def test_small_text_needs_no_automaton():
    scanner = LiteralScanner(WORDS)
    assert all_places(b"an odd thing\n", scanner, 100) == {b"odd thing": [3]}
    assert scanner._automaton is None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([b"line\n", b"\n", b"a long line without an end "]), max_size=200).map(b"".join), st.data()
)
def test_block_line_numbers(text: bytes, data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literal_search, "AHEAD_BYTES", 50)
        patch.setattr(literal_search, "BACK_BYTES", 20)
        patch.setattr(literal_search, "STRIPE_BYTES", 16)
        for block in overlapping_blocks(cut(text, data.draw(st.integers(1, 120)))):
            for at in range(len(block.data)):
                assert block.number(at) == text.count(b"\n", 0, block.offset + at) + 1


def test_frequent_literal_is_found_at_both_ends_and_hides_no_other():
    text = b"NCCL INFO chatter\n" * 300_000 + b"odd thing\n" + b"NCCL INFO chatter\n" * 300_000
    found = all_places(text, LiteralScanner(WORDS), read.CHUNK_BYTES)
    assert found[b"odd thing"] == [18 * 300_000]
    assert found[b"NCCL"][0] == 0
    assert found[b"NCCL"][-1] == len(text) - 18
    assert len(found[b"NCCL"]) < 4000


def test_literal_that_becomes_rare_returns_to_the_automaton():
    text = b"NCCL INFO chatter\n" * 200_000 + b"quiet line here\n" * 600_000 + b"NCCL at last\n" + b"end\n" * 3_000_000
    scanner = LiteralScanner(WORDS)
    found = all_places(text, scanner, 1 << 20)
    assert 200_000 * 18 + 600_000 * 16 in found[b"NCCL"]
    assert scanner._frequent == set()


def test_literal_can_be_watched_and_forgotten_while_scanning():
    scanner = LiteralScanner(WORDS)
    parts = [b"quiet line here\n" * 100_000 for _ in range(6)]
    parts[5] += b"[rank7]: again\n"
    seen: list[int] = []
    for block, found in scanner.look_ahead(overlapping_blocks(parts)):
        if block.offset == 0:
            scanner.watch(b"[rank7]")
        seen += [block.offset + at for at in found.get(b"[rank7]", [])]
    assert seen == [6 * 16 * 100_000]
    scanner.forget(b"[rank7]")
    assert all_places(b"[rank7]" * 100, scanner, 100) == {}


def test_gzip_is_read_in_chunks(tmp_path: Path):
    import gzip

    text = b"a line of log\n" * 1_000_000
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(text, 1))
    (source,) = read.find_sources([str(path)])
    chunks = list(read.read_chunks(source))
    assert b"".join(chunks) == text
    assert max(map(len, chunks)) <= read.CHUNK_BYTES


def test_blocks_cover_the_text_and_only_the_last_is_marked_last():
    parts = list(overlapping_blocks(cut(b"x" * 99 + b"\n" + b"y" * 9_999_900, 1 << 20)))
    assert parts[-1].last and not any(isinstance(part, TextBlock) and part.last for part in parts[:-1])
    assert all(part.end - part.begin > 0 for part in parts)
    assert sum(part.end - part.begin for part in parts) == 10_000_000
