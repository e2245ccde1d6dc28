"""A chapter, and a lab of it, as text for people."""

from collections.abc import Sequence

from ...knowledge.chapters import Chapter
from ..text.terminal import align_columns
from .course import CourseLab


def chapter_lines(chapter: Chapter, labs: Sequence[CourseLab]) -> list[str]:
    """Return a chapter as plain lines: its pages, then its labs by number and title, as the cause is their answer."""
    lines = [chapter.title, f"chapter {chapter.order} / {chapter.id}", "", chapter.summary]
    for page in chapter.pages:
        lines += ["", *page.rstrip().splitlines()]
    if not labs:
        return lines
    rows = align_columns([(each.number, each.lab.title) for each in labs])
    return [*lines, "", "LABS", *(f"  {row}" for row in rows), f"  ddpwizard learn {labs[0].number} opens the first."]


def lab_lines(each: CourseLab) -> list[str]:
    """Return a lab as plain lines: its story and how to open it; its cause is the answer."""
    lines = [each.lab.title, f"lab {each.number}", "", *each.lab.story.rstrip().splitlines()]
    return [*lines, "", f"  ddpwizard learn {each.number} opens it."]
