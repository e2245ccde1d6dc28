"""Whole numbers, parsed from text that may hold anything."""

import pytest
from ddpwizard.app.text.numbers import parse_count


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("8", 8), (" 29500\n", 29500), ("007", 7), ("9" * 9, 10**9 - 1)]
)
def test_digits_are_a_number(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", [None, "", " ", "-1", "+1", "1e3", "1_000", "1 0", "0x10", "²", "\u0663", "9" * 10])
def test_anything_else_is_none(text: str | None) -> None:
    assert parse_count(text) is None


def test_very_long_digits_are_not_converted() -> None:
    assert parse_count("9" * 10_000) is None
    assert parse_count("9" * 20, digits=20) == 10**20 - 1
