"""Reading of a text, or of the file at a path, into the current case."""

from pathlib import Path

from ...app.diagnosis.given_text import Given
from ...app.diagnosis.intake import add_to_case
from ...app.diagnosis.script_evidence import review_summary, take_script
from ...app.errors import UserError
from ...app.logs.read import find_sources, source_of_text
from .state import WizardState

NOTE_CHARACTERS = 400


def take_text(state: WizardState, given: Given, origin: str) -> str:
    """Read a script, a log or a description into the case; return one line on it, or "".

    Raises:
        UserError: The path cannot be read, or the script is no Python.
    """
    text = given.value
    state.record_event("note", text=text if len(text) < NOTE_CHARACTERS else f"a text of {len(text):,} characters")
    if given.kind == "script":
        findings = take_script(state.case, Path(text))
        return review_summary(Path(text), findings, len(state.knowledge.rules))
    found = add_to_case(state.case, find_sources([text]) if given.kind == "log" else [source_of_text(text, origin)])
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
