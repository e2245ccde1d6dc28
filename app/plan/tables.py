"""The planner's tables, which are data: ``assets/plan``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from .types import CHOICES

T = TypeVar("T")
TABLES = Path(__file__).parents[2] / "assets" / "plan"


def read_table(name: str, shape: type[T]) -> T:
    """Return the content of a file as ``shape``."""
    decode = msgspec.json.decode if name.endswith(".json") else msgspec.yaml.decode
    return decode((TABLES / name).read_bytes(), type=shape)


def words_of(name: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Return the words that an option takes; ``*`` in the list are those of its type."""
    return tuple(word for each in listed for word in (CHOICES[name] if each == "*" else (each,)))
