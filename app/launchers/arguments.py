"""Parse command lines of launchers: their options, the script they start, and how many ranks they are to start.

Options are those of torch 2.13 (distributed/run.py), Accelerate 1.15 (commands/launch.py), DeepSpeed 0.19
(launcher/runner.py and launch.py), Open MPI 5 and Hydra (mpirun) and Slurm 24 (srun).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..text.numbers import parse_count
from .rank_variables import TORCHRUN_OPTION_PREFIX
from .recognise import find_launcher

DEVICES = Path("/dev")
GPU = re.compile(r"nvidia\d+$")
DEFAULT_PORT = "29500"
PYTHON_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")

# Options without a value, by launcher: "_" as "-", without the leading dashes.
_TORCHRUN_FLAGS = "help standalone module no-python run-path virtual-local-rank use-env"
_ACCELERATE_FLAGS = """
    help quiet cpu multi-gpu tpu enable-cpu-affinity dynamo-use-fullgraph dynamo-use-dynamic
    dynamo-use-regional-compilation use-deepspeed use-fsdp use-parallelism-config use-megatron-lm same-network
    module no-python tpu-cluster no-tpu-cluster tpu-use-sudo downcast-bf16 fp8-use-autocast-during-eval debug
"""
_DEEPSPEED_FLAGS = """
    help module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid bind-cores-to-rank quiet
"""
_MPIRUN_FLAGS = """
    help version verbose quiet allow-run-as-root bind-to-core bind-to-none bycore bynode byslot display-allocation
    display-map do-not-launch do-not-resolve enable-recovery get-stack-traces info l nolocal nooversubscribe
    noprefix novm oversubscribe pernode preload-binary prepend-rank print-rank-map q report-bindings tag-output
    timestamp-output use-hwthread-cpus v V h s genvall genvnone envall envnone
"""
_SRUN_FLAGS = """
    help usage version verbose quiet unbuffered label overcommit oversubscribe share no-allocate hold exclusive
    immediate kill-on-bad-exit no-kill pty propagate x11 contiguous disable-status exact overlap preserve-env
    reboot test-only multi-prog spread-job use-min-nodes whole segment-all h u l O s Q v X H Z E V k I K
