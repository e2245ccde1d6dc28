"""The quiz: logs of several ranks, each with the question which rank was first."""

from pathlib import Path

import msgspec

from .schema import BUILT_IN
from .yaml_file import KnowledgeError, convert, line_of, read_foreign_bytes

QUIZ = "quiz"
MOST_LINES = 60  # of a log, to be read on a screen


class QuizItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question. The file name is ``quiz/<id>.yaml``.

    ``log`` is the output of a job with so many ``ranks``, ``first`` the rank whose failure came before the others,
    ``why`` the lines that show it, and ``cause`` the entry about that failure, if there is one.
    """

    title: str
    ranks: int
    first: int
    why: str
    log: str
    cause: str = ""
    id: str = ""


def read_quiz(*extra: Path) -> list[QuizItem]:
    """Return the built-in questions and those of further knowledge directories, in the order of their names.

    Raises:
        KnowledgeError: A question is not valid.
    """
    return [read_quiz_item(path) for path in _paths(extra)]


def read_valid_quiz(*extra: Path) -> tuple[list[QuizItem], list[KnowledgeError]]:
    """Read as ``read_quiz`` does, but leave out invalid questions; return their errors too."""
    items: list[QuizItem] = []
    problems: list[KnowledgeError] = []
    for path in _paths(extra):
        try:
            items.append(read_quiz_item(path))
        except KnowledgeError as error:
            problems.append(error)
    return items, problems


def read_quiz_item(path: Path) -> QuizItem:
    """Return the question of one file.

    Raises:
        KnowledgeError: It is not valid.
    """
    text = read_foreign_bytes(path)
    item = convert(path, text, QuizItem)
    if not 0 <= item.first < item.ranks:
        raise KnowledgeError(path, line_of(text, ["first"]), f"the job has the ranks 0 to {item.ranks - 1}")
    if len(item.log.splitlines()) > MOST_LINES:
        raise KnowledgeError(path, line_of(text, ["log"]), f"a log has at most {MOST_LINES} lines")
    return msgspec.structs.replace(item, id=path.stem)


def _paths(extra: tuple[Path, ...]) -> list[Path]:
    return [path for root in (BUILT_IN, *extra) for path in sorted((root / QUIZ).glob("*.yaml"))]
