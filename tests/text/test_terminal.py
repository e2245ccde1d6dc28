import re
import sys

import pytest
from ddpwizard.app.text.terminal import (
    Verbatim,
    align_columns,
    indented,
    split_at_sequence,
    strip_control,
    strip_sequences,
    strip_sequences_bytes,
    wrap_line,
)
from helpers.command import ddpwizard
from helpers.pseudo_terminal import Terminal
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b[?25lhidden cursor", "hidden cursor"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext\x1b(0", "text"),
        ("\x1b7saved\x1b8", "saved"),
        ("\x1b=keypad\x1b>", "keypad"),
        ("\x1bMx", "x"),
        ("\x1b#8\x1b%Gx", "x"),
        ("\x1bP1$r0m\x1b\\x", "x"),
        ("\x1b_Gf=100;AAAA\x1b\\x", "x"),
        ("\x1bcreset", "reset"),
        ("\u009b1;31mred\u009b0m", "red"),
        ("\x1b]never ends\nx", "never ends\nx"),
        ("no sequence: ě ─ █", "no sequence: ě ─ █"),
    ],
)
def test_control_sequences_are_stripped_from_text_and_bytes(text: str, expected: str) -> None:
    assert strip_sequences(text) == expected
    assert strip_control(text) == expected
    assert strip_sequences_bytes(text.encode()) == expected.encode()


def test_8_bit_csi_byte_is_stripped_but_not_inside_a_character() -> None:
    assert strip_sequences_bytes(b"a\x9b31mred") == b"ared"
    assert strip_sequences_bytes("ěm ě1m".encode()) == "ěm ě1m".encode()


@pytest.mark.parametrize("cut", range(1, 24))
@pytest.mark.parametrize("text", ["ab\x1b[1;31mcd", "ab\x1b]0;title\x07cd", "ab\x1b(Bcd", "ab\x1bP1$r\x1b\\cd"])
def test_sequence_cut_between_two_chunks_is_stripped(text: str, cut: int) -> None:
    data = text.encode()
    first, kept = split_at_sequence(data[:cut])
    assert strip_sequences_bytes(first) + strip_sequences_bytes(kept + data[cut:]) == b"abcd"


@given(st.text(alphabet=st.sampled_from("\x1b\x9b[](;0Bm\x07\\M\nxě"), max_size=40))
def test_text_and_bytes_agree(text: str) -> None:
    assert strip_sequences_bytes(text.encode()).decode() == strip_sequences(text)


def test_strip_control_keeps_newlines_tabs_and_non_breaking_spaces() -> None:
    assert strip_control("a\tb\nc\u00a0d\x00\x7f\r") == "a\tb\nc\u00a0d"


def test_columns_are_aligned_without_trailing_blanks() -> None:
    assert align_columns([["rank", "state"], ["0", ""], ["1–3", "waiting"]]) == ["rank  state", "0", "1–3   waiting"]


@pytest.mark.parametrize(
    ("line", "width", "wrapped"),
    [
        ("one two three", 0, ["one two three"]),
        ("one two three", 13, ["one two three"]),
        ("one two three", 9, ["one two", "  three"]),
        ("  one two three", 9, ["  one two", "    three"]),
        ("  12  one two three", 14, ["  12  one two", "      three"]),
        ("  job     one two three", 18, ["  job     one two", "          three"]),
        ("- one two three", 10, ["- one two", "  three"]),
        ("a/path/that/is/long b", 10, ["a/path/that/is/long", "  b"]),
        ("one\n  two three", 9, ["one", "  two", "    three"]),
        ("", 9, [""]),
        ("    deep", 5, ["    deep"]),
    ],
)
def test_a_line_is_wrapped_between_words_below_its_text(line: str, width: int, wrapped: list[str]) -> None:
    assert wrap_line(line, width) == wrapped
    assert wrap_line(Verbatim(line), width) == [line]
    assert isinstance(indented(Verbatim(line)), Verbatim)


@given(st.text("ab \t-é", max_size=80), st.integers(1, 30))
def test_wrapping_keeps_every_word_and_the_width(line: str, width: int) -> None:
    wrapped = wrap_line(line, width)
    assert " ".join(wrapped).split() == line.split()
    longest = max(map(len, line.split()), default=0)
    for part in wrapped[1:]:
        assert len(part) <= width or len(part.split()) == 1 or len(part) - len(part.lstrip()) + longest > width


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [["explain", "rank-paused"], ["diagnose", "RuntimeError: Address already in use"]])
def test_output_is_wrapped_on_a_terminal_and_not_in_a_pipe(words: list[str], columns: int) -> None:
    piped = ddpwizard(*words).stdout
    assert max(map(len, piped.splitlines())) > 80
    with Terminal([sys.executable, "-m", "ddpwizard", *words], columns=columns, rows=24) as terminal:
        terminal.wait_exit()
        lines = strip_sequences_bytes(terminal.output).decode().splitlines()
    long = [line for line in lines if len(line.rstrip()) > columns]
    # What is longer is code, or one word.
    assert all(re.match(r" {2,}\S", line) or " " not in line.strip() for line in long), long
    assert len(long) < len([line for line in piped.splitlines() if len(line) > columns])
    if words[0] == "explain":
        assert " ".join(lines).split() == piped.split()
