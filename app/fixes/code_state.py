"""The code of a job as a run for proof reads it, to notice that it changes during the run or after it."""

from collections.abc import Mapping
from pathlib import Path

from ..system.files import content_digest
from ..training_script.written_paths import files_of_script
from .relaunch import Relaunch

CONFIGURATION = {".yaml", ".yml", ".toml", ".cfg", ".ini"}


def code_files(relaunch: Relaunch) -> list[Path]:
    """Return the script, the modules of the job that it imports, and the configuration in the job's directory."""
    files = files_of_script(relaunch.script, [relaunch.cwd, relaunch.root])
    return files + [path for path in sorted(relaunch.root.iterdir()) if path.suffix in CONFIGURATION]


def read_code_state(relaunch: Relaunch) -> dict[str, list[str]]:
    """Return the digests of each file of the code (path to digests): as it is, and as the fix has it."""
    state = {str(path): [_digest(path)] for path in code_files(relaunch)}
    for path, text in relaunch.files.items():
        state.setdefault(path, [_digest(Path(path))]).append(content_digest(text.encode()))
    return state


def changed_since_state(state: Mapping[str, list[str]]) -> list[str]:
    """Return the files that differ from all that ``state`` has of them."""
    return [path for path, digests in state.items() if _digest(Path(path)) not in digests]


def _digest(path: Path) -> str:
    """Return the digest of a file, "" if it cannot be read."""
    try:
        return content_digest(path.read_bytes())
    except OSError:
        return ""
