"""Start a job again: its command line on a free port, its environment, and its code with the fix, or a copy of it."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..errors import UserError
from ..jobs.types import Job, Process
from ..launchers.arguments import parse_launcher
from ..launchers.rank_variables import local_world_size
from ..launchers.recognise import PythonCommand, parse_python
from ..launchers.rewrite import REPLACED, environment_to_start_again, start_again
from .types import Fix

# Left out of the copy: fetched and generated files, and files too large to be code.
NOT_COPIED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", "wandb"}
FILE_LIMIT_BYTES = 4_000_000
TREE_LIMIT_BYTES = 100_000_000
TREE_LIMIT_FILES = 4000
CODE = {".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".txt"}

BY_THEIR_PARENT = ("spawn", "frames", "order")  # sources of the rank of a spawned process


class Relaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A job ready to be started again, with the fix in ``files`` (path to text).

    Words from ``script_index`` on are the script and its arguments. ``root`` is the directory of the job's code and
    ``copy`` that of the code that runs: the same one in a private file system. ``left_out`` names files not copied.
    """

    command: list[str]
    script_index: int
    script: Path
    cwd: Path
    environ: dict[str, str]
    root: Path
    copy: Path
    files: dict[str, str] = {}
    left_out: list[str] = []

    @property
    def script_words(self) -> list[str]:
        """The script and its arguments."""
        return self.command[self.script_index :]

    def text_of(self, path: str) -> str | None:
        """Return the text of a source file as the run sees it, or None if it cannot be read."""
        if path in self.files:
            return self.files[path]
        try:
            return Path(self.in_copy(path)).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def in_copy(self, path: str | Path) -> str:
        """Return the path in the copy of a file of the original; a file outside of the original keeps its path."""
        return _moved(str(path), self.root, self.copy)

    def in_original(self, path: str) -> str:
        """Return the path in the original of a file of the copy."""
        return _moved(path, self.copy, self.root)


def plan_relaunch(job: Job, fix: Fix) -> Relaunch:
    """Return how to start the job again in its own directories, with the fix as files to be written there.

    Raises:
        UserError: The job spans several hosts, its command line is not known, or a file cannot be read.
    """
    process = next((process for process in job.processes if process.command), None)
    python = parse_python(_started_by(job, process)) if process else None
    if process is None or python is None:
        raise UserError("this job's command line is not known", "start it again yourself with the fix applied")
    local = local_world_size(process.environ)
    if local is not None and local < job.world_size:
        raise UserError(
            f"the job has {job.world_size} ranks, {local} of them on this host", "start it again yourself on all hosts"
        )
    cwd = Path(job.launcher_cwd or process.cwd).resolve()
    script = (cwd / python.target).resolve()
    root = cwd if python.is_module or script.is_relative_to(cwd) else script.parent
    head, words = _command(job, process, python)
    return Relaunch(
        command=[*head, *words],
        script_index=len(head),
        script=module_file(cwd, python.target) if python.is_module else script,
        cwd=cwd,
        environ=environment_to_start_again(process.environ, job.launcher),
        root=root,
        copy=root,
        files=changed_files(fix, cwd),
    )


def move_to_copy(relaunch: Relaunch, copy: Path) -> Relaunch:
    """Copy the job's code to ``copy``, write the fix there, and point the command and the code's own paths to it.

    Raises:
        UserError: A file of the fix is outside of the job's code.
    """
    root, cwd = relaunch.root, relaunch.cwd
    outside = next((path for path in relaunch.files if not Path(path).resolve().is_relative_to(root)), None)
    if outside:
        raise UserError(f"{outside} is outside of {root}", "start the job again yourself with the fix")
    left_out = _copy(root, copy)
    if left_out is None:
        root = relaunch.script.parent if relaunch.script_words[0].endswith(".py") else cwd
        left_out = ["everything but code and configuration"]
        shutil.rmtree(copy)
        _copy_code(root, copy)
    for path, text in relaunch.files.items():
        Path(_moved(path, root, copy)).write_text(text, encoding="utf-8")
    _redirect_own_paths(root, copy)
    words = [_moved(word, root, copy, cwd) for word in relaunch.script_words]
    return msgspec.structs.replace(
        relaunch,
        command=[*relaunch.command[: relaunch.script_index], *words],
        script=Path(_moved(str(relaunch.script), root, copy)),
        cwd=copy,
        environ=_environ_in_copy(relaunch.environ, lambda path: _moved(path, root, copy)),
        root=root,
        copy=copy,
        files={},
        left_out=left_out,
    )


