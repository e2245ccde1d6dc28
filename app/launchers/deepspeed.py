"""A DeepSpeed configuration for this box.

Keys and defaults: deepspeed.ai/docs/config-json and the source of DeepSpeed 0.19.8, whose own parser reads the
result in the tests.
"""

import shlex
from typing import Any, Literal

import msgspec

from ..hardware.machine import GeneratedFix, Machine
from .torchrun import GIB, STAND_IN_SCRIPT, advice_only, as_multi_node, nodes_text

FILE = "ds_config.json"
AUTO_FILE = "ds_config_auto.json"
HOSTFILE = "hostfile"
HOSTFILE_HEAD = (
    "# For deepspeed --hostfile: the nodes, which it reaches by ssh, and the GPUs of each. Put your names in.\n"
)
DEFAULT_PORT = 29500
MICRO_BATCH = 4
GRADIENT_CLIPPING = 1.0  # the norm that written scripts clip at as well
BATCH_FIELDS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
Stage = Literal[0, 1, 2, 3]
Precision = Literal["bf16", "fp16", "no"]


def zero_config(
    box: Machine,
    *,
    stage: Stage = 2,
    micro_batch: int = MICRO_BATCH,
    accumulation: int = 1,
    automatic: bool = False,
    precision: Precision | None = None,
) -> dict[str, Any]:
    """The configuration as plain data. ``precision``: what the box computes best in where None.

    ``automatic`` writes "auto" for the batch sizes: the Trainer and Accelerate fill them in, plain DeepSpeed cannot
    read them. Otherwise train_batch_size = micro batch x accumulation x ranks of all nodes.
    """
    world = box.ranks * box.nodes
    batch: dict[str, Any] = {
        "train_batch_size": "auto" if automatic else micro_batch * accumulation * world,
        "train_micro_batch_size_per_gpu": "auto" if automatic else micro_batch,
        "gradient_accumulation_steps": "auto" if automatic else accumulation,
    }
    bucket = bucket_elements(box.gpu_memory_bytes)
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
    width = precision or ("bf16" if box.bf16 else "fp16")
    computed = {width: sections[width]} if width in sections else {}
    # Written out since its default changed from 0 (off) to 1.0 in 0.19.3.
    return batch | {"gradient_clipping": GRADIENT_CLIPPING} | computed | {"zero_optimization": zero}


def bucket_elements(gpu_memory_bytes: int) -> int:
    """Elements per communication bucket: with overlap_comm they take about 4.5 x 2 x 2 bytes each of GPU memory."""
    if gpu_memory_bytes >= 40 * GIB:
        return 500_000_000
    return 200_000_000 if gpu_memory_bytes >= 16 * GIB else 50_000_000


def launch_line(box: Machine, target: list[str]) -> str:
    """The line of DeepSpeed's launcher: for several nodes on the first of them, with their hostfile."""
    where = [f"--hostfile={HOSTFILE}"] if box.nodes > 1 else [f"--num_gpus={box.ranks}"]
    return shlex.join(["deepspeed", *where, *target])


def render_json(plain: dict[str, Any]) -> str:
    """A configuration as the content of its file."""
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def hostfile_text(box: Machine) -> str:
    """The content of a hostfile; ``node-N`` stand for the names of the nodes."""
    return HOSTFILE_HEAD + "".join(f"node-{n + 1} slots={box.ranks}\n" for n in range(box.nodes))


def deepspeed_hostfile(box: Machine, target: list[str]) -> GeneratedFix:
    """``deepspeed-hostfile``: the file, and the line that starts a job with it."""
    if not box.gpu_count:
        return advice_only("the GPUs of a node")
    box = as_multi_node(box)
    return GeneratedFix(
        text=f"{nodes_text(box)}, by the names that ssh takes.",
        commands=[launch_line(box, target or [STAND_IN_SCRIPT])],
        files={HOSTFILE: hostfile_text(box)},
    )


def deepspeed_json(box: Machine, target: list[str]) -> GeneratedFix:
    """``deepspeed-json``: ZeRO stage 2 with numbers that multiply out, and the line that starts it."""
    if not box.gpu_count:
        return (
            advice_only("a GPU of this box (none was seen)")
            if box.gpu_count == 0
            else advice_only("the number of GPUs")
        )
    plain = zero_config(box)
    port = [f"--master_port={box.free_port}"] if box.free_port and box.free_port != DEFAULT_PORT else []
    start = ["deepspeed", f"--num_gpus={box.ranks}", *port, *(target or [STAND_IN_SCRIPT]), "--deepspeed", FILE]
    return GeneratedFix(
        text=(
            f"train_batch_size {plain['train_batch_size']} = {MICRO_BATCH} per GPU x 1 accumulation step x "
            f"{box.ranks * box.nodes} ranks; change the numbers together. ZeRO stage 2 shards gradients and optimizer "
            "state; stage 3 the parameters too. The script must take --deepspeed (the Hugging Face Trainer does) or "
            f"give the file to deepspeed.initialize(config=...).{_precision(box)}"
        ),
        commands=[shlex.join(start)],
        files={FILE: render_json(plain)},
    )


def _precision(box: Machine) -> str:
    return "" if box.bf16 else f" fp16, since {box.gpu_name or 'this GPU'} has no bfloat16."
