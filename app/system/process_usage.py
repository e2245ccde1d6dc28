"""What /proc tells of a process beside its stat: the bytes it moved and where in the kernel it sleeps."""

import re

from . import proc_files


def read_io_bytes(pid: int) -> tuple[int, int]:
    """Bytes read and written so far, through any read() and write() (proc(5), rchar and wchar); zeros where refused."""
    found = dict(re.findall(r"^(\w+): (\d+)$", proc_files.read_text_of(pid, "io"), re.MULTILINE))
    return int(found.get("rchar", 0)), int(found.get("wchar", 0))


def kernel_wait_function(pid: int) -> str:
    """The kernel function its main thread sleeps in; empty where it runs or the kernel does not tell us.

    Kernels without symbols for wchan show it on the kernel stack, which needs root.
    """
    wchan = proc_files.read_text_of(pid, "wchan")
    if wchan not in ("", "0"):
        return wchan.partition(".")[0]  # without what the compiler added: poll_schedule_timeout.constprop.0
    top = re.match(r"\[<\w+>\] (\w+)", proc_files.read_text_of(pid, "stack"))
    return top[1] if top else ""


def main_thread_name(pid: int) -> str:
    """What its main thread is called: the program, unless it gave itself another name."""
    return proc_files.read_text_of(pid, "comm").rstrip("\n")
