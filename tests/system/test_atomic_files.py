import stat
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.system.atomic_files import replace_file
from ddpwizard.app.system.files import check_result_file, write_atomic, write_result


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


def test_result_does_not_replace_an_existing_file_without_force(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    link = tmp_path / "link"
    link.symlink_to(script)
    for target in (script, link):
        with pytest.raises(UserError, match="exists") as error:
            check_result_file(target, "--save", force=False)
        assert "--force" in str(error.value.next_step)
        with pytest.raises(UserError, match="exists"):
            write_result(target, b"{}", "--save", force=False)
    assert script.read_text() == "print(1)\n"
    write_result(link, b"{}", "--save", force=True)
    assert (link.is_symlink(), script.read_bytes()) == (True, b"{}")
    write_result(tmp_path / "new.json", b"{}", "--save", force=False)
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new.json", "train.py"]
