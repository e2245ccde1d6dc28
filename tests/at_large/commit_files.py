"""The Python files of a commit, laid out in a directory as a project."""

import subprocess
from pathlib import Path

WANTED = (".py", ".ipynb")
MARKS = ("pyproject.toml", ".gitignore")
REGULAR = (b"100644", b"100755")


class NotAGitDirectory(Exception):
    """A directory without a commit."""


def lay_out(directory: Path, to: Path) -> tuple[str, str]:
    """Write the Python files in HEAD of a repository below ``to``; return the repository's name and the commit.

    Raises:
        NotAGitDirectory: There is no commit.
    """
    commit = _git(directory, "rev-parse", "HEAD").decode().strip()
    wanted = [
        (sha, path) for sha, path in _listed(directory) if path.endswith(WANTED) or path.rpartition("/")[2] in MARKS
    ]
    content = _git(directory, "cat-file", "--batch", given=b"".join(sha + b"\n" for sha, _ in wanted))
    at = 0
    for _, path in wanted:
        end = content.index(b"\n", at)
        head = content[at:end].split()
        at = end + 1
        if head[-1] == b"missing":  # a partial clone
            continue
        size = int(head[2])
        file = to / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content[at : at + size])
        at += size + 1
    (to / ".git").mkdir()  # the mark of a project, where the search for its modules ends
    return _name(directory), commit


def _listed(directory: Path) -> list[tuple[bytes, str]]:
    listed: list[tuple[bytes, str]] = []
    for entry in _git(directory, "ls-tree", "-r", "-z", "HEAD").split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if about.startswith(REGULAR):
            listed.append((about.split()[2], path.decode("utf-8", "surrogateescape")))
    return listed


def _name(directory: Path) -> str:
    """Return ``owner/name`` of the remote repository, or else of the directories."""
    try:
        url = _git(directory, "config", "--get", "remote.origin.url").decode().strip()
    except NotAGitDirectory:
        at = directory.resolve()
        url = next((each.name for each in (at, *at.parents) if "+" in each.name), at.parent.name)
    owner, _, name = url.removesuffix(".git").replace(":", "/").replace("+", "/").rpartition("/")
    return f"{owner.rpartition('/')[2]}/{name}" if owner else name


def _git(directory: Path, *arguments: str, given: bytes = b"") -> bytes:
    ran = subprocess.run(["git", "-C", str(directory), *arguments], input=given, capture_output=True)
    if ran.returncode:
        raise NotAGitDirectory(f"{directory}: {ran.stderr.decode().strip() or 'git failed'}")
    return ran.stdout
