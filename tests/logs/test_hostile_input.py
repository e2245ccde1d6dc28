"""No text makes the log reading fail, or slow."""

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
MOST_S = 30.0  # of a busy and slow processor: a tenth and less on an idle one, hours where it grows with the square


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


def test_one_rank_a_line():
    content = "".join(f"[rank{n}]: step {n}\n" for n in range(400_000)).encode()
    began = time.process_time()
    read(content)
    assert time.process_time() - began < MOST_S


def test_a_hit_at_the_end_of_a_long_line_is_found():
    understood = read(b"x" * LONG + b" odd thing 1 of 2\n")
    assert understood
    assert {(item.id, item.where) for item in understood.evidence} == {("log:odd/0", "/x.log:1")}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(ALL_PIECES), st.binary(max_size=8)), max_size=60).map(b"".join))
def test_any_mixture_is_read(content: bytes):
    understood = read(content)
    last = content.count(b"\n") + 1
    for item in understood.evidence if understood else []:
        assert 1 <= int(item.where.rpartition(":")[2]) <= last


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_mixtures_of_real_lines(seed: int):
    read(put_together(random.Random(seed), 20_000))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(ALL_PIECES), max_size=40).map(b"".join))
def test_where_the_text_is_cut_makes_no_difference(content: bytes):
    """The same evidence with the automaton, in small blocks, as with plain searches in one."""
    whole = read(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literal_search, "SMALL_BYTES", 0)
        patch.setattr(literal_search, "SLICE_BYTES", 64)
        again = read(content)
    assert (whole and whole.evidence) == (again and again.evidence)
