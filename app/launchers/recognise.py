"""Recognise command lines: a Python interpreter with its script, a launcher of distributed jobs, ddpwizard itself."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Launchers that run as a Python module or script: last part of the script's name, or the module.
PYTHON_LAUNCHERS = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch/distributed/run.py": "torchrun",
    "torch/distributed/launch.py": "torchrun",
    "accelerate": "accelerate",
    "accelerate-launch": "accelerate",
    "accelerate.commands.launch": "accelerate",
    "accelerate/commands/launch.py": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "accelerate/commands/accelerate_cli.py": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed/launcher/launch.py": "deepspeed",
    "deepspeed/launcher/runner.py": "deepspeed",
}
# Open MPI (orterun, prterun; orted and prted on the other nodes), MPICH and Intel MPI (Hydra), Slurm.
MPI = ("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "orterun", "prterun", "orted", "prted")
PROGRAM_LAUNCHERS = {**dict.fromkeys(MPI, "mpirun"), "srun": "srun", "slurmstepd": "srun"}
WITH_SUBCOMMAND = ("accelerate", "accelerate.commands.accelerate_cli", "accelerate_cli.py")  # "accelerate launch"
INTERPRETERS = ("python", "pypy")
# Options of CPython that take a value, in the same word or the next (Python/initconfig.c).
INTERPRETER_VALUES = "cmWX"
INTERPRETER_LONG_VALUES = ("--check-hash-based-pycs",)
SUPERVISOR = "app/system/supervisor.py"


class PythonCommand(NamedTuple):
    """A command line of an interpreter, ``-mpkg`` written as ``-m pkg``. ``target_index``: its script or module."""

    words: list[str]
    target_index: int
    is_module: bool

    @property
    def target(self) -> str:
        """The path of the script, or the name of the module."""
        return self.words[self.target_index]

    @property
    def script_words(self) -> list[str]:
        """The script and its arguments as a launcher takes them: ``train.py --lr 1`` or ``-m pkg.train --lr 1``."""
        return self.words[self.target_index - self.is_module :]


class LauncherPosition(NamedTuple):
    """A launcher in a command line. ``options`` is the index of the first word after the launcher itself."""

    name: str
    words: list[str]
    options: int
    target: str


def parse_python(command: Sequence[str]) -> PythonCommand | None:
    """Parse the command line of an interpreter, or return None if it runs no file and no module (``-c``, ``-``)."""
    words = list(command)
    index = 1
    while index < len(words):
        word = words[index]
        if word == "--":
            return PythonCommand(words, index + 1, False) if index + 1 < len(words) else None
        if word == "-":
            return None
        if not word.startswith("-"):
            return PythonCommand(words, index, False)
        if word.startswith("--"):
            index += 2 if word in INTERPRETER_LONG_VALUES else 1
            continue
        at = next((at for at, letter in enumerate(word) if at and letter in INTERPRETER_VALUES), None)
        if at is None:
            index += 1
            continue
        letter, attached = word[at], word[at + 1 :]
        if letter == "c":
            return None
        if letter == "m":
            if attached:
                words[index : index + 1] = [word[: at + 1], attached]
            return PythonCommand(words, index + 1, True) if index + 1 < len(words) else None
        index += 1 if attached else 2
    return None


def find_launcher(command: Sequence[str]) -> LauncherPosition | None:
    """Find the launcher that a command line starts, or return None."""
    if not command:
        return None
    # Some rewrite their title into one word: "slurmstepd: [4711.0]".
    program = re.split(r"[:\s]", Path(command[0]).name)[0]
    if program in PROGRAM_LAUNCHERS:
        return LauncherPosition(PROGRAM_LAUNCHERS[program], list(command), 1, program)
    words, index = list(command), 0
    if program.startswith(INTERPRETERS):
        python = parse_python(command)
        if python is None:
            return None
        words, index = python.words, python.target_index
    target = words[index]
    file = Path(target).name
    name = PYTHON_LAUNCHERS.get(target) or PYTHON_LAUNCHERS.get(file)
    name = name or next(
        (n for end, n in PYTHON_LAUNCHERS.items() if end.endswith(".py") and target.endswith(end)), None
    )
    if name is None:
        return None
    if file not in WITH_SUBCOMMAND:
        return LauncherPosition(name, words, index + 1, target)
    is_launch = words[index + 1 : index + 2] == ["launch"]
    return LauncherPosition(name, words, index + 2, target) if is_launch else None


def launcher_name(command: Sequence[str]) -> str | None:
    """Return the launcher that a command line is, or None: torchrun, accelerate, deepspeed, mpirun, srun."""
    found = find_launcher(command)
    return found.name if found else None


def is_wizard(command: Sequence[str]) -> bool:
    """Return whether this is ddpwizard or its supervisor: both inherit the environment of a rank's shell."""
    python = parse_python(command)
    return python is not None and (Path(python.target).name == "ddpwizard" or python.target.endswith(SUPERVISOR))


def is_multiprocessing_spawn(command: Sequence[str]) -> bool:
    """Return whether this is a process of multiprocessing's start method "spawn" (Lib/multiprocessing/spawn.py)."""
    return "--multiprocessing-fork" in command or any("multiprocessing.spawn import spawn_main" in w for w in command)
