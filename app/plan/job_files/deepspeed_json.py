"""The DeepSpeed configurations of a plan: one with its numbers, and one whose batch sizes Accelerate fills in.

Keys: deepspeed.ai/docs/config-json, and ``runtime/zero/config.py``, ``runtime/precision_config.py`` of DeepSpeed 0.19.
"""

from typing import Any

from ...hardware.machine import Machine
from ...launchers import deepspeed
from ..batch_scaling import BatchScaling
from ..memory.gathered_weights import DEEPSPEED_BUCKET, DEEPSPEED_LIVE, DEEPSPEED_PREFETCH
from ..memory.temporaries import DEEPSPEED_SUB_GROUP
from ..types import TrainingSetup
from .manifest import EXAMPLE_RATE, learning_rate
from .optimizer_snippets import DEEPSPEED_TYPES

NVME_PATH = "/local_nvme"  # a placeholder for a directory on the NVMe drive of each node
NUMBERS = (
    "DeepSpeed configuration for {start}: train_batch_size {batch}. Read by deepspeed.initialize, and by train.py."
)
AUTO = (
    'The same for accelerate launch and the Trainer of transformers, which fill in each "auto" from the data loader '
    "and their own arguments. deepspeed.initialize cannot read it."
)
DUMMY = " The optimizer is DeepSpeed's own: with Accelerate, prepare accelerate.utils.DummyOptim(model.parameters())."
NVME = f" Replace {NVME_PATH} with your own directory."


def render_configs(setting: TrainingSetup, machine: Machine, batch: BatchScaling | None = None) -> dict[str, str]:
    """Return both files, name to content. JSON has no comments, so the purpose of a file is under ``_comment``."""
    plain = deepspeed_config(setting, machine, batch)
    sizes = (
        f"{plain['train_batch_size']} = {plain['train_micro_batch_size_per_gpu']} × "
        f"{plain['gradient_accumulation_steps']} × {machine.ranks * machine.nodes}"
    )
    nvme = NVME if NVME_PATH in str(plain) else ""
    numbers = NUMBERS.format(start=f"{machine.ranks * machine.nodes} ranks", batch=sizes)
    automatic = {name: "auto" if name in deepspeed.BATCH_FIELDS else value for name, value in plain.items()}
    dummy = ""
    if "optimizer" in plain:
        dummy = DUMMY
        automatic["optimizer"] = plain["optimizer"] | {"params": plain["optimizer"]["params"] | {"lr": "auto"}}
    return {
        deepspeed.FILE: deepspeed.render_json({"_comment": numbers + nvme} | plain),
        deepspeed.AUTO_FILE: deepspeed.render_json({"_comment": AUTO + dummy + nvme} | automatic),
    }


def deepspeed_config(setting: TrainingSetup, machine: Machine, batch: BatchScaling | None = None) -> dict[str, Any]:
    """Return the plan as DeepSpeed's configuration, with its bucket sizes. ``batch``: gives the learning rate."""
    train, strategy = setting.train, setting.layout
    stage = strategy.stage or 0
    plain = deepspeed.zero_config(
        machine,
        stage=stage,
        micro_batch=train.micro_batch or 1,
        accumulation=train.grad_accum or 1,
        precision=precision_name(setting),
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
    if train.optimizer in DEEPSPEED_TYPES and strategy.stage:
        zero["reduce_scatter"] = False  # Muon needs whole gradients; ranks would differ (DeepSpeed #8090)
    for name, device in (("offload_optimizer", strategy.offload_optimizer), ("offload_param", strategy.offload_param)):
        if device:
            path = {"nvme_path": NVME_PATH} if device == "nvme" else {}
            zero[name] = {"device": device, "pin_memory": True} | path
    if "bf16" in plain and train.master_dtype == "bf16":
        plain["bf16"]["bf16_master_weights_and_grads"] = True
        if train.optimizer_state_dtype == "bf16":
            plain["bf16"]["bf16_optimizer_states"] = True
    return plain | _optimizer(setting, batch)


def _optimizer(setting: TrainingSetup, batch: BatchScaling | None) -> dict[str, Any]:
    """Return the optimizer's part of the configuration.

    Muon is DeepSpeed's own, since it needs matrices that ZeRO has in parts; with torch's AdamW for the rest there is
    nothing to compile. Other optimizers are created by the script, and are allowed here.
    """
    train, strategy = setting.train, setting.layout
    optimizer = train.optimizer or "adamw"
    if optimizer in DEEPSPEED_TYPES:
        params = {"lr": learning_rate(setting, batch) or EXAMPLE_RATE}
        own = {} if strategy.offload_optimizer else {"torch_adam": True}
        return {"optimizer": {"type": DEEPSPEED_TYPES[optimizer], "params": params | own}}
    if optimizer in ("adamw", "adam") or (optimizer == "lion" and strategy.offload_optimizer):
        return {}
    force = {"zero_force_ds_cpu_optimizer": False} if strategy.offload_optimizer else {}
    return {"zero_allow_untested_optimizer": True} | force


def precision_name(setting: TrainingSetup) -> deepspeed.Precision:
    """Return the compute precision by its name in Accelerate and DeepSpeed."""
    dtype = setting.train.dtype or ""
    return "bf16" if dtype.startswith("bf16") else "fp16" if dtype.startswith("fp16") else "no"
