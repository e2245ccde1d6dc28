"""The first and last line of each rank are exact, although most lines of a long text are never read."""

from collections.abc import Iterator

import pytest
from ddpwizard.app.logs import literal_search, read, writers
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import source_of_text
from helpers.log_reading_knowledge import KNOWLEDGE
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "CHUNK_BYTES", 700)
        patch.setattr(literal_search, "AHEAD_BYTES", 200)
        patch.setattr(literal_search, "BACK_BYTES", 50)
        patch.setattr(literal_search, "SMALL_BYTES", 0)
        patch.setattr(writers, "WHOLE_BYTES", 0)
        patch.setattr(writers, "END_BYTES", 150)
        patch.setattr("ddpwizard.app.logs.analyse.read_chunks", _small_chunks)
        yield


def _small_chunks(source: read.LogInput) -> Iterator[bytes]:
    content = source.content or b""
    yield from (content[at : at + 700] for at in range(0, len(content), 700))


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 25)), min_size=2, max_size=30))
def test_first_and_last_line_of_each_rank(runs: list[tuple[int, int]]):
    writers = [rank for rank, count in runs for _ in range(count)]
    text = "".join(f"[rank{rank}]: step {number} loss 0.123\n" for number, rank in enumerate(writers, 1))
    timeline = analyse_logs([source_of_text(text, "/x.log")], KNOWLEDGE).timeline
    assert timeline
    seen = {track.rank or 0: (track.first.line, track.last.line) for track in timeline.attempts[0].tracks}
    lasts = {rank: len(writers) - writers[::-1].index(rank) for rank in writers}
    assert {rank: last for rank, (_, last) in seen.items()} == {rank: lasts[rank] for rank in seen}
    assert writers[-1] in seen
    assert all(writers[first - 1] == rank for rank, (first, _) in seen.items())


def test_rank_that_falls_silent_early_and_rank_that_appears_late():
    filler = "".join(f"[rank{rank}]: step {step} loss 0.1\n" for step in range(30_000) for rank in (0, 1, 2))
    early = "".join(f"[rank3]: step {step}\n[rank0]: step {step}\n" for step in range(20))
    text = early + filler * 4 + "[rank4]: here\n" + filler
    timeline = analyse_logs([source_of_text(text, "/x.log")], KNOWLEDGE).timeline
    assert timeline
    tracks = {track.rank: track for track in timeline.attempts[0].tracks}
    assert (tracks[3].first.line, tracks[3].last.line) == (1, 39)
    assert tracks[0].last.line == text.count("\n") - 2
