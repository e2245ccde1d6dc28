"""Reading of a text, or of the file at a path, into the current case."""

from ...app.diagnosis.intake import add_to_case
from ...app.errors import UserError
from ...app.logs.read import find_sources, source_of_text
from ...app.system.files import expand_user
from .state import WizardState


def take_text(state: WizardState, given: str, origin: str) -> None:
    """Read a pasted text, a description, or the log at a path (one line) into the case.

    Raises:
        UserError: Nothing was given, or the path cannot be read.
    """
    if not given.strip():
        raise UserError("the text is empty", "paste an error or a log, or describe what you see")
    found = add_to_case(state.case, find_sources([path]) if (path := _path(given)) else [source_of_text(given, origin)])
    state.texts |= found.texts
    state.timeline = found.timeline
    state.in_scope = found.in_scope
    state.record_event("note", text=given if len(given) < 400 else f"a text of {len(given):,} characters")


def _path(given: str) -> str:
    """Return ``given`` as a path if such a file exists or it cannot be anything else, or ""."""
    line = given.strip()
    if "\n" in line or len(line) > 500:
        return ""
    looks_like_one = " " not in line and "/" in line
    try:
        path = expand_user(line)
        return str(path) if looks_like_one or path.exists() else ""
    except UserError:
        if looks_like_one:
            raise
        return ""
    except (OSError, ValueError):
        return ""