def changed_files(fix: Fix, cwd: Path) -> dict[str, str]:
    """Return the text of each file of a fix: patched ones as they will be, new ones in the working directory.

    A file that was edited since the fix was made is taken as it is now: the user corrected it by hand.
    """
    found: dict[str, str] = {}
    for patch in fix.patches:
        try:
            present = Path(patch.path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read {patch.path}: {error.strerror}", "run ddpwizard triage again") from error
        if present in (patch.before, patch.after):
            found[str(Path(patch.path).resolve())] = patch.after
    return found | {str(cwd / Path(name).name): text for name, text in fix.files.items()}


def module_file(cwd: Path, module: str) -> Path:
    """Return the file of a module below a directory; a package is started by its ``__main__``."""
    base = cwd.joinpath(*module.split("."))
    return base / "__main__.py" if base.is_dir() else base.with_suffix(".py")


def _redirect_own_paths(root: Path, copy: Path) -> None:
    """Point absolute paths of the code into its own directory to the copy."""
    for path in copy.rglob("*"):
        if path.suffix in CODE and path.is_file():
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            if f"{root}/" in text:
                moved = text.replace(f"{root}/", f"{copy}/")
                path.write_text(moved, encoding="utf-8", errors="surrogateescape")


def _started_by(job: Job, process: Process) -> list[str]:
    """Return the command line that names the script: that of the rank, or of the program that spawned it."""
    return job.launcher_command if process.rank_from in BY_THEIR_PARENT else process.command


def _command(job: Job, process: Process, python: PythonCommand) -> tuple[list[str], list[str]]:
    """Return the words that start the ranks, and the script with its arguments.

    It is the launcher's own command line with another rendezvous, or the unchanged command of a program that spawns its
    ranks, or torchrun if the launcher is not known.
    """
    words = python.words[python.target_index :]
    if process.rank_from in BY_THEIR_PARENT:
        return python.words[: python.target_index], words
    line = parse_launcher(job.launcher_command)
    if line and line.launcher in REPLACED and Path(line.script).name == Path(python.target).name:
        return start_again(line), line.script_words
    flag = ["-m"] if python.is_module else []
    options = ["--standalone", f"--nproc-per-node={job.world_size}"]
    return [process.python, "-m", "torch.distributed.run", *options, *flag], words


def _environ_in_copy(environ: Mapping[str, str], move: Callable[[str], str]) -> dict[str, str]:
    """Return the environment with module paths in the copy."""
    kept = dict(environ)
    if path := kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = ":".join(move(part) for part in path.split(":"))
    return kept


def _moved(word: str, root: Path, copy: Path, cwd: Path | None = None) -> str:
    """Return a path below ``root`` as its counterpart below ``copy``, and any other word unchanged.

    A relative path counts only if it names a file relative to ``cwd`` and ``cwd`` is not the copied directory.
    """
    path = Path(word)
    if not path.is_absolute():
        if cwd is None or cwd == root or not (cwd / path).is_file():
            return word
        path = cwd / path
    inside = next((p for p in (path, path.resolve()) if p.is_relative_to(root)), None)
    return str(copy / inside.relative_to(root)) if inside else word


def _copy(root: Path, copy: Path) -> list[str] | None:
    """Copy a directory without data; return the names of files left out, or None if it is too large."""
    left_out: list[str] = []
    total_bytes = files = 0
    copy.mkdir(parents=True, exist_ok=True)
    queue = [root]
    while queue:
        directory = queue.pop()
        for entry in sorted(directory.iterdir()) if directory != copy else []:
            if entry.name in NOT_COPIED or entry == copy or (entry.is_symlink() and entry.is_dir()):
                continue
            target = copy / entry.relative_to(root)
            if entry.is_dir():
                target.mkdir(exist_ok=True)
                queue.append(entry)
            elif entry.is_file():
                size = entry.stat().st_size
                if size > FILE_LIMIT_BYTES:
                    left_out.append(str(entry.relative_to(root)))
                    continue
                total_bytes, files = total_bytes + size, files + 1
                if total_bytes > TREE_LIMIT_BYTES or files > TREE_LIMIT_FILES:
                    return None
                shutil.copyfile(entry, target)
    return left_out


def _copy_code(root: Path, copy: Path) -> None:
    copy.mkdir(parents=True, exist_ok=True)
    for entry in root.iterdir():
        if entry.is_file() and entry.suffix in CODE and entry.stat().st_size <= FILE_LIMIT_BYTES:
            shutil.copyfile(entry, copy / entry.name)
