import shutil
import subprocess
from pathlib import Path

import pytest
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.text.diff import unified_diff
from ddpwizard.app.text.terminal import print_patch

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CASES = {
    "plain": ("train.py", "a\nb\nc\n", "a\nB\nc\n"),
    "sub-directory": ("jobs/run 1/train.py", "a\nb\nc\n", "a\nB\nc\n"),
    "crlf": ("train.py", "a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    "crlf without final newline": ("jobs/train.py", "a\r\nb", "a\r\nB"),
    "no final newline": ("train.py", "a\nb", "a\nb\nc"),
    "final newline added": ("train.py", "a\nb", "a\nb\n"),
    "blank context lines": ("train.py", "\n\na\n\n\n", "\n\nB\n\n\n"),
    "lone carriage return": ("train.py", "a\rb\nc\n", "a\rb\nC\n"),
    "form feed and line separator": ("train.py", "x\x0cy\u2028z\nb\n", "x\x0cy\u2028z\nB\n"),
    "non-ASCII": ("größe/train.py", "größe\n", "Größe\n"),
    "new content": ("train.py", "", "new\n"),
}
# A terminal shows no control character, so these cannot be applied as printed.
PRINTABLE = sorted(CASES.keys() - {"lone carriage return", "form feed and line separator"})


def _git_apply(directory: Path, diff: bytes, *options: str) -> None:
    command = ["git", "apply", *options, "-"]
    subprocess.run(command, input=diff, cwd=directory, check=True, capture_output=True, timeout=180)


@needs_git
@pytest.mark.parametrize("name", sorted(CASES))
def test_fix_diff_applies_with_git(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before, after = CASES[name]
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(before.encode())
    monkeypatch.chdir(tmp_path)
    patches = [FilePatch(path=str(target), before=before, after=after)]
    diff = Fix(id="f", cause="c", title="t", safety="safe", patches=patches).diff()
    _git_apply(tmp_path, diff.encode(), "--check")
    _git_apply(tmp_path, diff.encode())
    assert target.read_bytes() == after.encode()


@needs_git
@pytest.mark.parametrize("name", PRINTABLE)
def test_printed_diff_applies_with_git(name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path, before, after = CASES[name]
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(before.encode())
    print_patch(unified_diff(before, after, path))
    _git_apply(tmp_path, capfdbinary.readouterr().out, "--check")


def test_no_change_gives_no_diff() -> None:
    assert unified_diff("a\n", "a\n", "t.py") == ""


def test_path_outside_the_working_directory_stays_absolute() -> None:
    assert unified_diff("a\n", "b\n", "/data/t.py").splitlines()[:2] == ["--- /data/t.py", "+++ /data/t.py"]
