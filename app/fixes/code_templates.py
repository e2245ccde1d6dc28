"""Set-up code from templates that run as they are; what was learned of the box is put into single lines of them."""

from pathlib import Path

from ..hardware.machine import GeneratedFix, Machine
from ..launchers.torchrun import torchrun_line

TEMPLATES = Path(__file__).parents[2] / "assets" / "templates"
MAX_WORKERS = 8
DEVICE_ID_SINCE = (2, 3)  # init_process_group(device_id=)
FSDP2_SINCE = (2, 6)  # torch.distributed.fsdp.fully_shard
# The lines of the templates that a box changes.
START = "torchrun --standalone --nproc-per-node=2 {name}"
WORKERS = "WORKERS = 0  # loader processes per rank"
BFLOAT16 = "PARAM_DTYPE = torch.bfloat16  # what"
FLOAT32 = "PARAM_DTYPE = torch.float32  # what"


def render_code(name: str, box: Machine) -> str:
    """The template ``name`` for this box."""
    code = (TEMPLATES / name).read_text(encoding="utf-8")
    if box.gpu_count is not None:
        code = code.replace(START.format(name=name), torchrun_line(box, [name]))
    workers = min(MAX_WORKERS, box.cpus // box.ranks - 1)  # one CPU of each rank's share is for the rank itself
    if workers > 0:
        code = code.replace(WORKERS, f"WORKERS = {workers}  # per rank: {box.cpus} CPUs, {box.ranks} ranks")
    if box.gpu_count and not box.bf16:
        code = code.replace(BFLOAT16, FLOAT32)
    return code


def ddp_code(box: Machine, target: list[str]) -> GeneratedFix:
    """``ddp-code``: set-up, wrapping, loader, saving and end of a DDP script."""
    return _runnable(
        "ddp_setup.py",
        box,
        DEVICE_ID_SINCE,
        "Complete functions for a DDP script, with an example that runs as it is: gloo on the CPU, NCCL on GPUs.",
    )


def fsdp2_code(box: Machine, target: list[str]) -> GeneratedFix:
    """``fsdp2-code``: set-up, sharding per block, mixed precision and saving with FSDP2."""
    return _runnable(
        "fsdp2_setup.py",
        box,
        FSDP2_SINCE,
        "Complete functions for an FSDP2 script, with an example that runs as it is. Put the class of your "
        "transformer block in place of Block.",
    )


def join_context(box: Machine, target: list[str]) -> GeneratedFix:
    """``join-context``: a loop in which ranks may run out of batches at different times."""
    return _runnable(
        "join_loop.py",
        box,
        (2, 1),
        "For DDP. Cheaper where you may leave samples out: drop_last=True and the same number of batches on each rank.",
    )


def find_unused(box: Machine, target: list[str]) -> GeneratedFix:
    """``find-unused``: name the parameters without gradient before turning find_unused_parameters on."""
    name = "find_unused.py"
    return GeneratedFix(
        text="Names the parameters without gradient, in one process and without DDP; its first lines say what to do "
        "about them.",
        commands=[f"python {name}"],
        files={name: render_code(name, box)},
    )


def _runnable(name: str, box: Machine, since: tuple[int, int], words: str) -> GeneratedFix:
    if box.torch and box.torch < since:
        have, need = (".".join(map(str, version)) for version in (box.torch, since))
        return GeneratedFix(text=f"This code needs torch {need} or newer; here it is {have}.")
    return GeneratedFix(text=words, commands=[torchrun_line(box, [name])], files={name: render_code(name, box)})
