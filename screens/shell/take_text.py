"""Reading of a text, or of the file at a path, into the current case."""

import asyncio
import threading
from pathlib import Path
from typing import NamedTuple

from ...app.diagnosis.given_text import Given
from ...app.diagnosis.intake import IntakeResult, read_sources, take_result
from ...app.diagnosis.script_evidence import review_summary, take_findings, take_script
from ...app.errors import UserError
from ...app.logs.analyse import Progress
from ...app.logs.read import find_sources, source_of_text
from ...app.review.types import ReviewFinding
from ...knowledge.schema import Knowledge
from .state import WizardState

NOTE_CHARACTERS = 400


class CancelledError(Exception):
    """Nobody waits for the text any more."""


class GivenContent(NamedTuple):
    """The content of a given text: what a log or a description shows, or the findings in a script."""

    given: Given
    found: IntakeResult | list[ReviewFinding]


def take_text(state: WizardState, given: Given, origin: str) -> str:
    """Read a script, a log or a description into the case; return one line on it, or "".

    Raises:
        UserError: The path cannot be read, or the script is no Python.
    """
    return take_content(state, read_given(given, origin, state.knowledge))


async def read_in_thread(given: Given, knowledge: Knowledge) -> GivenContent:
    """Read a script or logs in a thread, which ends early if the caller is cancelled.

    Raises:
        UserError: As ``take_text``.
    """
    cancelled = threading.Event()

    def progress(_done: int, _total: int) -> None:
        if cancelled.is_set():
            raise CancelledError

    try:
        return await asyncio.to_thread(read_given, given, "", knowledge, progress)
    finally:
        cancelled.set()


def read_given(given: Given, origin: str, knowledge: Knowledge, progress: Progress | None = None) -> GivenContent:
    """Read a script, a log or a description; ``origin`` is where the text of a description comes from.

    Raises:
        UserError: As ``take_text``.
    """
    if given.kind == "script":
        from ...app.review.file_review import review_file

        return GivenContent(given, review_file(Path(given.value), knowledge))
    sources = find_sources([given.value]) if given.kind == "log" else [source_of_text(given.value, origin)]
    return GivenContent(given, read_sources(sources, knowledge, progress))


def take_content(state: WizardState, content: GivenContent) -> str:
    """Take what was read into the case; return one line on it, or ""."""
    text, found = content.given.value, content.found
    state.record_event("note", text=text if len(text) < NOTE_CHARACTERS else f"a text of {len(text):,} characters")
    if not isinstance(found, IntakeResult):
        take_findings(state.case, Path(text), found)
        return review_summary(Path(text), found, len(state.knowledge.rules))
    take_result(state.case, found)
    state.texts |= found.texts
    state.timeline = found.timeline
    state.in_scope = found.in_scope
    return ""


def take_script_path(state: WizardState, typed: str) -> str:
    """Review the script at a path that the user typed; return one line on it.

    Raises:
        UserError: The file is missing, binary, or no Python.
    """
    from ...app.system.files import expand_user

    path = expand_user(typed.strip())
    if not path.is_file():
        raise UserError(f"{path}: no such file", "give the path of the script, or press enter to skip")
    return review_summary(path, take_script(state.case, path), len(state.knowledge.rules))
