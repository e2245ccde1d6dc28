"""The ``ddpwizard`` command, also as ``python -m ddpwizard``.

An interrupt while Python still imports it ends it silently: nothing has begun that would need an end.
"""

import os
import signal

INTERRUPTED = 130  # as ExitCode.INTERRUPTED, which is not imported yet


def main() -> None:
    """Import the command line and run it."""
    by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored, as by nohup
    if by_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from .cli import main as run

    if by_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
