"""Keep a run for proof away from what is the user's: files in a private file system, trackers and hubs offline."""

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from ..system import private_mounts, write_limits
from ..system.paths import relative_to_cwd
from ..system.subprocesses import run_process
from ..system.supervisor import remove_tree
from ..training_script.source import ScriptSource
from ..training_script.written_paths import (
    UNKNOWN,
    WrittenPath,
    files_of_script,
    find_unread_writers,
    find_written_paths,
)
from ..triage.types import JobReport
from .relaunch import Relaunch

SCRIPT = Path(private_mounts.__file__)
LIMIT_SCRIPT = Path(write_limits.__file__)
TRIAL_LIMIT_S = 10.0
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing answers
# Each tracker's and hub's own variable for working without a network.
OFFLINE = {
    "WANDB_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "COMET_MODE": "OFFLINE",
    "COMET_URL_OVERRIDE": NOWHERE,
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "offline",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}
HOME_DIRECTORIES = ("", ".cache", ".config", ".local/share")


def offline_environment(environ: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Return the environment with trackers and hubs offline; MLflow writes to files below ``cwd``."""
    kept = {name: value for name, value in environ.items() if name != "MLFLOW_REGISTRY_URI"}
    return {**kept, **OFFLINE, "MLFLOW_TRACKING_URI": f"file:{cwd / 'mlruns'}"}


async def private_mounts_problem(directory: Path) -> str:
    """Return why this kernel gives a run no private file system, or "" if it does. ``directory``: an empty one."""
    plan = write_plan(directory, {}, Path("/"), [])
    tried = await run_process(private_command(["true"], plan), limit_s=TRIAL_LIMIT_S)
    await asyncio.to_thread(remove_tree, directory)
    return "" if tried.status == "ok" else tried.why


def private_command(command: Sequence[str], plan: Path) -> list[str]:
    """Return the command line that runs ``command`` in the private file system of a plan."""
    return [sys.executable, "-IS", str(SCRIPT), str(plan), "--", *command]


async def write_limit_problem(directory: Path) -> str:
    """Return why this kernel cannot limit what a run writes to a directory, or "" if it can."""
    tried = await run_process(limited_command(["true"], directory), limit_s=TRIAL_LIMIT_S)
    return "" if tried.status == "ok" else tried.why


def limited_command(command: Sequence[str], directory: Path) -> list[str]:
    """Return the command line that runs ``command`` so that it can write below ``directory`` only."""
    return [sys.executable, "-IS", str(LIMIT_SCRIPT), str(directory), "--", *command]


def write_plan(directory: Path, files: Mapping[str, str], cwd: Path, writes: Iterable[str]) -> Path:
    """Write the plan of ``private_mounts`` and return its path. All that the run writes goes below ``directory``."""
    work = directory / "work"
    work.mkdir(parents=True)
    path = directory / "plan.json"
    plan = {"work": str(work), "files": dict(files), "cwd": str(cwd), "writes": list(dict.fromkeys(writes))}
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def written_paths(relaunch: Relaunch) -> list[WrittenPath]:
    """Return what the script and its own modules write, by reading them with the fix applied."""
    cwd, words, environ = str(relaunch.cwd), relaunch.script_words, relaunch.environ
    return [each for source in _sources(relaunch) for each in find_written_paths(source, cwd, words, environ)]


def _sources(relaunch: Relaunch) -> Iterator[ScriptSource]:
    for path in files_of_script(relaunch.script, [relaunch.cwd, relaunch.root]):
        try:
            text = relaunch.files.get(str(path)) or path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        yield ScriptSource.tolerant(text, str(path))


def directories_written(relaunch: Relaunch, written: Iterable[WrittenPath]) -> list[str]:
    """Return the directories that the run will write to, as far as known."""
    home, temp = relaunch.environ.get("HOME", ""), relaunch.environ.get("TMPDIR", "/tmp")
    paths = [str(Path(home) / name) for name in HOME_DIRECTORIES] if home else []
    known = [each.path.partition(UNKNOWN)[0].rstrip("/") for each in written if each.path]
    return [str(relaunch.cwd), str(relaunch.root), temp, *paths, *known, *(str(Path(path).parent) for path in known)]


def refuse_writes_outside(copied: Relaunch, problem: str) -> None:
    """Refuse a run on a copy that would write elsewhere.

    Raises:
        UserError: A path is outside of the copy, or is known only when the script runs.
    """
    for each in written_paths(copied):
        if each.path and Path(each.path.partition(UNKNOWN)[0]).is_relative_to(copied.copy):
            continue
        what = f"writes to {each.path}" if each.path else f"writes to {each.argument}, known only when it runs"
        raise _cannot_keep_apart(copied, each.file, each.line, each.call, what, problem)


def refuse_unread_writers(copied: Relaunch, problem: str) -> None:
    """Refuse a run on a copy whose writes cannot be known by reading it.

    Raises:
        UserError: It starts other programs, or changes its working directory.
    """
    for source in _sources(copied):
        for line, call, what in find_unread_writers(source):
            raise _cannot_keep_apart(copied, source.path, line, call, what, problem)


def _cannot_keep_apart(copied: Relaunch, file: str, line: int, call: str, what: str, problem: str) -> UserError:
    place = f"{relative_to_cwd(copied.in_original(file))}:{line} ({call})"
    return UserError(
        f"{place} {what}, and this machine cannot keep that apart ({problem})",
        "start the job again yourself with the fix, where nothing can be overwritten",
    )


def refuse_held_gpus(report: JobReport, memory_total_bytes: Mapping[int, int]) -> None:
    """Refuse to start on GPUs whose memory the job still holds.

    Raises:
        UserError: The run would need as much again as the job holds, and less is free; names the GPUs.
    """
    if held := filled_gpus(report, memory_total_bytes):
        names = ", ".join(map(str, held))
        raise UserError(
            f"the job still holds most memory of GPU {names}: a second one would not fit",
            "end the job first, then prove the fix",
        )


def filled_gpus(report: JobReport, memory_total_bytes: Mapping[int, int]) -> list[int]:
    """Return the GPUs on which less memory is free than the job's ranks hold; with an unknown total, those in use."""
    used = gpus_in_use(report)
    return sorted(index for index, held in used.items() if memory_total_bytes.get(index, 0) - held < held)


def gpus_in_use(report: JobReport) -> dict[int, int]:
    """Return the memory in use on each GPU of the job, as sampled: index to bytes."""
    used: dict[int, int] = {}
    for seen in report.observed.seen:
        for device in seen.devices:
            if device.memory_used_bytes:
                used[device.index] = max(used.get(device.index, 0), device.memory_used_bytes)
    return used
