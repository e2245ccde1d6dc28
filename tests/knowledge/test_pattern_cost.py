"""Patterns that may take exponential time are recognised; all others are not."""

import pytest
from ddpwizard.knowledge.pattern_cost import has_nested_repeat


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$", r"(a*)*b", r"(\w+\s*)+:", r"((a|b)+)*", r"(a|b+)*c", r"(.*)*", r"x(?:[a-z]+,?)+$"]
)
def test_repeat_inside_a_repeat_is_found(pattern: str) -> None:
    assert has_nested_repeat(pattern)


@pytest.mark.parametrize("pattern", [r"(?:\w+ )*x", r"a+b+", r"(?:x\d+)+", r"(?:ab?)+", r"(a{1,5})+", r"\d+(?:\.\d+)*"])
def test_repeat_with_something_between_is_allowed(pattern: str) -> None:
    assert not has_nested_repeat(pattern)
