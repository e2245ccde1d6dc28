"""Configurations of a plan for DeepSpeed and Accelerate, with the line that starts the latter.

DeepSpeed's is written with its numbers, and with batch sizes that Accelerate fills in. Keys: deepspeed.ai/docs
(config-json), and ``runtime/zero/config.py``, ``runtime/precision_config.py`` of DeepSpeed 0.19.
"""

import shlex
from typing import Any

from ...hardware.machine import Machine
from ...launchers import accelerate, deepspeed
from ...text.yaml_output import render_yaml
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


HEAD = "node-1"  # a placeholder for the address of the first node
OWN_BLOCK = "Block"  # of the project's model


def render_accelerate_yaml(
    setting: TrainingSetup, machine: Machine, script: str, max_restarts: int, is_own: bool
) -> str:
    """Return ``accelerate.yaml``, for a script of the user's own with notes on what it must do itself."""
    train, strategy = setting.train, setting.layout
    plain, notes = _configuration(setting, machine, setting.model.block if is_own else OWN_BLOCK)
    if not is_own:
        return _render(machine, script, max_restarts, notes, plain)
    if strategy.kind == "zero-optimizer":
        notes.append("Accelerate does not shard optimizer states: the script must.")
    if type(strategy.reshard_after_forward) is int:
        notes.append(f"Accelerate cannot reshard to {strategy.reshard_after_forward} ranks.")
    if train.dtype in ("bf16-pure", "fp16-pure") and strategy.kind != "deepspeed":
        notes.append(f"Load the model in {precision_name(setting)}: its weights must be 16 bit.")
    if (train.grad_accum or 1) > 1:
        notes += _accumulation(setting)
    in_yaml = train.act_ckpt == "full" and strategy.is_fully_shard
    if train.act_ckpt not in (None, "none") and not in_yaml:
        notes.append("Enable activation checkpointing in the model: gradient_checkpointing_enable() in transformers.")
    return _render(machine, script, max_restarts, notes, plain)


def does_project(setting: TrainingSetup) -> bool:
    """Return whether Accelerate can do a setting as planned."""
    strategy, train = setting.layout, setting.train
    shards_unevenly = strategy.is_fully_shard and bool((setting.model.experts or 0) % setting.gpus)
    is_own = strategy.kind == "zero-optimizer" or strategy.splits_model
    no_strategy = is_own or type(strategy.reshard_after_forward) is int or shards_unevenly
    other_options = train.compile or train.frozen or train.optimizer_in_bwd or train.act_offload
    in_part = strategy.is_fully_shard and train.act_ckpt not in (None, "none", "full")
    is_pure = (train.dtype or "").endswith("-pure")
    plain = train.loss in (None, "eager") and train.optimizer != "muon" and not (other_options or in_part or is_pure)
    return plain and not no_strategy


def _configuration(setting: TrainingSetup, machine: Machine, block: str) -> tuple[dict[str, Any], list[str]]:
    train, strategy = setting.train, setting.layout
    precision = precision_name(setting)
    if strategy.kind == "deepspeed":
        plain = accelerate.deepspeed_config(machine, deepspeed.AUTO_FILE, stage=strategy.stage)
        return plain, [f"Precision, stage, offload and buckets are set in {deepspeed.AUTO_FILE}."]
    if (train.dtype or "").endswith("-pure"):
        precision = "no"
    if not strategy.is_fully_shard:
        if strategy.kind == "single":
            return accelerate.base_config(machine, "NO") | {"mixed_precision": precision}, []
        return accelerate.ddp_config(machine, precision), []
    hybrid = strategy.kind == "hsdp"
    plain = accelerate.fsdp2_config(
        machine,
        precision=precision,
        reshard=strategy.reshard_after_forward is not False,
        offload=strategy.cpu_offload,
        recompute=train.act_ckpt == "full",
        shard_size=(strategy.shard_size or machine.ranks) if hybrid else None,
        block=block,
    )
    names = block.replace(",", " and ")
    notes = [
        f"Each {names} becomes an FSDP unit; if your blocks have another class, name it."
        if block
        else "For a transformer use TRANSFORMER_BASED_WRAP and fsdp_transformer_layer_cls_to_wrap: YourBlock."
    ]
    return plain, notes + (["parallelism_config needs Accelerate 1.10 or newer."] if hybrid else [])


def _render(machine: Machine, script: str, max_restarts: int, notes: list[str], plain: dict[str, Any]) -> str:
    start = ["accelerate", "launch", "--config_file", accelerate.FILE, "--max_restarts", str(max_restarts)]
    rank = " --machine_rank N" if machine.nodes > 1 else ""
    head = f"{shlex.join(start)}{rank} {shlex.quote(script)}"
    if machine.nodes > 1:
        notes = [f"Run it on each node, with N from 0; replace {HEAD} with the address of the first.", *notes]
    return "".join(f"# {line}\n" for line in [head, *notes]) + render_yaml(plain)


def _accumulation(setting: TrainingSetup) -> list[str]:
    steps = setting.train.grad_accum
    if not setting.layout.is_fully_shard:
        return [f"In the script: Accelerator(gradient_accumulation_steps={steps})."]
    plugin = f"GradientAccumulationPlugin(num_steps={steps}, sync_each_batch=True)"
    return [
        f"In the script: Accelerator(gradient_accumulation_plugin={plugin}).",
        'For the Trainer: accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}}.',
        "Without sync_each_batch gradients stay unsharded until the last micro-batch.",
    ]
