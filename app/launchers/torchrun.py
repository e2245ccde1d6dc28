"""Launch lines of torchrun: on one node and on several, with a free port, with enough shared memory."""

import shlex

import msgspec

from ..hardware.machine import C10D_PORT, Machine
from .rank_variables import LAUNCH_VARIABLES
from .types import GeneratedFix

STAND_IN_SCRIPT = "train.py"
GIB = 2**30
SHM_PER_RANK_BYTES = GIB  # NCCL's buffers and the loader workers of one rank, with room to spare
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
ASSUMED_NODES = 2
FIRST_NODE = "FIRST_NODE"  # placeholder for the address of the first node
# With "1" each start has a store of its own. torchrun's outlives a restart with the addresses of the processes before,
# which the new ones may read instead of each other's (pytorch#135712; torch 2.13 refuses gloo's second group then).
OWN_STORE_VARIABLE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
ASSUMED_RANKS = 8  # on a machine of which nothing is known


def advice_only(what: str) -> GeneratedFix:
    """Return text alone: what a generator needs, and how to get it."""
    return GeneratedFix(
        text=f"This fix needs {what}: run ddpwizard, or ddpwizard diagnose with --probe, on that machine."
    )


def _per_node(machine: Machine) -> str:
    """Return the value of ``--nproc-per-node``: of a machine that was not seen, one process for each GPU or CPU."""
    return str(machine.ranks) if machine.ranks_known else "auto"


def torchrun_line(machine: Machine, target: list[str], max_restarts: int = 0) -> str:
    """Return the line for one node. ``--standalone`` finds a free port in every version of torch."""
    start = ["torchrun", "--standalone", f"--nproc-per-node={_per_node(machine)}", *restart_options(max_restarts)]
    return shlex.join([*start, *(target or [STAND_IN_SCRIPT])])


def restart_options(max_restarts: int) -> list[str]:
    """Return the option with which torchrun starts all ranks again after a failure; it does not by default."""
    return [f"--max-restarts={max_restarts}"] if max_restarts else []


def torchrun_line_for_nodes(machine: Machine, target: list[str], max_restarts: int = 0) -> str:
    """Return the line for several nodes, the same on each: c10d assigns the ranks."""
    port = machine.free_port or C10D_PORT
    host = f"[{machine.head}]" if ":" in machine.head else machine.head or FIRST_NODE
    return shlex.join(
        [
            "torchrun",
            f"--nnodes={planned_nodes(machine)}",
            f"--nproc-per-node={_per_node(machine)}",
            f"--rdzv-id={job_name(target)}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{port}",
            *restart_options(max_restarts),
            *(target or [STAND_IN_SCRIPT]),
        ]
    )


def planned_nodes(machine: Machine) -> int:
    """Return the number of nodes of a multi-node job."""
    return machine.nodes if machine.nodes > 1 else ASSUMED_NODES


def as_multi_node(machine: Machine) -> Machine:
    """Return the machine with an assumed number of equal nodes if that is not known."""
    return msgspec.structs.replace(machine, nodes=planned_nodes(machine))


def nodes_text(machine: Machine) -> str:
    """Describe the nodes that a file is written for."""
    gpus = f"{machine.ranks} GPU{'s' * (machine.ranks > 1)}"
    return f"{machine.nodes} nodes with {gpus} each, like this one: put in yours"


def single_node(machine: Machine, target: list[str]) -> GeneratedFix:
    """``torchrun-single-node``: one process per GPU of this machine.

    If that was not seen, as many processes as a small job waits for.
    """
    if not machine.ranks_known and 0 < machine.world_size <= ASSUMED_RANKS:
        machine = msgspec.structs.replace(machine, job_ranks=machine.world_size)
    text = f"{_processes(machine)} torchrun sets RANK, LOCAL_RANK, WORLD_SIZE and MASTER_* for each."
    return GeneratedFix(
        text=f"{text} --standalone takes a free port; with it --master-port is ignored.{_placeholder_note(target)}",
        commands=[torchrun_line(machine, target)],
    )


def multi_node(machine: Machine, target: list[str]) -> GeneratedFix:
    """``torchrun-multi-node``: the same line on every node; the node whose address it names hosts the rendezvous."""
    counted = "" if machine.nodes > 1 else f" {ASSUMED_NODES} nodes are assumed: put in yours."
    return GeneratedFix(
        text=(
            f"Run the same line on every node within 10 minutes. {machine.head or FIRST_NODE} must be an address of "
            f"the first node that the others reach, with port {machine.free_port or C10D_PORT} open. "
            f"{_each_node(machine)} "
            f"--rdzv-id names the job: another job needs another id.{counted}{_placeholder_note(target)}"
        ),
        commands=[torchrun_line_for_nodes(machine, target)],
    )


def _each_node(machine: Machine) -> str:
    if not machine.ranks_known:
        return "Each node starts one process for each of its GPUs; give a number for fewer."
    return f"Each node should have {machine.ranks} {'GPUs' if machine.gpu_count else 'processes'}."


