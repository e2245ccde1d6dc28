"""Read one YAML file of the knowledge base into its type, and find the line of an error.

The fast path ignores line numbers; a file is composed a second time only to find the line of an error.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 60  # libyaml composes recursively in C, so a deeper file ends the process
T = TypeVar("T")
Key = str | int


class KnowledgeError(Exception):
    """An invalid entry: ``path:line: problem``."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


class _Loader(yaml.CSafeLoader):
    """Safe YAML loader that rejects keys that are not strings (bare yes/no/on/1.10) and duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is not a string: quote it", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is duplicated", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_foreign_bytes(path: Path) -> bytes:
    """Return the content of a file of a team: regular, not too large, not nested too deeply.

    Raises:
        KnowledgeError: It is no such file, or cannot be read.
    """
    try:
        if not path.is_file():
            raise KnowledgeError(path, 1, "not a regular file")
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KnowledgeError(path, 1, f"cannot be read: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise KnowledgeError(path, 1, f"larger than {MAX_BYTES:,} bytes")
    if (line := _too_deep(text)) is not None:
        raise KnowledgeError(path, line, f"nested more than {MAX_DEPTH} levels deep")
    return text


def _too_deep(text: bytes) -> int | None:
    """Return the line (from 1) at which the nesting exceeds ``MAX_DEPTH``, or None."""
    depth = 0
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return event.start_mark.line + 1
    except (yaml.YAMLError, UnicodeDecodeError):
        return None  # reported with its line when it is converted
    return None


def convert(path: Path, text: bytes, shape: type[T]) -> T:
    """Return the content of a YAML file as ``shape``.

    Raises:
        KnowledgeError: It is not valid YAML, or violates the shape.
    """
    try:
        return msgspec.convert(yaml.load(text, _Loader), shape)
    except yaml.YAMLError as error:
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
    nodes = list(_nodes(yaml.compose(text, yaml.CSafeLoader), keys))
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


def _nodes(node: yaml.Node | None, keys: list[Key], line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield (line, tag) of every node that ``keys`` can lead to, or the last node of a dead end."""
    if node is None:
        return
    below: list[tuple[int, yaml.Node]] = []
    if keys and isinstance(node, yaml.SequenceNode) and isinstance(keys[0], int):
        below = [(item.start_mark.line + 1, item) for item in node.value[keys[0] : keys[0] + 1]]
    elif keys and isinstance(node, yaml.MappingNode):
        below = [(k.start_mark.line + 1, v) for k, v in node.value if keys[0] in ("...", k.value)]
    if not below:
        yield line, node.tag.rpartition(":")[2]
    for line_below, node_below in below:
        yield from _nodes(node_below, keys[1:], line_below)
