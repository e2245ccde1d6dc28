"""What /proc tells of a process beside its stat: the bytes it moved and where in the kernel it sleeps."""

import re

from ..find import procfile


def io_bytes(pid: int) -> tuple[int, int]:
    """Bytes read and written so far, through any read() and write() (proc(5), rchar and wchar); zeros where refused."""
    found = dict(re.findall(r"^(\w+): (\d+)$", procfile.text(pid, "io"), re.MULTILINE))
    return int(found.get("rchar", 0)), int(found.get("wchar", 0))


def waits_in(pid: int) -> str:
    """The kernel function its main thread sleeps in; empty where it runs or the kernel does not tell us.

    Kernels without symbols for wchan show it on the kernel stack, which needs root.
    """
    wchan = procfile.text(pid, "wchan")
    if wchan not in ("", "0"):
        return wchan.partition(".")[0]  # without what the compiler added: poll_schedule_timeout.constprop.0
    top = re.match(r"\[<\w+>\] (\w+)", procfile.text(pid, "stack"))
    return top[1] if top else ""


def name(pid: int) -> str:
    """What its main thread is called: the program, unless it gave itself another name."""
    return procfile.text(pid, "comm").rstrip("\n")
