"""The directory of the job files and the script that they start."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.job_directory import SCRIPT, ensure_new_files, free_directory, script_of_running_job
from helpers.recorded_state import report


def test_script_of_a_running_job_is_relative_to_the_directory(tmp_path: Path) -> None:
    assert script_of_running_job([report(tmp_path)], tmp_path) == "train.py"
    (other := tmp_path / "other").mkdir()
    assert script_of_running_job([report(other)], tmp_path) == SCRIPT
    assert script_of_running_job([], tmp_path) == SCRIPT


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
