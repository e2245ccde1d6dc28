"""The planner's tables, which are data: ``assets/plan``.

They are JSON, as reading YAML at each start would take as long as a plan; a line that begins with ``//`` is a comment.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from .types import CHOICES

T = TypeVar("T")
TABLES = Path(__file__).parents[2] / "assets" / "plan"


def read_table(name: str, shape: type[T]) -> T:
    """Return the content of a file as ``shape``."""
    lines = (TABLES / name).read_bytes().splitlines()
    return msgspec.json.decode(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//")), type=shape)


def words_of(name: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Return the words that an option takes; ``*`` in the list are those of its type."""
    return tuple(word for each in listed for word in (CHOICES[name] if each == "*" else (each,)))
