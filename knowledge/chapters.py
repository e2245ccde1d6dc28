"""The chapters for a new engineer: pages of text with drawings, in the order in which one reads them."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from .schema import BUILT_IN
from .yaml_file import Key, KnowledgeError, convert, line_of, read_foreign_bytes

CHAPTERS = "chapters"
LINES_PER_PAGE, COLUMNS = 20, 76  # of a terminal of 80 × 24


class Chapter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chapter. The file name is ``chapters/<id>.yaml``.

    ``summary`` is one line. A page fits a small terminal. ``labs`` are ids of labs; those that do not exist are left
    out when the chapter is shown. ``quiz``: the quiz is offered with its labs.
    """

    order: int
    title: str
    summary: str
    pages: list[str]
    labs: list[str] = []
    quiz: bool = False
    id: str = ""  # the name of its file
    path: Path = Path()


class ChapterProblem(NamedTuple):
    """The place of an error in a chapter, and the reason."""

    keys: list[Key]
    problem: str


def chapter_ids(*extra: Path) -> set[str]:
    """Return the ids of the built-in chapters and of those of further knowledge directories, read or not."""
    return {path.stem for path in _paths(extra)}


def read_chapters(*extra: Path) -> dict[str, Chapter]:
    """Return the built-in chapters and those of further knowledge directories, by id, in reading order.

    Raises:
        KnowledgeError: A chapter is not valid.
    """
    chapters, problems = read_valid_chapters(*extra)
    if problems:
        raise problems[0]
    return chapters


def read_valid_chapters(*extra: Path) -> tuple[dict[str, Chapter], list[KnowledgeError]]:
    """Read as ``read_chapters`` does, but leave out invalid chapters; return their errors too."""
    chapters: dict[str, Chapter] = {}
    problems: list[KnowledgeError] = []
    for path in _paths(extra):
        try:
            chapters[path.stem] = read_chapter(path)
        except KnowledgeError as error:
            problems.append(error)
    return dict(sorted(chapters.items(), key=lambda each: each[1].order)), problems


def read_chapter(path: Path) -> Chapter:
    """Return the chapter of one file.

    Raises:
        KnowledgeError: It is not valid.
    """
    text = read_foreign_bytes(path)
    chapter = convert(path, text, Chapter)
    if found := _problem(chapter):
        raise KnowledgeError(path, line_of(text, found.keys), found.problem)
    return msgspec.structs.replace(chapter, id=path.stem, path=path)


def _paths(extra: tuple[Path, ...]) -> list[Path]:
    return [path for root in (BUILT_IN, *extra) for path in sorted((root / CHAPTERS).glob("*.yaml"))]


def _problem(chapter: Chapter) -> ChapterProblem | None:
    if "\n" in chapter.summary.strip():
        return ChapterProblem(["summary"], "a summary is one line")
    if not chapter.pages:
        return ChapterProblem(["pages"], "a chapter has at least one page")
    for number, page in enumerate(chapter.pages):
        lines = page.splitlines()
        if len(lines) > LINES_PER_PAGE:
            return ChapterProblem(["pages", number], f"a page has at most {LINES_PER_PAGE} lines, not {len(lines)}")
        if wide := next((line for line in lines if len(line) > COLUMNS), None):
            problem = f"a line has at most {COLUMNS} columns, not {len(wide)}: {wide[:40]}…"
            return ChapterProblem(["pages", number], problem)
    return None
