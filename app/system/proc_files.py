"""Files of one process in /proc: empty or None if the process is gone or a file may not be read."""

from pathlib import Path

PROC = Path("/proc")


def read_bytes_of(pid: int, name: str) -> bytes:
    """Return the content of a file in the process's directory."""
    try:
        return Path(f"{PROC}/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def read_text_of(pid: int, name: str) -> str:
    """Return the text of a file in the process's directory."""
    return read_bytes_of(pid, name).decode(errors="replace")


def read_link_of(pid: int, name: str) -> str:
    """Return the target of a link in the process's directory."""
    try:
        return str(Path(f"{PROC}/{pid}/{name}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def stat_fields(pid: int, name: str = "stat") -> list[str]:
    """Return the fields of a stat file after the command name (proc(5)), or an empty list if the process is gone."""
    # The command name in brackets may hold blanks and brackets itself: split after the last one.
    return read_bytes_of(pid, name).rpartition(b")")[2].decode(errors="replace").split()


def process_state(pid: int) -> str:
    """Return the state letter of a process (proc(5)), or "" if it has ended."""
    return next(iter(stat_fields(pid)), "")


def pid_inside(pid: int) -> int | None:
    """Return the pid in the process's own pid namespace (NSpid, proc(5)), or None if it shares ours."""
    line = next((line for line in read_text_of(pid, "status").splitlines() if line.startswith("NSpid:")), "")
    numbers = line.split()[1:]
    return int(numbers[-1]) if len(numbers) > 1 else None


def host_path(pid: int, path: str) -> list[Path]:
    """Return the candidates for a path that a process names: in its container's file system, then in ours."""
    return [PROC / str(pid) / "root" / path.lstrip("/"), Path(path)]


def user_of(pid: int) -> int | None:
    """Return the user id of a process, or None if it is gone."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
