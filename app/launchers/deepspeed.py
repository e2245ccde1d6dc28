"""DeepSpeed: its configuration, its hostfile and its launch line.

Keys and defaults: deepspeed.ai/docs/config-json and the source of DeepSpeed 0.19.8, whose own parser reads the
result in the tests.
"""

import shlex
from typing import Any, Literal

import msgspec

from ..hardware.machine import Machine
from .torchrun import GIB, STAND_IN_SCRIPT, advice_only, as_multi_node, nodes_text
from .types import GeneratedFix

FILE = "ds_config.json"
AUTO_FILE = "ds_config_auto.json"
HOSTFILE = "hostfile"
HOSTFILE_HEAD = (
    "# For deepspeed --hostfile: the nodes, which it reaches by ssh, and the GPUs of each. Put in your names.\n"
)
DEFAULT_PORT = 29500
MICRO_BATCH = 4
GRADIENT_CLIPPING = 1.0  # the norm at which the generated scripts clip too
BATCH_FIELDS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
Stage = Literal[0, 1, 2, 3]
Precision = Literal["bf16", "fp16", "no"]


def zero_config(
    machine: Machine,
    *,
    stage: Stage = 2,
    micro_batch: int = MICRO_BATCH,
    accumulation: int = 1,
    automatic: bool = False,
    precision: Precision | None = None,
) -> dict[str, Any]:
    """Build the configuration as plain data. ``precision``: bf16 if the GPUs have it, else fp16, if None.

    ``automatic`` writes "auto" for the batch sizes: the Trainer and Accelerate fill them in, DeepSpeed itself
    cannot read them. Otherwise train_batch_size = micro batch x accumulation x ranks of all nodes.
    """
    world = machine.ranks * machine.nodes
    batch: dict[str, Any] = {
        "train_batch_size": "auto" if automatic else micro_batch * accumulation * world,
        "train_micro_batch_size_per_gpu": "auto" if automatic else micro_batch,
        "gradient_accumulation_steps": "auto" if automatic else accumulation,
    }
    bucket = bucket_elements(machine.gpu_memory_bytes)
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": bucket,
    }
    if stage == 3:
        zero["stage3_prefetch_bucket_size"] = bucket // 10
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    else:
        zero["allgather_bucket_size"] = bucket
    sections = {"bf16": {"enabled": True}, "fp16": {"enabled": True, "loss_scale": 0}}
    width = precision or ("bf16" if machine.bf16 else "fp16")
    computed = {width: sections[width]} if width in sections else {}
    # Explicit, because the default changed from 0 (off) to 1.0 in 0.19.3.
    return batch | {"gradient_clipping": GRADIENT_CLIPPING} | computed | {"zero_optimization": zero}


def bucket_elements(gpu_memory_bytes: int) -> int:
    """Return the elements per communication bucket. With overlap_comm each takes about 4.5 x 2 x 2 bytes on the GPU."""
    if gpu_memory_bytes >= 40 * GIB:
        return 500_000_000
    return 200_000_000 if gpu_memory_bytes >= 16 * GIB else 50_000_000


def launch_line(machine: Machine, target: list[str]) -> str:
    """Return the line of DeepSpeed's launcher; for several nodes it runs on the first one, with a hostfile."""
    where = [f"--hostfile={HOSTFILE}"] if machine.nodes > 1 else [f"--num_gpus={machine.ranks}"]
    return shlex.join(["deepspeed", *where, *target])


def render_json(plain: dict[str, Any]) -> str:
    """Render a configuration as the content of its file."""
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def hostfile_text(machine: Machine) -> str:
    """Return the content of a hostfile, with ``node-N`` as placeholders for the names of the nodes."""
    return HOSTFILE_HEAD + "".join(f"node-{n + 1} slots={machine.ranks}\n" for n in range(machine.nodes))


def deepspeed_hostfile(machine: Machine, target: list[str]) -> GeneratedFix:
    """``deepspeed-hostfile``: the file and the launch line."""
    if not machine.gpu_count:
        return advice_only("the GPUs of a node")
    machine = as_multi_node(machine)
    return GeneratedFix(
        text=f"{nodes_text(machine)}, with the names that ssh uses.",
        commands=[launch_line(machine, target or [STAND_IN_SCRIPT])],
        files={HOSTFILE: hostfile_text(machine)},
    )


def deepspeed_json(machine: Machine, target: list[str]) -> GeneratedFix:
    """``deepspeed-json``: ZeRO stage 2 with consistent batch sizes, and the launch line."""
    if not machine.gpu_count:
        return (
            advice_only("a GPU of this machine (none was found)")
            if machine.gpu_count == 0
            else advice_only("the number of GPUs")
        )
    plain = zero_config(machine)
    port = [f"--master_port={machine.free_port}"] if machine.free_port and machine.free_port != DEFAULT_PORT else []
    start = ["deepspeed", f"--num_gpus={machine.ranks}", *port, *(target or [STAND_IN_SCRIPT]), "--deepspeed", FILE]
    return GeneratedFix(
        text=(
            f"train_batch_size {plain['train_batch_size']} = {MICRO_BATCH} per GPU x 1 accumulation step x "
            f"{machine.ranks * machine.nodes} ranks; change the numbers together. ZeRO stage 2 shards gradients and "
            "optimizer "
            "state; stage 3 the parameters too. The script must take --deepspeed (the Hugging Face Trainer does) or "
            f"give the file to deepspeed.initialize(config=...).{_precision(machine)}"
        ),
        commands=[shlex.join(start)],
        files={FILE: render_json(plain)},
    )


def _precision(machine: Machine) -> str:
    return "" if machine.bf16 else f" fp16, since {machine.gpu_name or 'this GPU'} has no bfloat16."
