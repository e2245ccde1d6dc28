"""Start a job again on a copy: its files, its command line on a free port, its environment."""

import shutil
from collections.abc import Callable
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
    """A job ready to be started on a copy. ``root`` is the copied directory, ``left_out`` names files not copied."""

    command: list[str]
    cwd: Path
    environ: dict[str, str]
    root: Path
    copy: Path
    left_out: list[str]

    def in_copy(self, path: str | Path) -> str:
        """Return the path in the copy of a file of the original; a file outside of the original keeps its path."""
        return _moved(str(path), self.root, self.copy)


def prepare_relaunch(job: Job, fix: Fix, copy: Path) -> Relaunch:
    """Copy the job's files to ``copy``, apply the fix there, and work out how to start it.

    Raises:
        UserError: The job spans several hosts, a file changed since the fix was made, or the code cannot be copied.
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
    left_out = _copy(root, copy)
    if left_out is None:
        root, left_out = (cwd if python.is_module else script.parent), ["everything but code and configuration"]
        shutil.rmtree(copy)
        _copy_code(root, copy)
    relaunch = Relaunch(
        command=_command(job, process, python, lambda word: _moved(word, root, copy, cwd)),
        cwd=copy,
        environ=_environ(process, job.launcher, lambda path: _moved(path, root, copy)),
        root=root,
        copy=copy,
        left_out=left_out,
    )
    _patch(fix, relaunch)
    return relaunch


def _patch(fix: Fix, relaunch: Relaunch) -> None:
    for patch in fix.patches:
        target = Path(relaunch.in_copy(patch.path))
        if target == Path(patch.path):
            raise UserError(f"{patch.path} is outside of {relaunch.root}", "start the job again yourself with the fix")
        try:
            present = target.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read {patch.path}: {error.strerror}", "run ddpwizard triage again") from error
        if present not in (patch.before, patch.after):
            raise UserError(f"{patch.path} changed since the fix was made", "run ddpwizard triage again for a new fix")
        target.write_text(patch.after, encoding="utf-8")
    for name, text in fix.files.items():
        (relaunch.copy / Path(name).name).write_text(text, encoding="utf-8")


def _started_by(job: Job, process: Process) -> list[str]:
    """Return the command line that names the script: that of the rank, or of the program that spawned it."""
    return job.launcher_command if process.rank_from in BY_THEIR_PARENT else process.command


def _command(job: Job, process: Process, python: PythonCommand, move: Callable[[str], str]) -> list[str]:
    """Return the command that starts the copy.

    It is the launcher's own command line with another rendezvous, or the unchanged command of a program that spawns its
    ranks, or torchrun if the launcher is not known.
    """
    moved = [move(word) for word in python.words[python.target_index :]]
    if process.rank_from in BY_THEIR_PARENT:
        return [*python.words[: python.target_index], *moved]
    line = parse_launcher(job.launcher_command)
    if line and line.launcher in REPLACED and Path(line.script).name == Path(python.target).name:
        return [*start_again(line), *(move(word) for word in line.script_words)]
    flag = ["-m"] if python.is_module else []
    options = ["--standalone", f"--nproc-per-node={job.world_size}"]
    return [process.python, "-m", "torch.distributed.run", *options, *flag, *moved]


def _environ(process: Process, launcher: str, move: Callable[[str], str]) -> dict[str, str]:
    """Return the rank's environment without its launcher's variables, with module paths in the copy."""
    kept = environment_to_start_again(process.environ, launcher)
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
