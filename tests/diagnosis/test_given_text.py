"""The kind of a line or a paste."""

from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.given_text import classify_given, is_text


@pytest.mark.parametrize(
    ("name", "kind"), [("train.py", "script"), ("train.ipynb", "script"), ("job.log", "log"), ("out", "log")]
)
def test_path_is_a_script_a_notebook_or_a_log(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_text("x = 1\n")
    assert classify_given(str(tmp_path / name)) == (kind, str(tmp_path / name))


def test_text_has_several_words_and_names_no_file(tmp_path: Path) -> None:
    (tmp_path / "my run.log").write_text("x\n")
    assert is_text("RuntimeError: no space left in /dev/shm")
    assert not is_text(str(tmp_path / "my run.log"))
    assert not is_text("no-such.log") and not is_text("-")


@pytest.mark.parametrize("path", ["nosuch.log", "nosuch.py", "/no/such/" + "x" * 3000])
def test_path_of_no_file_is_a_path(path: str) -> None:
    assert classify_given(path).value == path
