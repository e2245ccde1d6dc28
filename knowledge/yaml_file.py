"""Read one YAML file of the knowledge base into its type, and find the line of an error.

The fast path ignores line numbers; a file is composed a second time only to find the line of an error.
"""

import re
from pathlib import Path
from typing import TypeVar

import msgspec

MAX_BYTES = 1_000_000
T = TypeVar("T")
Key = str | int


class KnowledgeError(Exception):
    """An invalid entry: ``path:line: problem``."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


def read_foreign_bytes(path: Path) -> bytes:
    """Return the content of a file of a team: regular, not too large, not nested too deeply.

    Raises:
        KnowledgeError: It is no such file, or cannot be read.
    """
    from .yaml_text import MAX_DEPTH, line_too_deep

    try:
        if not path.is_file():
            raise KnowledgeError(path, 1, "not a regular file")
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KnowledgeError(path, 1, f"cannot be read: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise KnowledgeError(path, 1, f"larger than {MAX_BYTES:,} bytes")
    if (line := line_too_deep(text)) is not None:
        raise KnowledgeError(path, line, f"nested more than {MAX_DEPTH} levels deep")
    return text


def convert(path: Path, text: bytes, shape: type[T]) -> T:
    """Return the content of a YAML file as ``shape``.

    Raises:
        KnowledgeError: It is not valid YAML, or violates the shape.
    """
    from .yaml_text import YAMLError, load_strictly

    try:
        return msgspec.convert(load_strictly(text), shape)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise KnowledgeError(path, mark.line + 1 if mark else 1, str(problem)) from error
    except UnicodeDecodeError as error:
        raise KnowledgeError(path, 1, "not UTF-8 text") from error
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `")
        got = re.search(r"got `(\w+)`", what)
        keys = _keys(at.rstrip("`"))
        if unknown := re.search(r"unknown field `(.+)`", what):
            keys.append(unknown[1])
        raise KnowledgeError(path, line_of(text, keys, got[1] if got else ""), what) from error


def _keys(json_path: str) -> list[Key]:
    """Split ``$.signatures[0].weight`` into ``["signatures", 0, "weight"]``; an unnamed key is ``...``."""
    found = re.findall(r"\[(\d+)\]|\[(\.\.\.)\]|\.([^.\[]+)", json_path)
    return [int(index) if index else dots or name for index, dots, name in found]


def line_of(text: bytes, keys: list[Key], got: str = "") -> int:
    """Return the line (from 1) of the node at ``keys``, or of the deepest existing node on the way.

    A key ``...`` matches any key: the first node of the type ``got`` (msgspec's name for it) is used.
    """
    from .yaml_text import lines_of_nodes

    nodes = lines_of_nodes(text, keys)
    return next((line for line, tag in nodes if tag == TAGS.get(got)), nodes[0][0] if nodes else 1)


TAGS = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "null": "null",
    "str": "str",
    "array": "seq",
    "object": "map",
}
