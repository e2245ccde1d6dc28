"""The DeepSpeed configurations of a plan: one with its numbers, and one whose batch sizes Accelerate fills in.

Keys: deepspeed.ai/docs/config-json, and ``runtime/zero/config.py``, ``runtime/precision_config.py`` of DeepSpeed 0.19.
"""

from typing import Any

from ...fixes import deepspeed
from ...fixes.box import Box
from ..memory.working import DEEPSPEED_BUCKET, DEEPSPEED_LIVE, DEEPSPEED_PREFETCH, DEEPSPEED_SUB_GROUP
from ..types import Setting
from .setup_code import OPTIMIZERS

NVME_PATH = "/local_nvme"  # stands for a directory on the NVMe of each node
KNOWN_TO_ZERO = ("adamw", "adam")  # others ZeRO takes only when told to
NUMBERS = "DeepSpeed for {start}: sizes multiply out, {batch}. deepspeed.initialize and deepspeed_setup.py read it."
AUTO = (
    'The same for accelerate launch and the Trainer of transformers, which fill in each "auto" from the data loader '
    "and their own arguments. deepspeed.initialize cannot read it."
)
NVME = f" Put your own directory for {NVME_PATH}."


def configs(setting: Setting, box: Box) -> dict[str, str]:
    """Both files: name to content. JSON has no comments, so what a file is for stands under ``_comment``."""
    plain = config(setting, box)
    batch = (
        f"{plain['train_batch_size']} = {plain['train_micro_batch_size_per_gpu']} × "
        f"{plain['gradient_accumulation_steps']} × {box.ranks * box.nodes}"
    )
    nvme = NVME if NVME_PATH in str(plain) else ""
    numbers = NUMBERS.format(start=f"{box.ranks * box.nodes} ranks", batch=batch)
    automatic = {name: "auto" if name in deepspeed.BATCH_FIELDS else value for name, value in plain.items()}
    return {
        deepspeed.FILE: deepspeed.text({"_comment": numbers + nvme} | plain),
        deepspeed.AUTO_FILE: deepspeed.text({"_comment": AUTO + nvme} | automatic),
    }


def config(setting: Setting, box: Box) -> dict[str, Any]:
    """The plan as DeepSpeed reads it; buckets as the plan counts them."""
    train, strategy = setting.train, setting.layout
    stage = strategy.stage or 0
    plain = deepspeed.config(
        box,
        stage=stage,
        micro_batch=train.micro_batch or 1,
        accumulation=train.grad_accum or 1,
        precision=precision(setting),
    )
    zero = plain["zero_optimization"]
    zero["overlap_comm"] = strategy.overlap_comm is not False
    zero["reduce_bucket_size"] = int(strategy.reduce_bucket_size or DEEPSPEED_BUCKET)
    if stage == 3:
        zero["stage3_prefetch_bucket_size"] = int(DEEPSPEED_PREFETCH)
        zero["stage3_max_live_parameters"] = int(DEEPSPEED_LIVE)
        zero["sub_group_size"] = int(DEEPSPEED_SUB_GROUP)
    else:
        zero["allgather_bucket_size"] = int(strategy.allgather_bucket_size or DEEPSPEED_BUCKET)
    for name, device in (("offload_optimizer", strategy.offload_optimizer), ("offload_param", strategy.offload_param)):
        if device:
            path = {"nvme_path": NVME_PATH} if device == "nvme" else {}
            zero[name] = {"device": device, "pin_memory": True} | path
    if "bf16" in plain and train.master_dtype == "bf16":
        plain["bf16"]["bf16_master_weights_and_grads"] = True
        if train.optimizer_state_dtype == "bf16":
            plain["bf16"]["bf16_optimizer_states"] = True
    optimizer = train.optimizer or "adamw"
    if optimizer in OPTIMIZERS and optimizer not in KNOWN_TO_ZERO:
        plain["zero_allow_untested_optimizer"] = True
        if strategy.offload_optimizer:
            plain["zero_force_ds_cpu_optimizer"] = False
    return plain


def precision(setting: Setting) -> deepspeed.Precision:
    """What it computes in, as Accelerate and DeepSpeed name it."""
    dtype = setting.train.dtype or ""
    return "bf16" if dtype.startswith("bf16") else "fp16" if dtype.startswith("fp16") else "no"