def free_port_command(machine: Machine, target: list[str]) -> GeneratedFix:
    """``free-port-command``: the holder of the port, and a start that does not need the port."""
    port = machine.busy_port or 29500
    held = f"Port {port} is held by {machine.port_holder}. " if machine.busy_port and machine.port_holder else ""
    holder = f"ss -ltnp 'sport = :{port}'"
    if machine.start_elsewhere:
        text = "The first line shows the process that listens there, the second starts your job without that port."
        return GeneratedFix(text=held + text, commands=[holder, machine.start_elsewhere])
    if not machine.ranks_known:
        text = "This shows the process that listens there. torchrun takes a free port with --standalone."
        return GeneratedFix(text=held + text, commands=[holder])
    commands = [holder, torchrun_line(machine, target)]
    another = machine.free_port if machine.free_port != port else 0
    if another:
        commands.append(
            shlex.join(
                [
                    "torchrun",
                    f"--nproc-per-node={machine.ranks}",
                    f"--master-port={another}",
                    *(target or [STAND_IN_SCRIPT]),
                ]
            )
        )
    return GeneratedFix(
        text=(
            f"{held}The first line shows the process that listens there. --standalone then takes a free port; "
            "for accelerate launch use --main_process_port 0."
            + (f" The last line is for a port of your choice; {another} was free." if another else "")
            + _placeholder_note(target)
        ),
        commands=commands,
    )


def unset_launch_env(machine: Machine, target: list[str]) -> GeneratedFix:
    """``unset-launch-env``: remove launch variables from the shell, then let torchrun set them."""
    start = torchrun_line(machine, target)
    if not machine.ranks_known:
        text = "torchrun sets these variables for each rank; in the shell they are right for one process at most."
        return GeneratedFix(
            text=text + _placeholder_note(target), commands=[shlex.join(["unset", *RANK_VARIABLES]), start]
        )
    left_over = [name for name in LAUNCH_VARIABLES if name in machine.shell_variables]
    if not left_over:
        text = "No launch variable is set in this shell; torchrun sets them for each rank."
        return GeneratedFix(text=text + _placeholder_note(target), commands=[start])
    return GeneratedFix(
        text=(
            f"{', '.join(left_over)}: set in this shell, where they are right for one process at most. "
            f"Unset them: torchrun sets them for each rank.{_placeholder_note(target)}"
        ),
        commands=[shlex.join(["unset", *left_over]), start],
    )


def shm_size(machine: Machine, target: list[str]) -> GeneratedFix:
    """``shm-size``: /dev/shm for containers (docker, podman, Kubernetes) and for a host, also of a machine not seen."""
    ranks = machine.ranks if machine.ranks_known else ASSUMED_RANKS
    most = machine.memory_bytes // 2 or ranks * SHM_PER_RANK_BYTES
    gib = max(1, min(ranks * SHM_PER_RANK_BYTES, most) // GIB)
    gpus = "--gpus all " if machine.gpu_count else ""
    devices = "--device nvidia.com/gpu=all " if machine.gpu_count else ""
    start = torchrun_line(machine, target) if machine.ranks_known else "COMMAND"
    for_containers = [
        f"docker run {gpus}--shm-size={gib}g IMAGE {start}",
        f"podman run {devices}--shm-size={gib}g IMAGE {start}",
    ]
    on_host = [f"sudo mount -o remount,size={gib}G /dev/shm"]
    assumed = "" if machine.ranks_known else " (assumed; put in yours)"
    of_image = "IMAGE is the image of your container"
    placeholders = f"{of_image}.{_placeholder_note(target)}"
    if not machine.ranks_known:
        placeholders = f"{of_image}, COMMAND the line that starts your job."
    commands = for_containers if machine.container else [*on_host, *for_containers]
    return GeneratedFix(
        text=(
            f"{gib} GiB: 1 GiB for each of {ranks} ranks{assumed}, at most half of the memory. The size is set when a "
            "container starts and cannot be raised from inside; --ipc=host uses the host's /dev/shm instead. "
            "Its content counts as memory of the container. Until it is larger, DataLoader(…, num_workers=0) needs "
            f"none of it. {placeholders} On Kubernetes, add the volume to the pod:\n{_kubernetes(gib)}"
        ),
        commands=commands if machine.memory_bytes else [*for_containers, *on_host],
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


def _processes(machine: Machine) -> str:
    if not machine.ranks_known:
        return "One process for each GPU of the machine, or each CPU where there is none; give a number for fewer."
    if machine.job_ranks:
        return f"{machine.ranks} process{'es' * (machine.ranks > 1)}, as many as the job has ranks here."
    if machine.gpu_count:
        return (
            f"{machine.ranks} processes, one for each GPU of this machine."
            if machine.ranks > 1
            else "One process: one GPU."
        )
    return f"No GPU was found: {machine.ranks} processes on the CPU; the script must use the gloo backend."


def _placeholder_note(target: list[str]) -> str:
    return "" if target else f" Replace {STAND_IN_SCRIPT} with your script."


def job_name(target: list[str]) -> str:
    """Return a rendezvous id made from the script's name: letters, digits and hyphens."""
    script = next((part for part in target if not part.startswith("-")), STAND_IN_SCRIPT)
    stem = script.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in stem).strip("-") or "job"
