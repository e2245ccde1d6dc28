"""Setup code from templates that run unchanged, with the values of a machine filled in."""

from ..hardware.machine import Machine
from ..launchers.torchrun import torchrun_line
from ..launchers.types import GeneratedFix
from ..text.templates import TEMPLATES, render_template

MAX_WORKERS = 8
DEVICE_ID_SINCE = (2, 3)  # init_process_group(device_id=)
FSDP2_SINCE = (2, 6)  # torch.distributed.fsdp.fully_shard
START = "torchrun --standalone --nproc-per-node=2 {name}"  # the line that a machine replaces in join_loop.py


def render_setup(name: str, machine: Machine, title: str, tags: set[str], values: dict[str, str]) -> str:
    """Return the setup script ``name`` with an example's batch size, learning rate and optimizer.

    The planner renders the same templates for the values of a plan.
    """
    example = {
        "TITLE": title,
        "MADE_FOR": "",
        "LEFT": "",
        "NEEDS": "",
        "START": _start_line(name, machine),
        "MICRO_BATCH": "32",
        "LEARNING_RATE": "0.01",
        "OPTIMIZER_TYPE": "torch.optim.Optimizer",
        "OPTIMIZER_DOC": "AdamW.",
        "OPTIMIZER": "torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)",
    }
    return render_template(f"{name}.in", tags, example | values)


def ddp_code(machine: Machine, target: list[str]) -> GeneratedFix:
    """Return ``ddp-code``: setup, wrapping, loader, saving and shutdown of a DDP script."""
    name = "ddp_setup.py"
    workers = min(MAX_WORKERS, machine.cpus // machine.ranks - 1)  # one CPU of each rank's share is for the rank itself
    values = {"WORKERS": f"{workers}  # per rank: {machine.cpus} CPUs, {machine.ranks} ranks", "FLOAT": ""}
    tags = {"workers"} if workers > 0 else set[str]()
    code = render_setup(name, machine, "DDP: a copy of the model on each GPU.", tags, values)
    text = "Complete functions for a DDP script, with an example that runs as it is: gloo on the CPU, NCCL on GPUs."
    return _runnable(name, code, machine, DEVICE_ID_SINCE, text)


def fsdp2_code(machine: Machine, target: list[str]) -> GeneratedFix:
    """Return ``fsdp2-code``: setup, sharding per block, mixed precision and saving with FSDP2."""
    name = "fsdp2_setup.py"
    mixed = machine.bf16 or not machine.gpu_count
    policy = "mesh=mesh, mp_policy=precision" if mixed else "mesh=mesh"
    values = {
        "DTYPE": "bfloat16",
        "FLOAT": ".float()" if mixed else "",
        "SHARD_BLOCK": f"fully_shard(module, {policy})",
        "OF_ROOT": policy,
        "BUILT_BYTES": f"{machine.ranks} × 4 bytes/parameter",
    }
    title = "FSDP2: parameters, gradients and optimizer states are sharded over all ranks."
    code = render_setup(name, machine, title, {"mixed"} if mixed else set(), values)
    text = (
        "Complete functions for an FSDP2 script, with an example that runs as it is. Put the class of your "
        "transformer block in place of Block."
    )
    return _runnable(name, code, machine, FSDP2_SINCE, text)


def join_context(machine: Machine, target: list[str]) -> GeneratedFix:
    """Return ``join-context``: a loop in which ranks may run out of batches at different times."""
    name = "join_loop.py"
    code = (TEMPLATES / name).read_text(encoding="utf-8").replace(START.format(name=name), _start_line(name, machine))
    text = (
        "For DDP. Cheaper where you may leave samples out: drop_last=True and the same number of batches on each rank."
    )
    return _runnable(name, code, machine, (2, 1), text)


def find_unused(machine: Machine, target: list[str]) -> GeneratedFix:
    """Return ``find-unused``: a script that names the parameters without gradient.

    It is meant to be run before ``find_unused_parameters`` is turned on.
    """
    name = "find_unused.py"
    return GeneratedFix(
        text="Names the parameters without gradient, in one process and without DDP; its first lines say what to do "
        "about them.",
        commands=[f"python {name}"],
        files={name: (TEMPLATES / name).read_text(encoding="utf-8")},
    )


def _start_line(name: str, machine: Machine) -> str:
    return START.format(name=name) if machine.gpu_count is None else torchrun_line(machine, [name])


def _runnable(name: str, code: str, machine: Machine, since: tuple[int, int], text: str) -> GeneratedFix:
    if machine.torch and machine.torch < since:
        have, need = (".".join(map(str, version)) for version in (machine.torch, since))
        return GeneratedFix(text=f"This code needs torch {need} or newer; here it is {have}.")
    return GeneratedFix(text=text, commands=[torchrun_line(machine, [name])], files={name: code})
