"""Look up the code at a line."""

import pytest
from ddpwizard.app.training_script.line_queries import LineQueries


def test_file_with_a_byte_order_mark_is_parsed() -> None:
    source = LineQueries("\ufeffdef main():\n    barrier()\n")
    assert source.line(1) == "def main():"
    assert [call.lineno for call in source.calls(2)] == [2]


@pytest.mark.parametrize("character", ["\x0c", "\x1c", "\u2028", "\x85"])
def test_lines_are_counted_as_python_counts_them(character: str) -> None:
    source = LineQueries(f"text = '{character}'\nbarrier()\n")
    assert source.line(2) == "barrier()"
    assert [call.lineno for call in source.calls(2)] == [2]


@pytest.mark.parametrize("text", ["def main(:\n    barrier()\n", "def main():\n    barrier()\0\n"])
def test_only_the_text_of_an_unparsable_file_is_known(text: str) -> None:
    source = LineQueries(text)
    assert source.line(2).startswith("    barrier()")
    assert source.line(3) == source.line(0) == source.line(99) == ""
    assert source.calls(2) == []
