"""The directory of the job files."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.job_files.write import free_directory, write_job_files


def test_free_directory_does_not_exist(tmp_path: Path) -> None:
    assert free_directory(tmp_path) == "ddpwizard-plan"
    (tmp_path / "ddpwizard-plan").mkdir()
    assert free_directory(tmp_path) == "ddpwizard-plan-2"


def test_existing_files_are_refused(tmp_path: Path) -> None:
    where = tmp_path / "job"
    write_job_files(where, {"env.sh": ""})
    (where / "launch.sh").symlink_to("nowhere")
    with pytest.raises(UserError, match="exists already"):
        write_job_files(where, {"train.py": "", "launch.sh": ""})
    assert not (where / "train.py").exists()
    with pytest.raises(UserError, match="cannot write"):
        write_job_files(where / "env.sh" / "deeper", {"x": ""})
