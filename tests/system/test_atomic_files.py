import stat
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.system.atomic_files import replace_file
from ddpwizard.app.system.files import write_atomic


@pytest.mark.parametrize("sync", [True, False])
def test_replace_file_writes_content_and_mode_and_leaves_no_other_file(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    replace_file(path, b"new", 0o640, sync=sync)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_replace_file_accepts_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    directory = tmp_path / "result"
    directory.mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(directory, b"new")
    assert list(tmp_path.iterdir()) == [directory]


def test_write_atomic_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write") as error:
        write_atomic(tmp_path / "missing" / "a.json", b"", "--save")
    assert "--save" in str(error.value.next_step)
