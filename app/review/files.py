"""The files to review: scripts and notebooks that are given or below a given directory, without ignored ones."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UserError
from ..system.files import read_regular_file
from .settings import ReviewSettings
from .types import SkippedFile

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ENDINGS = (".py", ".ipynb")
NOT_OURS = {".venv", "venv", ".git", "__pycache__", "node_modules", "site-packages", ".tox", ".eggs"}
NOT_OURS |= {".ipynb_checkpoints"}
EDITOR_LOCK = ".#"  # how the name of a lock file of Emacs begins: a symbolic link to nowhere
NO_FILE = "give a script, or the directory it is in"
IGNORE_FILE = ".gitignore"
LIMIT_BYTES = 1024 * 1024


class Patterns(NamedTuple):
    """Patterns in the syntax of ``.gitignore``, and the directory that they refer to."""

    base: str
    spec: "GitIgnoreSpec"

    def ignored(self, path: str) -> bool | None:
        """Return whether a file below ``base`` (a directory ends with a slash) is ignored; None: no pattern says."""
        inside = path[len(self.base) :].lstrip("/") if path.startswith(self.base.rstrip("/") + "/") else ""
        return self.spec.check_file(inside).include if inside else None


class FoundFile(NamedTuple):
    """A file to review, and the settings of its project."""

    path: Path
    settings: ReviewSettings


def files_to_review(
    paths: Iterable[Path],
    settings_of: Callable[[Path], ReviewSettings],
    exclude: Sequence[str] = (),
    *,
    force_exclude: bool = False,
) -> Iterator[FoundFile | SkippedFile]:
    """Yield the files to review, each once, and a line for each path that holds none.

    ``exclude`` are patterns that refer to the working directory and to each given directory. The patterns of the
    settings leave out files below a directory, and with ``force_exclude`` given files as well.
    """
    seen: set[str] = set()
    for path in paths:
        directory = _is_directory(path)
        top = path if directory else path.parent
        settings = settings_of(top)
        base = str(top.resolve())
        never = patterns(str(Path.cwd()), exclude) + (patterns(base, exclude) if directory else [])
        project = patterns(str(settings.base.resolve()), settings.exclude)
        if not directory:
            excluded = _is_ignored(f"{base}/{path.name}", [*never, *(project if force_exclude else [])])
            found: Iterable[Path | SkippedFile] = [] if excluded else [path]
        else:
            if force_exclude and _is_ignored(base + "/", project):
                continue
            found = [*_below(path, base, [*never, *project])] or [
                SkippedFile(str(path), f"{path}: no Python file in this directory that is not ignored", NO_FILE)
            ]
        for item in found:
            if isinstance(item, SkippedFile):
                yield item
            elif (real := os.path.realpath(item)) not in seen:
                seen.add(real)
                yield FoundFile(item, settings)


def patterns(base: str, lines: Sequence[str]) -> list[Patterns]:
    """Return the patterns of some lines, or [] if there are none; a line that is not valid counts for nothing."""
    wanted = [line for line in lines if line.strip() and not line.startswith("#")]
    if not wanted:
        return []
    from pathspec import GitIgnoreSpec  # 70 ms, only where there are patterns

    try:
        return [Patterns(base, GitIgnoreSpec.from_lines(wanted))]
    except ValueError:
        return [each for line in wanted if len(wanted) > 1 for each in patterns(base, [line])]


def _below(top: Path, base: str, excluded: list[Patterns]) -> Iterator[Path | SkippedFile]:
    """Yield the files below a directory in order; links to directories are not followed."""
    pending: list[tuple[Path, str, list[Patterns], bool]] = [(top, base, _ignored_above(base), True)]
    while pending:
        path, absolute, ignored, is_directory = pending.pop()
        if not is_directory:
            yield path
            continue
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            yield SkippedFile(str(path), f"{path}: {error.strerror}", "give a directory that can be read")
            continue
        if any(entry.name == IGNORE_FILE for entry in entries):
            ignored = [*ignored, *_ignore_file(absolute, IGNORE_FILE)]
        for entry in entries:
            inside, directory = f"{absolute.rstrip('/')}/{entry.name}", entry.is_dir(follow_symlinks=False)
            if not (entry.name not in NOT_OURS if directory else _is_source(entry.name)):
                continue
            name = inside + "/" if directory else inside
            if not (_is_ignored(name, excluded) or _is_ignored(name, ignored)):
                pending.append((path / entry.name, inside, ignored, directory))


def _is_source(name: str) -> bool:
    return name.endswith(ENDINGS) and not name.startswith(EDITOR_LOCK)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # of a directory above that cannot be read
        return False


def _is_ignored(path: str, by: Sequence[Patterns]) -> bool:
    """Return whether a path is ignored: the last patterns that match it decide."""
    return bool(next((found for each in reversed(by) if (found := each.ignored(path)) is not None), False))


def _ignored_above(base: str) -> list[Patterns]:
    """Return the ignore files of the repository above a directory; none if they ignore the directory itself."""
    above = Path(base)
    found: list[Patterns] = []
    while not os.path.lexists(above / ".git"):
        if above == above.parent:
            return []
        above = above.parent
        found = [*_ignore_file(str(above), IGNORE_FILE), *found]
    found = [*_ignore_file(str(above), ".git/info/exclude"), *found]
    return [] if _is_ignored(base + "/", found) else found


def _ignore_file(directory: str, name: str) -> list[Patterns]:
    path = Path(directory, name)
    try:
        content = read_regular_file(path, LIMIT_BYTES, "") if os.path.lexists(path) else b""
    except UserError:
        return []
    return patterns(directory, os.fsdecode(content).splitlines())
