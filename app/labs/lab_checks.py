"""The numbers that the repaired job of a lab leaves: in what it prints, and in the files that it writes."""

import re
from collections.abc import Mapping
from pathlib import Path

from ...knowledge.labs import Lab, LabCheck

MOST_BYTES = 1_000_000  # of a written file that are read


def read_checked_files(lab: Lab, directory: Path) -> dict[str, str]:
    """Return the text of the files that the checks of a lab name, by what names them; those that are missing are not in
    it.
    """
    found: dict[str, str] = {}
    for name in {check.file for check in lab.checks if check.file}:
        paths = sorted(path for path in directory.glob(name) if path.is_file())
        if paths:
            found[name] = "\n".join(path.read_bytes()[:MOST_BYTES].decode(errors="replace") for path in paths)
    return found


def measured_value(check: LabCheck, output: str, files: Mapping[str, str]) -> float | None:
    """Return the number of a check: the one that its pattern finds last, or how often it matches.

    None: the file was not written, or the number not printed.
    """
    text = files.get(check.file) if check.file else output
    if text is None:
        return None
    found = [*re.finditer(check.pattern, text, re.MULTILINE)]
    if not check.has_value:
        return float(len(found))
    try:
        return float(found[-1]["value"]) if found else None
    except ValueError:
        return None


def failed_check(lab: Lab, output: str, files: Mapping[str, str]) -> LabCheck | None:
    """Return the first check of a lab that a run does not pass, or None."""
    for check in lab.checks:
        value = measured_value(check, output, files)
        if value is None or abs(value - check.value) > check.within:
            return check
    return None


def failed_check_text(check: LabCheck, output: str, files: Mapping[str, str]) -> str:
    """Return how a number differs from that of the repaired job, and why it is that one there."""
    value = measured_value(check, output, files)
    if value is None and check.file:
        what = f"{check.file} was not written"
    elif value is None:
        what = f"{check.what} is not printed"
    else:
        what = f"{check.what} is {value:g} instead of {'about ' if check.within else ''}{check.value:g}"
    return f"{what}: {check.why}" if check.why else what
