"""The files that /proc has of a process, as they are: empty or None where it is gone or a file may not be read."""

from pathlib import Path

PROC = Path("/proc")


def read_bytes_of(pid: int, name: str) -> bytes:
    """The bytes of a file in its directory."""
    try:
        return Path(f"{PROC}/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def read_text_of(pid: int, name: str) -> str:
    """The text of a file in its directory."""
    return read_bytes_of(pid, name).decode(errors="replace")


def read_link_of(pid: int, name: str) -> str:
    """Where a link in its directory leads."""
    try:
        return str(Path(f"{PROC}/{pid}/{name}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def stat_fields(pid: int, name: str = "stat") -> list[str]:
    """The fields of a stat file of /proc behind the name in brackets (proc(5)); none where the process is gone."""
    # The command name in brackets may hold blanks and brackets itself: split after the last one.
    return read_bytes_of(pid, name).rpartition(b")")[2].decode(errors="replace").split()


def process_state(pid: int) -> str:
    """Return the state letter of a process (proc(5)), or "" if it has ended."""
    return next(iter(stat_fields(pid)), "")


def pid_inside(pid: int) -> int | None:
    """Its pid in its own pid namespace, where that is another than ours (NSpid, proc(5))."""
    line = next((line for line in read_text_of(pid, "status").splitlines() if line.startswith("NSpid:")), "")
    numbers = line.split()[1:]
    return int(numbers[-1]) if len(numbers) > 1 else None


def host_path(pid: int, path: str) -> list[Path]:
    """Where a path that a process names may lie for us: in its container's file system, else in ours."""
    return [PROC / str(pid) / "root" / path.lstrip("/"), Path(path)]


def user_of(pid: int) -> int | None:
    """The user a process runs as, or None where it is gone."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
