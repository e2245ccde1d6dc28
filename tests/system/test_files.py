"""Reading files that users name."""

import os
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.system.files import read_regular_file

NEXT_STEP = "name another file"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.txt"
    path.write_bytes(b"12345")
    return path


def test_content_up_to_the_limit(file: Path) -> None:
    assert read_regular_file(file, 5, NEXT_STEP) == b"12345"
    with pytest.raises(UserError, match=r"t\.txt has more than 4 bytes"):
        read_regular_file(file, 4, NEXT_STEP)


def test_link_to_a_file_is_read(file: Path) -> None:
    (file.parent / "link").symlink_to(file)
    assert read_regular_file(file.parent / "link", 5, NEXT_STEP) == b"12345"


@pytest.mark.parametrize("name", ["pipe", "directory", "/dev/null"])
def test_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    with pytest.raises(UserError, match=f"{name} is not a regular file") as refused:
        read_regular_file(tmp_path / name, 5, NEXT_STEP)
    assert refused.value.next_step == NEXT_STEP


def test_missing_file_and_impossible_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*gone: No such file or directory"):
        read_regular_file(tmp_path / "gone", 5, NEXT_STEP)
    with pytest.raises(UserError, match="is not a path"):
        read_regular_file(Path("a\0b"), 5, NEXT_STEP)
