"""Rewrite a launcher's command line so that the same job starts again on this machine."""

import socket
from collections.abc import Callable, Sequence

# Where the ranks meet is chosen anew; logs of the launcher are not written into the person's directory.
TORCHRUN_DROPPED = ["standalone", "nnodes", "node-rank", "local-addr", "master-addr", "master-port", "log-dir"]


ACCELERATE_DROPPED = ["main-process-ip", "main-process-port"]


DEEPSPEED_DROPPED = ["master-addr", "master-port"]


WITHOUT_VALUE = ["standalone"]


def _without(options: Sequence[str], dropped: Sequence[str]) -> list[str]:
    left: list[str] = []
    skip = False
    for word in options:
        if skip:
            skip = False
            continue
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        if word.startswith("-") and name in dropped:
            skip = "=" not in word and name not in WITHOUT_VALUE
        else:
            left.append(word)
    return left


def find_free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


DROPPED: dict[str, tuple[list[str], Callable[[], list[str]]]] = {
    "torchrun": (TORCHRUN_DROPPED, lambda: ["--standalone"]),
    "accelerate": (ACCELERATE_DROPPED, lambda: [f"--main_process_port={find_free_port()}"]),
    "deepspeed": (DEEPSPEED_DROPPED, lambda: [f"--master_port={find_free_port()}"]),
}
