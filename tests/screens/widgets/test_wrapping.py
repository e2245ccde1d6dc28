"""Lines of a text that are counted before they are rendered."""

import pytest
from ddpwizard.screens.widgets.wrapping import line_starts, wrap_indented, wrap_later
from helpers.built_in_knowledge import built_in_knowledge
from textual.content import Content

CAUSES = built_in_knowledge().causes.values()
TEXTS = [text for cause in CAUSES for text in (cause.title, *cause.summary.splitlines())]
ODD = [
    "",
    "word",
    "a word-that-is-longer-than-the-line at the end",
    "    code_of_one_word(with_arguments)",
    "two  spaces  between  the  words  of  this  line",
    "zwei Wörter – und “quoted” ones",
    "一二三四五六七八九十 wide letters",
    "a\ttab and\na line break",
]


@pytest.mark.parametrize("width", [17, 32, 76])
def test_lines_are_those_of_textual(width: int) -> None:
    for text in [*TEXTS, "", "word", ODD[2], *ODD[4:]]:
        wrapped = wrap_later(Content(text), width)
        lines = wrapped.render()
        assert len(lines) == wrapped.height
        assert [line.plain.rstrip() for line in lines] == [line.plain.rstrip() for line in Content(text).wrap(width)]


@pytest.mark.parametrize("width", [8, 17, 32])
@pytest.mark.parametrize("text", ODD)
def test_no_letter_is_lost_and_no_line_is_too_long(text: str, width: int) -> None:
    lines = wrap_later(Content(text), width).render()
    assert "".join("".join(line.plain for line in lines).split()) == "".join(text.split())
    assert all(line.cell_length <= width for line in lines)


def test_styles_stay_with_their_words() -> None:
    text = Content.assemble("plain words ", ("bold words", "bold"), " and an end")
    lines = wrap_later(text, 12).render()
    assert [line.plain for line in lines] == ["plain words", "bold words", "and an end"]
    assert [len(line.spans) for line in lines] == [0, 1, 0]


def test_a_word_longer_than_the_line_is_cut() -> None:
    assert line_starts("abcdefghij", 4) == [4, 8]
    assert line_starts("ab abcdefghij", 4) == [3, 7, 11]


def test_further_lines_of_a_label_are_indented() -> None:
    wrapped = wrap_indented(Content("7.1  The title of a lab"), 14, 5)
    assert [line.plain for line in wrapped.render()] == ["7.1  The title", "     of a lab"] and wrapped.height == 2
    assert [line.plain for line in wrap_indented(Content("7.1  Short"), 14, 5).render()] == ["7.1  Short"]
