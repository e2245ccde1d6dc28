"""Syntax of later versions of Python is named."""

import sys

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.training_script.source import parse

SYNTAX = [
    ((3, 12), "type Vector = list[float]\n", "type"),
    ((3, 12), "def first[T](items: list[T]) -> T: ...\n", "type parameters"),
    ((3, 12), "class Box[T]: ...\n", "type parameters"),
    ((3, 12), 'x = f"{row[\'a\']} {row["b"]}"\n', "f-string"),
    ((3, 12), 'x = f"{"\\n".join(rows)}"\n', "f-string"),
    ((3, 14), 'x = t"{name}"\n', "template strings"),
    ((3, 14), "try:\n    pass\nexcept OSError, ValueError:\n    pass\n", "except A, B"),
]


@pytest.mark.parametrize(("version", "text", "name"), SYNTAX)
def test_newer_syntax_is_named_with_its_version(version: tuple[int, int], text: str, name: str) -> None:
    if sys.version_info >= version:
        parse(text, "t.py")
        return
    with pytest.raises(
        UserError, match=rf"^t\.py:\d+: .*{name}.* Python {version[0]}\.{version[1]}; ddpwizard runs on"
    ):
        parse(text, "t.py")


@pytest.mark.parametrize(
    "text",
    [
        "print 'x'\n",
        "exec 'x = 1'\n",
        "try:\n    pass\nexcept IOError, e:\n    pass\n",
        "x = 0777\n",
        "f(a=1, 2)\n",
        "def f(:\n",
        "raise ValueError, 'x'\n",
    ],
)
def test_other_errors_are_not_blamed_on_the_version(text: str) -> None:
    with pytest.raises(UserError, match=r"^t\.py:\d+: not valid Python: (?!.*ddpwizard runs on)"):
        parse(text, "t.py")
