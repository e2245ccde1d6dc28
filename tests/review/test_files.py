"""The search for files to review."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ddpwizard.app.review.files import FoundFile, files_to_review
from ddpwizard.app.review.settings import ReviewSettings
from ddpwizard.app.review.types import SkippedFile


def make(root: Path, *names: str) -> None:
    """Create files below ``root``."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def found(root: Path, *paths: str, exclude: tuple[str, ...] = (), settings: tuple[str, ...] = (), force: bool = False):
    """Return the files to review, relative to ``root``."""
    given = ReviewSettings(base=root, exclude=settings)
    items = files_to_review([root / path for path in paths or (".",)], lambda _: given, exclude, force_exclude=force)
    return [item.path.relative_to(root).as_posix() for item in items if isinstance(item, FoundFile)]


def skipped(*paths: Path) -> list[SkippedFile]:
    """Return the paths without a file to review."""
    items = files_to_review(paths, lambda _: ReviewSettings())
    return [item for item in items if isinstance(item, SkippedFile)]


def test_scripts_and_notebooks_are_found_without_third_party_folders(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "sub/b.py", "n.ipynb", ".venv/lib/c.py", "__pycache__/d.py", ".git/e.py", "notes.txt")
    make(tmp_path, ".ipynb_checkpoints/n.ipynb", "folder.py/in.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    (tmp_path / ".#a.py").symlink_to("user@host")
    assert found(tmp_path) == ["a.py", "folder.py/in.py", "n.ipynb", "sub/b.py"]


def test_directory_below_a_hidden_one_can_be_reviewed(tmp_path: Path) -> None:
    make(tmp_path, ".venv/project/a.py")
    assert found(tmp_path, ".venv/project", ".venv/project/a.py") == [".venv/project/a.py"]


def test_links_that_form_a_loop_are_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "sub/b.py")
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "self.py").symlink_to("self.py")
    assert found(tmp_path) == ["a.py", "self.py", "sub/b.py"]


def test_path_without_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (item,) = skipped(tmp_path / "empty")
    assert "no Python file in this directory" in item.message
    make(tmp_path, "a.py")
    assert skipped(tmp_path) == []


IGNORED = {
    ".gitignore": "# generated\n/build/\n*_pb2.py\n!keep_pb2.py\n!\nlogs\n",
    "sub/.gitignore": "!special_pb2.py\nlocal.py\n",
    ".git/info/exclude": "private.py\n",
}
TREE = (
    *("a.py", "x_pb2.py", "keep_pb2.py", "build/a.py", "build/keep_pb2.py", "local.py", "private.py", "logs/a.py"),
    *("sub/build/a.py", "sub/x_pb2.py", "sub/special_pb2.py", "sub/local.py", "sub/deep/local.py", "sub/deep/b.py"),
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = shutil.which("git")
    if not git:
        pytest.skip("git is not installed")
    subprocess.run([git, "init", "-q", tmp_path], check=True, timeout=60)
    make(tmp_path, *TREE)
    for name, text in IGNORED.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("below", [".", "sub", "sub/deep"])
def test_ignored_files_are_those_of_git(repository: Path, below: str) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", below],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    wanted = sorted(name for name in listed.stdout.split() if name.endswith(".py"))
    assert wanted
    assert sorted(found(repository, below)) == wanted


def test_ignored_file_or_directory_that_is_given_is_reviewed(repository: Path) -> None:
    assert found(repository, "x_pb2.py") == ["x_pb2.py"]
    assert found(repository, "build") == ["build/a.py", "build/keep_pb2.py"]


def test_exclude_patterns_refer_to_the_given_and_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.py", "gen/b.py", "src/gen/c.py", "src/d.py")
    assert found(tmp_path, exclude=("gen/",)) == ["a.py", "src/d.py"]
    assert found(tmp_path, exclude=("/gen",)) == ["a.py", "src/d.py", "src/gen/c.py"]
    assert found(tmp_path, "src", exclude=("/gen",)) == ["src/d.py"]
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path, "src", exclude=("src/gen",)) == ["src/d.py"]
    assert found(tmp_path, "src/d.py", "a.py", exclude=("src/",)) == ["a.py"]


def test_patterns_of_the_project_apply_to_given_files_only_if_forced(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "gen/b.py")
    assert found(tmp_path, settings=("gen/",)) == ["a.py"]
    assert found(tmp_path, "gen/b.py", "gen", settings=("gen/",)) == ["gen/b.py"]
    assert found(tmp_path, "a.py", "gen/b.py", "gen", settings=("gen/",), force=True) == ["a.py"]


def test_names_that_are_not_utf8_and_ignore_files_that_are_no_files(tmp_path: Path) -> None:
    name = os.fsdecode(b"b\xff.py")
    make(tmp_path, "a.py", name)
    os.mkfifo(tmp_path / ".gitignore")
    assert found(tmp_path) == ["a.py", name]