"""
FLAGS = {
    launcher: frozenset(names.split())
    for launcher, names in (
        ("torchrun", _TORCHRUN_FLAGS),
        ("accelerate", _ACCELERATE_FLAGS),
        ("deepspeed", _DEEPSPEED_FLAGS),
        ("mpirun", _MPIRUN_FLAGS),
        ("srun", _SRUN_FLAGS),
    )
}
# DeepSpeed's runner starts its launch.py, where this option has a value.
RUNNER_ONLY_FLAGS = frozenset(["save-pid"])
TWO_VALUES = frozenset(["mca", "gmca", "omca", "pmca", "prtemca", "gprtemca", "pmixmca", "gpmixmca", "genv", "env"])
SHORT_NAMES = {
    "torchrun": {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
    "accelerate": {"h": "help", "q": "quiet", "m": "module", "t": "tee"},
    "deepspeed": {"h": "help", "q": "quiet", "H": "hostfile", "i": "include", "e": "exclude"},
    "mpirun": {},
    "srun": {"n": "ntasks", "N": "nodes", "c": "cpus-per-task", "G": "gpus"},
}
SAME_OPTION = {"num-accelerators": "num-gpus", "n": "np"}  # two spellings of one option
ONE_PER_GPU = ("accelerate", "deepspeed")  # as many ranks as GPUs, unless given; torchrun starts one
ABBREVIATING = ("torchrun", "deepspeed")  # argparse's default; Accelerate switches it off
RENDEZVOUS_OPTIONS = {name: name for name in ("node-rank", "master-addr", "master-port")}
# Options that say how many ranks start and where they meet, with torchrun's name of each.
QUANTITIES = {
    "torchrun": RENDEZVOUS_OPTIONS | {name: name for name in ("nnodes", "nproc-per-node", "rdzv-endpoint", "rdzv-id")},
    "accelerate": {
        "num-machines": "nnodes",
        "num-processes": "num-processes",  # of all nodes
        "machine-rank": "node-rank",
        "main-process-ip": "master-addr",
        "main-process-port": "master-port",
    },
    "deepspeed": RENDEZVOUS_OPTIONS | {"num-nodes": "nnodes", "num-gpus": "nproc-per-node"},
}
NUMBER = re.compile(r"-\d+$")  # the one value that may begin with a dash


class Option(NamedTuple):
    """An option as it is written: ``words`` are all of its words, ``value`` is None for a flag."""

    name: str
    value: str | None
    words: tuple[str, ...]


class LauncherCommand(NamedTuple):
    """The command line of a launcher: ``head`` (up to its name), its options, and ``script_words``, what it starts."""

    launcher: str
    head: list[str]
    options: list[Option]
    script_words: list[str]

    @property
    def is_module(self) -> bool:
        """True if the script is the name of a Python module."""
        return self.has("module")

    @property
    def script(self) -> str:
        """The script, module or program that it starts, or an empty string."""
        return self.script_words[0] if self.script_words else ""

    @property
    def script_arguments(self) -> list[str]:
        """The arguments of the script."""
        return self.script_words[1:]

    def has(self, name: str) -> bool:
        """Return whether an option is given."""
        return any(self._is_named(option, name) for option in self.options)

    def value(self, name: str) -> str | None:
        """Return the value of an option, the last if there are several, or None."""
        return next((option.value for option in reversed(self.options) if self._is_named(option, name)), None)

    def names(self, option: Option, names: Iterable[str]) -> bool:
        """Return whether an option is one of ``names``, perhaps abbreviated."""
        return any(self._is_named(option, name) for name in names)

    def _is_named(self, option: Option, name: str) -> bool:
        abbreviated = self.launcher in ABBREVIATING and len(option.name) > 1 and name.startswith(option.name)
        return option.name == name or abbreviated


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, ranks per node (None: one for each GPU or core that the launcher finds) and rendezvous of a launch."""

    least_nodes: int = 1
    most_nodes: int = 1
    ranks_per_node: int | None = 1
    node_rank: int | None = None
    endpoint: str = ""
    run_id: str = ""
    launchers: list[int] = []  # pids of the launchers on this host that got the same request


def parse_launcher(command: Sequence[str]) -> LauncherCommand | None:
    """Parse the command line of a launcher, or return None if it is none.

    Options end at the first word that is none, as argparse.REMAINDER has it; all that follows belongs to the script.
    """
    found = find_launcher(command)
    if found is None:
        return None
    flags = FLAGS[found.name]
    if found.name == "deepspeed" and "launch" in Path(found.target).stem.rpartition(".")[2]:
        flags = flags - RUNNER_ONLY_FLAGS
    words, index = found.words, found.options
    options: list[Option] = []
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if not word.startswith("-") or word == "-":
            if not _is_shell_variable(found.name, words[index : index + 2]):
                break
            index += 1
            continue
        option = _option(found.name, flags, words[index:])
        options.append(option)
        index += len(option.words)
    return LauncherCommand(found.name, words[: found.options], options, words[index:])


def parse_wrapped_launcher(command: Sequence[str]) -> LauncherCommand | None:
    """Find torchrun, accelerate launch or deepspeed in a shell command: behind assignments, ``exec``, ``srun``."""
    for start in range(len(command)):
        found = parse_launcher(command[start:])
        if found and found.launcher in PYTHON_LAUNCHERS:
            return found
        if found and (inner := parse_launcher(found.script_words)) and inner.launcher in PYTHON_LAUNCHERS:
            return inner
    return None


