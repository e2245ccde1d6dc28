"""Exit codes of the commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the commands. ``ddpwizard run`` returns the exit code of the job instead."""

    OK = 0  # nothing found
    FOUND = 1  # something found
    USAGE = 2  # wrong usage or unreadable input
    NOT_INSPECTED = 3  # the machine or the process could not be inspected
    INTERRUPTED = 130  # Ctrl-C
    OUTPUT_CLOSED = 141  # the reader of the output has ended, as with SIGPIPE
