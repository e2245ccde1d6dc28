"""Use of a process beyond its stat file: bytes read and written, and the kernel function it sleeps in."""

import re

from . import proc_files


def read_io_bytes(pid: int) -> tuple[int, int]:
    """Return the bytes read and written so far (proc(5), rchar and wchar), or zeros if the kernel refuses."""
    found = dict(re.findall(r"^(\w+): (\d+)$", proc_files.read_text_of(pid, "io"), re.MULTILINE))
    return int(found.get("rchar", 0)), int(found.get("wchar", 0))


def kernel_wait_function(pid: int) -> str:
    """Return the kernel function in which the main thread sleeps, or "" if it runs or the kernel hides it.

    Kernels without symbols for wchan show it on the kernel stack, which needs root.
    """
    wchan = proc_files.read_text_of(pid, "wchan")
    if wchan not in ("", "0"):
        return wchan.partition(".")[0]  # without what the compiler added: poll_schedule_timeout.constprop.0
    top = re.match(r"\[<\w+>\] (\w+)", proc_files.read_text_of(pid, "stack"))
    return top[1] if top else ""


def main_thread_name(pid: int) -> str:
    """Return the name of the main thread: that of the program, unless the process changed it."""
    return proc_files.read_text_of(pid, "comm").rstrip("\n")
