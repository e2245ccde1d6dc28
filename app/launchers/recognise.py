"""What a command line is: a launcher of distributed jobs, a script under Python, the wizard itself."""

import re
from collections.abc import Sequence
from pathlib import Path

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
OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
SUPERVISOR = "app/system/supervisor.py"


def target_index(command: Sequence[str]) -> int | None:
    """Where in a Python command line the script (or, after ``-m``, the module) stands; None with ``-c`` or neither."""
    index = 1
    while index < len(command):
        word = command[index]
        if not word.startswith("-"):
            return index
        if word == "-m":
            return index + 1 if index + 1 < len(command) else None
        if word == "-c" or word == "-":
            return None
        index += 2 if word in OPTIONS_WITH_VALUE else 1
    return None


def launcher_name(command: Sequence[str]) -> str | None:
    """The launcher this command line is, or None: torchrun, accelerate, deepspeed, mpirun, srun."""
    if not command:
        return None
    # Some rewrite their title into one word: "slurmstepd: [4711.0]".
    program = re.split(r"[:\s]", Path(command[0]).name)[0]
    if program in PROGRAM_LAUNCHERS:
        return PROGRAM_LAUNCHERS[program]
    index = target_index(command) if program.startswith(("python", "pypy")) else 0
    if index is None:
        return None
    target = command[index]
    name = PYTHON_LAUNCHERS.get(target) or PYTHON_LAUNCHERS.get(Path(target).name)
    name = name or next(
        (n for end, n in PYTHON_LAUNCHERS.items() if end.endswith(".py") and target.endswith(end)), None
    )
    is_cli = Path(target).name in ("accelerate", "accelerate.commands.accelerate_cli", "accelerate_cli.py")
    return None if is_cli and "launch" not in command[index + 1 :] else name


def is_wizard(command: Sequence[str]) -> bool:
    """Whether this is ddpwizard, or the keeper of what it starts: both inherit the environment of a rank's shell."""
    index = target_index(command)
    target = command[index] if index is not None else ""
    return Path(target).name == "ddpwizard" or target.endswith(SUPERVISOR)


def is_multiprocessing_spawn(command: Sequence[str]) -> bool:
    """Whether this is a process of multiprocessing's start method "spawn" (Lib/multiprocessing/spawn.py,
    ``get_command_line``)."""
    return "--multiprocessing-fork" in command or any("multiprocessing.spawn import spawn_main" in w for w in command)
