"""Paths of the wizard and how they are shown."""

from pathlib import Path

import pytest
from ddpwizard.app.system.paths import relative_to_cwd


def test_path_below_the_working_directory_is_shown_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (f"{tmp_path}/src/train.py", "src/train.py", "./src/train.py"):
        assert relative_to_cwd(given) == "src/train.py"
    assert relative_to_cwd("/elsewhere/train.py") == "/elsewhere/train.py"
    assert relative_to_cwd("") == ""
