"""Errors in the labs and the quiz of a knowledge directory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ...knowledge.labs import DESCRIPTION, Lab, lab_paths, read_lab
from ...knowledge.quiz import quiz_paths, read_quiz_item
from ...knowledge.schema import Knowledge
from ...knowledge.yaml_file import KnowledgeError, line_of

Entry = TypeVar("Entry")


def lab_problems(knowledge: Knowledge, directories: Sequence[Path]) -> list[KnowledgeError]:
    """Return what is wrong in the labs and questions of these directories, and in the built-in ones."""
    problems: list[KnowledgeError] = []
    labs = _valid(lab_paths(*directories), read_lab, problems)
    _valid(quiz_paths(*directories), read_quiz_item, problems)
    for lab in labs:
        problems += (_error(lab, key, what) for key, what in _unknown_names(lab, knowledge))
    return problems


def _valid(paths: Sequence[Path], read: Callable[[Path], Entry], problems: list[KnowledgeError]) -> list[Entry]:
    found: list[Entry] = []
    for path in paths:
        try:
            found.append(read(path))
        except KnowledgeError as error:
            problems.append(error)
    return found


def _unknown_names(lab: Lab, knowledge: Knowledge) -> Iterator[tuple[list[str | int], str]]:
    """Yield the keys of a lab that name what does not exist."""
    if lab.question:
        return
    cause = knowledge.causes.get(lab.cause)
    if cause is None:
        yield ["cause"], f"no cause {lab.cause!r}: name one with cause:"
    elif lab.fix and lab.fix not in knowledge.rules and lab.fix not in [each.id for each in cause.fixes]:
        yield ["fix"], f"{lab.fix!r} is no fix of {lab.cause} and no rule of the review"
    for number, guess in enumerate(lab.guesses):
        if guess not in knowledge.causes:
            yield ["guesses", number], f"no cause {guess!r}"
    for number, edit in enumerate(lab.edits):
        path = lab.directory / edit.file
        if not path.is_file() or path.read_text(encoding="utf-8").count(edit.old) != 1:
            yield ["edits", number], f"{edit.file} does not have this text once"


def _error(lab: Lab, key: list[str | int], what: str) -> KnowledgeError:
    path = lab.directory / DESCRIPTION
    return KnowledgeError(path, line_of(path.read_bytes(), key), what)
