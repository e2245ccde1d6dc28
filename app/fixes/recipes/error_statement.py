"""The statement of the user's code at which the first error of a case was raised."""

import ast

from ...training_script.syntax import contains_line
from ..facts import CaseFacts
from ..user_code import UserFile


def error_message(facts: CaseFacts) -> str:
    """Return the first line of the message of the first error, or ""."""
    event = facts.first_error[1]
    return event.values.get("message", "") if event else ""


def statement_of_error(facts: CaseFacts, phrase: str) -> tuple[UserFile, ast.stmt] | None:
    """Return the file and the statement of the first error, if its message has a phrase, else None.

    None as well if the file is no longer the one that ran, or the statement shares its line with another.
    """
    place = facts.error_place
    if place is None or phrase not in error_message(facts):
        return None
    file = facts.file_as_started(place.path)
    if file is None or file.line(place.line) != place.text:
        return None
    nodes = (node for node in ast.walk(file.source.tree) if isinstance(node, ast.stmt))
    found = [node for node in nodes if contains_line(node, place.line)]
    innermost = found[-1] if found else None
    return (file, innermost) if innermost is not None and file.source.alone(innermost) else None
