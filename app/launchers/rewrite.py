"""Rewrite a launcher's command line and environment so that the same job starts again on this machine."""

import socket
from collections.abc import Mapping

from .arguments import LauncherCommand
from .rank_variables import LAUNCH_VARIABLES, TORCHRUN_OPTION_PREFIX, without_launch_variables

# Options that get a new value at a second start: where its ranks meet, and where the launcher writes its logs.
_TORCHRUN_REPLACED = """
    standalone nnodes node-rank local-addr master-addr master-port log-dir
    rdzv-endpoint rdzv-backend rdzv-id rdzv-conf
"""
REPLACED = {
    "torchrun": frozenset(_TORCHRUN_REPLACED.split()),
    "accelerate": frozenset(["main-process-ip", "main-process-port"]),
    "deepspeed": frozenset(["master-addr", "master-port"]),
}


def find_free_port() -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_again(line: LauncherCommand) -> list[str]:
    """Return the words that start the same ranks at another rendezvous, up to the script.

    ``line`` must be one of the launchers in REPLACED.
    """
    rendezvous_options = {
        "torchrun": lambda: "--standalone",
        "accelerate": lambda: f"--main_process_port={find_free_port()}",
        "deepspeed": lambda: f"--master_port={find_free_port()}",
    }
    replaced = REPLACED[line.launcher]
    kept = [word for option in line.options if not line.names(option, replaced) for word in option.words]
    return [*line.head, rendezvous_options[line.launcher](), *kept]


def environment_to_start_again(environ: Mapping[str, str], launcher: str) -> dict[str, str]:
    """Return the environment of a rank without what its launcher set, for a second start by ``launcher``.

    torchrun's options that are given as variables (``PET_NPROC_PER_NODE``) stay, except for those replaced.
    """
    if launcher != "torchrun":
        return without_launch_variables(environ)
    replaced = {f"{TORCHRUN_OPTION_PREFIX}{name.upper().replace('-', '_')}" for name in REPLACED["torchrun"]}
    return {name: value for name, value in environ.items() if name not in LAUNCH_VARIABLES and name not in replaced}
