"""Where the wizard keeps things, by the XDG rules; every path in one place."""

import os
from pathlib import Path


def state_dir() -> Path:
    """Sessions, backups, the log file: ``$XDG_STATE_HOME/ddpwizard``."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def team_knowledge_dir() -> Path:
    """Entries a person or team added: ``$XDG_CONFIG_HOME/ddpwizard/knowledge``."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "knowledge"


def cache_dir() -> Path:
    """What can be made anew at any time: ``$XDG_CACHE_HOME/ddpwizard``."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def sessions_dir() -> Path:
    """One ``<id>.jsonl`` per session."""
    return state_dir() / "sessions"


def backups_dir() -> Path:
    """What was there before an apply, and the record that lets ``undo`` find it."""
    return state_dir() / "backups"


def log_file() -> Path:
    """Where tracebacks and debug lines go."""
    return state_dir() / "ddpwizard.log"


def relative_to_cwd(path: str) -> str:
    """Return ``path`` relative to the working directory, or unchanged if it is not below it."""
    try:
        return Path(path).absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path


def _xdg(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / default) / "ddpwizard"
