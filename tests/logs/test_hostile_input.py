"""No text makes log analysis fail or become slow."""

import random
import time

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.logs import literal_search
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import GZIP, LogInput
from ddpwizard.app.logs.types import LogAnalysis
from helpers.hostile_logs import ALL_PIECES, EXTREMES, put_together
from helpers.log_reading_knowledge import KNOWLEDGE
from hypothesis import given, settings
from hypothesis import strategies as st

LONG = 10_000_000
MOST_S = 30.0  # on a busy, slow processor: under a tenth of it if idle, hours if the time were quadratic


def read(content: bytes) -> LogAnalysis | None:
    try:
        return analyse_logs([LogInput("/x.log", content=content, size_bytes=len(content))], KNOWLEDGE)
    except UserError:
        assert not content.replace(b"\0", b"").strip() or b"\x1b" in content or content.startswith(GZIP)
        return None


@pytest.mark.parametrize("piece", EXTREMES, ids=repr)
def test_one_line_of_ten_megabytes(piece: bytes):
    content = (piece * (LONG // len(piece) + 1))[:LONG]
    began = time.process_time()
    read(content)
    assert time.process_time() - began < MOST_S


def test_one_rank_per_line():
    content = "".join(f"[rank{n}]: step {n}\n" for n in range(100_000)).encode()
    began = time.process_time()
    read(content)
    assert time.process_time() - began < MOST_S


def test_match_at_the_end_of_a_long_line():
    analysis = read(b"x" * LONG + b" odd thing 1 of 2\n")
    assert analysis
    assert {(item.id, item.where) for item in analysis.evidence} == {("log:odd/0", "/x.log:1")}


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.one_of(st.sampled_from(ALL_PIECES), st.binary(max_size=8)), max_size=60).map(b"".join))
def test_any_mixture_of_pieces_is_analysed(content: bytes):
    analysis = read(content)
    last = content.count(b"\n") + 1
    for item in analysis.evidence if analysis else []:
        assert 1 <= int(item.where.rpartition(":")[2]) <= last


@settings(max_examples=settings().max_examples // 5)
@given(st.integers(0, 1 << 30))
def test_mixture_of_real_lines_is_analysed(seed: int):
    read(put_together(random.Random(seed), 20_000))


@settings(max_examples=settings().max_examples // 5)
@given(st.lists(st.sampled_from(ALL_PIECES), max_size=40).map(b"".join))
def test_block_borders_make_no_difference(content: bytes):
    """The automaton on small slices finds the same evidence as plain searches."""
    whole = read(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literal_search, "SMALL_BYTES", 0)
        patch.setattr(literal_search, "SLICE_BYTES", 64)
        again = read(content)
    assert (whole and whole.evidence) == (again and again.evidence)
