"""Tests of a project, by their names, their imports and their directories."""

import re
from pathlib import Path

from ..training_script.project_imports import MOST_ABOVE, is_project_top

NAME = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")
IMPORT = re.compile(r"^(?:import|from) (?:pytest|unittest)\b", re.MULTILINE)


def is_test(path: Path, text: str) -> bool:
    """Return whether a script with this text is a test of its project."""
    return bool(NAME.fullmatch(path.name) or IMPORT.search(text)) or _is_in_tests(path)


def _is_in_tests(path: Path) -> bool:
    """Return whether a script is in the directory of tests of its project."""
    for folder in path.parents[:MOST_ABOVE]:
        if is_project_top(folder):
            return False
        if folder.name in ("test", "tests"):
            return True
    return False
