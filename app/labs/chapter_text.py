"""A chapter as text for people."""

from collections.abc import Collection

from ...knowledge.chapters import Chapter
from ...knowledge.schema import Knowledge
from ..text.terminal import align_columns


def chapter_lines(chapter: Chapter, knowledge: Knowledge, labs: Collection[str]) -> list[str]:
    """Return a chapter as plain lines: its pages, then those of its labs that exist."""
    lines = [chapter.title, f"chapter {chapter.order} / {chapter.id}", "", chapter.summary]
    for page in chapter.pages:
        lines += ["", *page.rstrip().splitlines()]
    rows = [(id_, knowledge.causes[id_].title) for id_ in chapter.labs if id_ in labs and id_ in knowledge.causes]
    return [*lines, "", "LABS", *(f"  {row}" for row in align_columns(rows))] if rows else lines
