"""The signals that the watchdog receives and hands on to the job."""

import os
import signal

from ..system import proc_files

AGAIN_S = 1.0  # the same signal is forwarded once within this time: one to the process group reaches the job as well
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HANDLED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
FROM_KERNEL = 0x80  # SI_KERNEL, asm-generic/siginfo.h: sent by the terminal, also to the job


def is_for_us_alone(received: signal.struct_siginfo) -> bool:
    """Return whether the job did not get this signal as well.

    A terminal signals its whole foreground group, but its hang-up goes to the session leader only.
    """
    hung_up = received.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
    return received.si_code != FROM_KERNEL or hung_up


def has_handler(pid: int, number: int) -> bool:
    """Return whether the process has a handler for this signal."""
    line = next(
        (line for line in proc_files.read_text_of(pid, "status").splitlines() if line.startswith("SigCgt:")),
        "SigCgt: 0",
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
