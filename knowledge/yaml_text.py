"""YAML in strict form, how deep it is nested, and the lines of its nodes.

Only this module loads yaml: knowledge from the cache needs none.
"""

from collections.abc import Iterator
from typing import Any

import yaml

MAX_DEPTH = 60  # libyaml composes recursively in C, so a deeper file ends the process
Key = str | int
YAMLError = yaml.YAMLError


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


def load_strictly(text: bytes) -> object:
    """Return the content of a YAML text.

    Raises:
        YAMLError: It is not valid.
    """
    return yaml.load(text, _Loader)


def line_too_deep(text: bytes) -> int | None:
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


def lines_of_nodes(text: bytes, keys: list[Key]) -> list[tuple[int, str]]:
    """Return (line, tag) of every node that ``keys`` can lead to, or the last node of a dead end."""
    return list(_nodes(yaml.compose(text, yaml.CSafeLoader), keys))


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
