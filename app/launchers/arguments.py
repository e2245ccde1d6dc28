"""What a launcher was asked for, from its command line and the variables that stand in for its options.

Options and their variables (``--nnodes``, ``PET_NNODES``) are those of torch 2.13, distributed/run.py; those of
``accelerate launch`` (1.15, commands/launch.py) and DeepSpeed's number of nodes are taken for the same.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from .recognise import target_index

END_OF_OPTIONS = ("-m", "--module", "--no-python", "--no_python", "--")
DEVICES = Path("/dev")
GPU = re.compile(r"nvidia\d+$")
SAME = {
    "num-machines": "nnodes",
    "num-nodes": "nnodes",
    "machine-rank": "node-rank",
    "main-process-ip": "master-addr",
    "main-process-port": "master-port",
}


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a launcher was asked for: how many nodes, how many ranks on each (None: as many as it finds GPUs or cores),
    and where they meet."""

    least_nodes: int = 1
    most_nodes: int = 1
    ranks_per_node: int | None = 1
    node_rank: int | None = None
    endpoint: str = ""
    run_id: str = ""
    launchers: list[int] = []  # the pids of those that were asked the same on this host


def launch_request(command: Sequence[str], environ: Mapping[str, str]) -> LaunchRequest:
    """How many nodes and ranks it is to start, and where its nodes meet."""
    given = {name.lower().replace("_", "-"): value for name, value in _variables(environ)} | dict(_options(command))
    given |= {name: given[other] for other, name in SAME.items() if other in given}
    least, _, most = given.get("nnodes", "1").partition(":")
    if whole := _number(given.get("num-processes", "")):  # accelerate's, of all nodes
        given["nproc-per-node"] = str(whole // (_number(least) or 1))
    return LaunchRequest(
        least_nodes=_number(least) or 1,
        most_nodes=_number(most or least) or 1,
        ranks_per_node=_ranks(given.get("nproc-per-node", "1"), environ),
        node_rank=_number(given["node-rank"]) if "node-rank" in given and not given.get("rdzv-endpoint") else None,
        endpoint=given.get("rdzv-endpoint") or _master(given),
        run_id=given.get("rdzv-id", ""),
    )


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((name[4:], value) for name, value in environ.items() if name.startswith("PET_"))


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The launcher's own options, up to the script."""
    words = list(command[(target_index(command) or 0) + 1 :])
    for index, word in enumerate(words):
        if word in END_OF_OPTIONS or word.endswith(".py"):
            return
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            after = words[index + 1] if index + 1 < len(words) else ""
            yield name[2:].replace("_", "-"), value if equals else after


def _master(given: Mapping[str, str]) -> str:
    address = given.get("master-addr", "")
    return f"{address}:{given.get('master-port', '29500')}" if address else ""


def _ranks(word: str, environ: Mapping[str, str]) -> int | None:
    """The ranks of one node: a number, or one for each GPU or core (``auto``: GPUs where there are any)."""
    if (number := _number(word)) is not None:
        return number
    gpus = _gpus(environ) if word in ("gpu", "auto") else 0
    return gpus or (os.cpu_count() if word in ("cpu", "auto") else None)


def _gpus(environ: Mapping[str, str]) -> int:
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([word for word in visible.split(",") if word.strip()])
    return len([entry for entry in DEVICES.iterdir() if GPU.match(entry.name)])


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 7 else None
