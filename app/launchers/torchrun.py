"""Lines that start a job: torchrun on one node and on several, with a free port, with enough shared memory."""

import shlex

import msgspec

from ..hardware.machine import C10D_PORT, GeneratedFix, Machine
from .rank_environment import LAUNCH_VARIABLES

STAND_IN_SCRIPT = "train.py"
GIB = 2**30
SHM_PER_RANK_BYTES = GIB  # NCCL's buffers and the loader workers of one rank, with room to spare
ASSUMED_NODES = 2


def advice_only(what: str) -> GeneratedFix:
    """Words only: what a generator would need, and how to get it."""
    return GeneratedFix(text=f"To write this, {what} must be known: look at the box first (ddpwizard doctor).")


def torchrun_line(box: Machine, target: list[str]) -> str:
    """The line for one node. ``--standalone`` finds a free port in every version of torch."""
    return shlex.join(["torchrun", "--standalone", f"--nproc-per-node={box.ranks}", *(target or [STAND_IN_SCRIPT])])


def torchrun_line_for_nodes(box: Machine, target: list[str]) -> str:
    """The line for every node of several, the same on each: c10d gives the ranks."""
    port = box.free_port or C10D_PORT
    host = f"[{box.head}]" if ":" in box.head else box.head
    return shlex.join(
        [
            "torchrun",
            f"--nnodes={planned_nodes(box)}",
            f"--nproc-per-node={box.ranks}",
            f"--rdzv-id={job_name(target)}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{port}",
            *(target or [STAND_IN_SCRIPT]),
        ]
    )


def planned_nodes(box: Machine) -> int:
    """The nodes of a job over several."""
    return box.nodes if box.nodes > 1 else ASSUMED_NODES


def as_multi_node(box: Machine) -> Machine:
    """The box as one of several like it, where their number is not known."""
    return msgspec.structs.replace(box, nodes=planned_nodes(box))


def nodes_text(box: Machine) -> str:
    """How many nodes of what size a file is written for."""
    gpus = f"{box.ranks} GPU{'s' * (box.ranks > 1)}"
    return f"{box.nodes} nodes with {gpus} each, as this one has: put in yours"


def single_node(box: Machine, target: list[str]) -> GeneratedFix:
    """``torchrun-single-node``: one process per GPU of this box."""
    if box.gpu_count is None:
        return advice_only("the number of GPUs")
    text = f"{_processes(box)} torchrun sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_* for each."
    return GeneratedFix(
        text=f"{text} --standalone takes a free port; a --master-port beside it is ignored.{_stands_for(target)}",
        commands=[torchrun_line(box, target)],
    )


def multi_node(box: Machine, target: list[str]) -> GeneratedFix:
    """``torchrun-multi-node``: the same line on every node; the node whose address it names hosts the rendezvous."""
    if box.gpu_count is None or not box.head:
        return advice_only("the number of GPUs and the address of this host")
    counted = "" if box.nodes > 1 else f" {ASSUMED_NODES} nodes are assumed: put in yours."
    return GeneratedFix(
        text=(
            f"Run the same line on every node within 10 minutes. {box.head} must be an address of the first node that "
            f"the others reach, with port {box.free_port or C10D_PORT} open. Each node should have {box.ranks} "
            f"{'GPUs' if box.gpu_count else 'processes'}. "
            f"--rdzv-id names the job: another job takes another one.{counted}{_stands_for(target)}"
        ),
        commands=[torchrun_line_for_nodes(box, target)],
    )


