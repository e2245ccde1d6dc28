"""The directory of the job files."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.job_directory import ensure_new_files, free_directory


def test_free_directory_does_not_exist(tmp_path: Path) -> None:
    assert free_directory(tmp_path) == "ddpwizard-plan"
    (tmp_path / "ddpwizard-plan").mkdir()
    assert free_directory(tmp_path) == "ddpwizard-plan-2"


def test_existing_files_are_refused(tmp_path: Path) -> None:
    where = tmp_path / "job"
    ensure_new_files(where, ["launch.sh"], "name another")
    (where / "launch.sh").symlink_to("nowhere")
    with pytest.raises(UserError, match="exists already"):
        ensure_new_files(where, ["launch.sh"], "name another")
    with pytest.raises(UserError, match="cannot write"):
        ensure_new_files(where / "launch.sh" / "deeper", ["x"], "name another")
