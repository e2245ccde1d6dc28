"""Directories and files of the wizard, by the XDG rules; every path in one place."""

import os
from pathlib import Path


def state_dir() -> Path:
    """Return the directory of sessions, backups and the log file: ``$XDG_STATE_HOME/ddpwizard``."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def team_knowledge_dir() -> Path:
    """Return the directory of knowledge entries added by a user or team: ``$XDG_CONFIG_HOME/ddpwizard/knowledge``."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "knowledge"


def cache_dir() -> Path:
    """Return the directory of data that can be computed again: ``$XDG_CACHE_HOME/ddpwizard``."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def sessions_dir() -> Path:
    """Return the directory of sessions, one ``<id>.jsonl`` each."""
    return state_dir() / "sessions"


def backups_dir() -> Path:
    """Return the directory of backups: the files before each apply, and the records that ``undo`` reads."""
    return state_dir() / "backups"


def log_file() -> Path:
    """Return the log file of tracebacks and debug lines."""
    return state_dir() / "ddpwizard.log"


def relative_to_cwd(path: str) -> str:
    """Return ``path`` relative to the working directory, or unchanged if it is empty or not below it."""
    return relative_to(path, Path.cwd())


def relative_to(path: str, directory: Path) -> str:
    """Return ``path`` relative to a directory, or unchanged if it is empty or not below it."""
    if not path:
        return ""
    try:
        return Path(path).absolute().relative_to(directory.absolute()).as_posix()
    except ValueError:
        return path


def _xdg(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    # By the XDG rules a relative path is ignored.
    return (Path(base) if base.startswith("/") else Path.home() / default) / "ddpwizard"
