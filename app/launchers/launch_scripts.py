"""Sizes of a job as shell scripts, Slurm scripts and hostfiles give them, each with its line.

Values that are not plain numbers (a variable, an elastic range) are ignored.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..text.numbers import parse_count
from .arguments import parse_wrapped_launcher

Kind = Literal["deepspeed", "accelerate", "script", "hostfile", "manifest", "kubernetes"]
LAUNCHERS = re.compile(r"torchrun|torch\.distributed\.run|deepspeed|accelerate")
NAMES_ONLY = ("torchrun", "hostfile")  # the launcher, not how many ranks it starts
SLURM_VARIABLES = {"SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_GPUS_ON_NODE": "gpus"}


class Statement(NamedTuple):
    """One statement. ``words``: as text, with its arithmetic. ``where``: ``file:line``."""

    name: str
    value: Any
    words: str
    where: str


class JobFile(NamedTuple):
    """A file with its kind and its statements; ``plain`` is its content for rules that need more."""

    kind: Kind
    path: str
    facts: list[Statement]
    plain: dict[str, Any]
    repeated: Sequence[Statement] = ()

    @property
    def compares(self) -> bool:
        """True if it has a statement that another file may contradict."""
        return any(fact.name not in NAMES_ONLY for fact in self.facts) or bool(self.repeated)

    def of(self, name: str) -> Statement | None:
        """Return the first statement of that name, or None."""
        return next((fact for fact in self.facts if fact.name == name), None)


def parse_hostfile(path: str, text: str) -> JobFile:
    """Parse a hostfile of DeepSpeed: ``name slots=8`` lines."""
    slots: list[int] = []
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*[^#\s]+\s+slots\s*=\s*(\d+)", line):
            first = number if not slots else first
            slots.append(int(found[1]))
    if not slots:
        return JobFile("hostfile", path, [], {})
    total = f"{' + '.join(map(str, slots[:8]))}{' + …' * (len(slots) > 8)} = {sum(slots)} slots"
    where = f"{path}:{first}"
    facts = [Statement("ranks", sum(slots), total, where), Statement("nodes", len(slots), f"{len(slots)} hosts", where)]
    return JobFile("hostfile", path, facts, {})


def parse_shell_script(path: str, text: str) -> JobFile | None:
    """Parse a shell script: its launch line and its Slurm directives. None if it has neither."""
    directives = {name: (value, number) for name, value, number in _directives(text)}
    facts: list[Statement] = []
    for name in ("nodes", "gpus", "tasks"):
        if name in directives:
            value, number = directives[name]
            facts.append(Statement(f"slurm_{name}", value, f"#SBATCH {name} {value}", f"{path}:{number}"))
    variables = {variable: directives[name][0] for variable, name in SLURM_VARIABLES.items() if name in directives}
    for number, words in _commands(text):
        facts += _launch(words, f"{path}:{number}", variables)
    return JobFile("script", path, facts, {}) if facts else None


def _launch(words: list[str], where: str, variables: dict[str, int]) -> list[Statement]:
    """Statements of a command line with torchrun, deepspeed or accelerate launch."""
    line = parse_wrapped_launcher(words)
    if line is None:
        return []

    def number(option: str) -> int | None:
        value = line.value(option) or ""
        return variables.get(value.strip("${}"), parse_count(value))

    if line.launcher == "torchrun":
        nodes = number("nnodes") if line.has("nnodes") else 1
        per_node = number("nproc-per-node")
        facts = [Statement("nodes", nodes, f"torchrun --nnodes={nodes}", where)] if nodes else []
        facts.append(Statement("torchrun", True, "torchrun", where))
        if nodes and per_node:
            ranks = nodes * per_node
            facts.append(Statement("ranks", ranks, f"torchrun starts {nodes} × {per_node} = {ranks} ranks", where))
        return facts
    if line.launcher == "deepspeed":
        count, nodes = number("num-gpus"), number("num-nodes")
        ranks = count * (nodes or 1) if count else None
        if not ranks and (hostfile := line.value("hostfile")):
            name, text = hostfile.rpartition("/")[2], f"deepspeed starts ranks by {hostfile[:60]}"
            return [Statement("hostfile", name, text, where)]
        return [Statement("ranks", ranks, f"deepspeed starts {ranks} ranks", where)] if ranks else []
    ranks, nodes = number("num-processes"), number("num-machines")
    facts = [Statement("ranks", ranks, f"--num_processes {ranks}", where)] if ranks else []
    return facts + ([Statement("nodes", nodes, f"--num_machines {nodes}", where)] if nodes else [])


def _directives(text: str) -> Iterator[tuple[str, int, int]]:
    """Nodes, GPUs per node and tasks per node of the #SBATCH lines, with the line number."""
    patterns = {
        "nodes": r"(?:--nodes[=\s]+|-N\s*)(\d+)\s*$",
        "gpus": r"(?:--gpus-per-node[=\s]+|--gres[=\s]+gpu:)(?:[\w.-]+:)?(\d+)\s*$",
        "tasks": r"--ntasks-per-node[=\s]+(\d+)\s*$",
    }
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#SBATCH"):
            option = line.removeprefix("#SBATCH").split("#")[0].strip()
            for name, pattern in patterns.items():
                if found := re.match(pattern, option):
                    yield name, int(found[1]), number


def _commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """The commands that start a job as words, with the number of their first line."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if line.endswith("\\"):
            whole += f"{line[:-1]} "
            continue
        try:
            words = shlex.split(whole + line, comments=True) if LAUNCHERS.search(whole + line) else []
        except ValueError:
            words = []
        if words:
            yield start, words
        start, whole = 0, ""