def _option(launcher: str, flags: frozenset[str], words: Sequence[str]) -> Option:
    """The option that ``words`` begin with."""
    word, after = words[0], words[1] if len(words) > 1 else None
    plain, equals, attached = word.partition("=")
    is_long = plain.startswith("--") or launcher == "mpirun"
    name = plain.lstrip("-").replace("_", "-")
    if not is_long:
        name, attached = word[1], word[2:].removeprefix("=")
        equals = attached
    short = name
    name = SHORT_NAMES[launcher].get(name, name) if len(name) == 1 else name
    name = SAME_OPTION.get(name, name)
    if _is_flag(launcher, flags, name) or short in flags:
        return Option(name, attached if equals and is_long else None, (word,))
    if equals:
        return Option(name, attached, (word,))
    if launcher == "mpirun" and name in TWO_VALUES:
        return Option(name, " ".join(words[1:3]), tuple(words[:3]))
    # A flag of a newer version is not in the table: neither an option nor a script can be its value.
    if after is None or after.endswith(".py") or (after.startswith("-") and not NUMBER.match(after)):
        return Option(name, None, (word,))
    return Option(name, after, (word, after))


def _is_shell_variable(launcher: str, words: Sequence[str]) -> bool:
    """Return whether this is a shell variable that holds options, with another option of the launcher behind it."""
    name = words[-1].partition("=")[0].lstrip("-").replace("_", "-")
    return words[0].startswith("$") and words[-1].startswith("--") and name in QUANTITIES.get(launcher, ())


def _is_flag(launcher: str, flags: frozenset[str], name: str) -> bool:
    if launcher not in ABBREVIATING or len(name) == 1:
        return name in flags
    return any(flag.startswith(name) for flag in flags)


def launch_request(command: Sequence[str], environ: Mapping[str, str]) -> LaunchRequest:
    """Return what a launcher's command line, and the variables that set its options, ask for."""
    line = parse_launcher(command)
    given = {} if line and line.launcher == "deepspeed" else _variables(environ)
    given |= dict(_quantities(line)) if line else {}
    least, _, most = given.get("nnodes", "1").partition(":")
    nodes = _count(least) or 1
    if ranks := _count(given.get("num-processes", "")):
        given["nproc-per-node"] = str(ranks // nodes)
    per_node = given.get("nproc-per-node", "gpu" if line and line.launcher in ONE_PER_GPU else "1")
    own_rank = given.get("node-rank") if not given.get("rdzv-endpoint") else None
    return LaunchRequest(
        least_nodes=nodes,
        most_nodes=_count(most or least) or 1,
        ranks_per_node=_ranks_per_node(per_node, environ),
        node_rank=_count(own_rank or ""),
        endpoint=given.get("rdzv-endpoint") or _master(given),
        run_id=given.get("rdzv-id", ""),
    )


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    prefix = TORCHRUN_OPTION_PREFIX
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith(prefix)
    }


def _quantities(line: LauncherCommand) -> Iterator[tuple[str, str]]:
    for name, torchrun_name in QUANTITIES.get(line.launcher, {}).items():
        if (value := line.value(name)) is not None:
            yield torchrun_name, value


def _master(given: Mapping[str, str]) -> str:
    address = given.get("master-addr", "")
    return f"{address}:{given.get('master-port', DEFAULT_PORT)}" if address else ""


def _ranks_per_node(text: str, environ: Mapping[str, str]) -> int | None:
    """The ranks of one node: a number, or one for each GPU or core (``auto``: GPUs if there are any)."""
    if (number := _count(text)) is not None:
        return number
    gpus = _gpus(environ) if text in ("gpu", "auto") else 0
    return gpus or (os.cpu_count() if text in ("cpu", "auto") else None)


def _gpus(environ: Mapping[str, str]) -> int:
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([word for word in visible.split(",") if word.strip()])
    return len([entry for entry in DEVICES.iterdir() if GPU.match(entry.name)])


def _count(text: str) -> int | None:
    return parse_count(text, 6)
