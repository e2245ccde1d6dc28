"""The chapters: short texts in the order in which a new engineer needs them, each with its labs."""

from pathlib import Path

import msgspec

from .schema import BUILT_IN
from .yaml_file import convert, read_foreign_bytes

CHAPTERS = "chapters"


class Chapter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chapter. ``labs`` are the causes of its labs; the id is the name of its file."""

    order: int
    title: str
    summary: str
    pages: list[str]
    labs: list[str] = []
    id: str = ""


def read_chapters(*extra: Path) -> dict[str, Chapter]:
    """Return the built-in chapters and those of further knowledge directories by id, in their order.

    Raises:
        KnowledgeError: A file is not valid.
    """
    found: dict[str, Chapter] = {}
    for root in (BUILT_IN, *extra):
        for path in sorted((root / CHAPTERS).glob("*.yaml")):
            chapter = convert(path, read_foreign_bytes(path), Chapter)
            found[path.stem] = msgspec.structs.replace(chapter, id=path.stem)
    return dict(sorted(found.items(), key=lambda each: each[1].order))