def free_port_command(box: Machine, target: list[str]) -> GeneratedFix:
    """``free-port-command``: who holds the port, and a start that does not need it."""
    if box.gpu_count is None:
        return advice_only("the number of GPUs")
    port = box.busy_port or 29500
    held = f"Port {port} is held by {box.port_holder}. " if box.busy_port and box.port_holder else ""
    commands = [f"ss -ltnp 'sport = :{port}'", torchrun_line(box, target)]
    if box.free_port:
        commands.append(
            shlex.join(
                [
                    "torchrun",
                    f"--nproc-per-node={box.ranks}",
                    f"--master-port={box.free_port}",
                    *(target or [STAND_IN_SCRIPT]),
                ]
            )
        )
    return GeneratedFix(
        text=(
            f"{held}The first line shows who listens there. --standalone then takes a free port by itself; "
            "with accelerate launch the same is --main_process_port 0."
            + (
                f" The last line is for a port of your choice; {box.free_port} was free just now."
                if box.free_port
                else ""
            )
            + _stands_for(target)
        ),
        commands=commands,
    )


def unset_launch_env(box: Machine, target: list[str]) -> GeneratedFix:
    """``unset-launch-env``: take launch variables out of the shell, then let torchrun set them."""
    if box.gpu_count is None:
        return advice_only("the number of GPUs")
    start = torchrun_line(box, target)
    left_over = [name for name in LAUNCH_VARIABLES if name in box.shell_variables]
    if not left_over:
        return GeneratedFix(
            text=f"No launch variable is set in this shell; torchrun sets them for each rank.{_stands_for(target)}",
            commands=[start],
        )
    return GeneratedFix(
        text=(
            f"{', '.join(left_over)}: set in this shell, where they hold for one process at most. "
            f"Take them out, torchrun sets them for each rank.{_stands_for(target)}"
        ),
        commands=[shlex.join(["unset", *left_over]), start],
    )


def shm_size(box: Machine, target: list[str]) -> GeneratedFix:
    """``shm-size``: /dev/shm for containers (docker, podman, Kubernetes) and for a host."""
    if not box.memory_bytes:
        return advice_only("the memory of this box")
    gib = max(1, min(box.ranks * SHM_PER_RANK_BYTES, box.memory_bytes // 2) // GIB)
    gpus = "--gpus all " if box.gpu_count else ""
    devices = "--device nvidia.com/gpu=all " if box.gpu_count else ""
    start = torchrun_line(box, target)
    for_containers = [
        f"docker run {gpus}--shm-size={gib}g IMAGE {start}",
        f"podman run {devices}--shm-size={gib}g IMAGE {start}",
    ]
    on_host = [f"sudo mount -o remount,size={gib}G /dev/shm"]
    return GeneratedFix(
        text=(
            f"{gib} GiB: 1 GiB for each of {box.ranks} ranks, at most half of the memory. The size is set when a "
            "container starts and cannot be raised from inside; --ipc=host instead takes the host's /dev/shm. "
            "What is put there counts as memory of the container. On Kubernetes, add the volume to the pod:\n"
            f"{_kubernetes(gib)}"
        ),
        commands=for_containers if box.container else [*on_host, *for_containers],
    )


def _kubernetes(gib: int) -> str:
    return (
        "spec:\n"
        "  containers:\n"
        "    - name: trainer\n"
        "      volumeMounts:\n"
        "        - {name: shm, mountPath: /dev/shm}\n"
        "  volumes:\n"
        f"    - {{name: shm, emptyDir: {{medium: Memory, sizeLimit: {gib}Gi}}}}\n"
    )


def _processes(box: Machine) -> str:
    if box.gpu_count:
        return f"{box.ranks} processes, one for each GPU this box shows." if box.ranks > 1 else "One process: one GPU."
    return f"No GPU shows here: {box.ranks} processes on the CPU; the script must then ask for the gloo backend."


def _stands_for(target: list[str]) -> str:
    return "" if target else f" {STAND_IN_SCRIPT} stands for your script."


def job_name(target: list[str]) -> str:
    """A rendezvous id from the script's name: letters, digits and hyphens."""
    script = next((part for part in target if not part.startswith("-")), STAND_IN_SCRIPT)
    stem = script.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in stem).strip("-") or "job"
