"""Run a command that may write below some directories only: the kernel refuses all else (Landlock, Linux 5.13).

Run as a script by ``app/fixes/sandbox.py`` (standard library only), where the kernel gives no private file system::

    python -IS write_limits.py DIRECTORY… -- COMMAND…

Shared memory and devices stay writable, which a job needs. Modes, owners and times of files are not limited. If the
kernel has no Landlock, nothing is started: exit code 125 and the reason.
"""

import ctypes
import os
import sys

EXIT_CODE = 125
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on every architecture
VERSION_FLAG, BELOW_A_PATH, NO_NEW_PRIVILEGES = 1, 1, 38
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
SINCE_VERSION = {2: REFER, 3: TRUNCATE}
SHARED = ("/dev", "/proc")
libc = ctypes.CDLL(None, use_errno=True)


class Ruleset(ctypes.Structure):
    """struct landlock_ruleset_attr of version 1."""

    _fields_ = [("handled", ctypes.c_uint64)]


class PathRule(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def call(name: str, *arguments: object) -> int:
    """Make a call of libc, and return its result.

    Raises:
        OSError: The kernel refuses.
    """
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result


def limit_writes(directories: "list[str]") -> None:
    """Refuse this process and its children each write that is not below ``directories``.

    Raises:
        OSError: The kernel has no Landlock, or a directory does not exist.
    """
    version = call("syscall", CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)
    handled = WRITE_FILE | MAKE_AND_REMOVE | sum(right for since, right in SINCE_VERSION.items() if version >= since)
    ruleset = Ruleset(handled)
    rules = call("syscall", CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0)
    for path in [*directories, *filter(os.path.isdir, SHARED)]:
        rule = PathRule(handled, os.open(path, os.O_PATH | os.O_DIRECTORY))
        call("syscall", ADD_RULE, rules, BELOW_A_PATH, ctypes.byref(rule), 0)
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call("syscall", RESTRICT_SELF, rules, 0)


def main() -> None:
    end = sys.argv.index("--")
    try:
        limit_writes(sys.argv[1:end])
    except OSError as error:
        print(f"no limit of writes: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    command = sys.argv[end + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
