"""``accelerate.yaml`` of a plan, with the line that starts it."""

import shlex
from typing import Any

from ...hardware.machine import Machine
from ...launchers import accelerate, deepspeed
from ...text.yaml_output import render_yaml
from ..types import TrainingSetup
from . import deepspeed_json

HEAD = "node-1"  # a placeholder for the address of the first node
OWN_BLOCK = "Block"  # of the project's model


def render_accelerate_yaml(setting: TrainingSetup, machine: Machine, script: str, max_restarts: int) -> str:
    """Return ``accelerate.yaml`` for a script of the user's own, with notes on what it must do itself."""
    train, strategy = setting.train, setting.layout
    plain, notes = _configuration(setting, machine, setting.model.block)
    if strategy.kind == "zero-optimizer":
        notes.append("Accelerate does not shard optimizer states: the script must.")
    if type(strategy.reshard_after_forward) is int:
        notes.append(f"Accelerate cannot reshard to {strategy.reshard_after_forward} ranks.")
    if train.dtype in ("bf16-pure", "fp16-pure") and strategy.kind != "deepspeed":
        notes.append(f"Load the model in {deepspeed_json.precision_name(setting)}: its weights must be 16 bit.")
    if (train.grad_accum or 1) > 1:
        notes += _accumulation(setting)
    in_yaml = train.act_ckpt == "full" and strategy.is_fully_shard
    if train.act_ckpt not in (None, "none") and not in_yaml:
        notes.append("Enable activation checkpointing in the model: gradient_checkpointing_enable() in transformers.")
    return _render(machine, script, max_restarts, notes, plain)


def render_project_yaml(setting: TrainingSetup, machine: Machine, script: str, max_restarts: int) -> str:
    """Return ``accelerate.yaml`` for the project's own script, which does what the file cannot."""
    plain, notes = _configuration(setting, machine, OWN_BLOCK)
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
    """Return the configuration, and notes on it."""
    train, strategy = setting.train, setting.layout
    precision = deepspeed_json.precision_name(setting)
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
    """Return how to enable accumulation in the script."""
    steps = setting.train.grad_accum
    if not setting.layout.is_fully_shard:
        return [f"In the script: Accelerator(gradient_accumulation_steps={steps})."]
    plugin = f"GradientAccumulationPlugin(num_steps={steps}, sync_each_batch=True)"
    return [
        f"In the script: Accelerator(gradient_accumulation_plugin={plugin}).",
        'For the Trainer: accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}}.',
        "Without sync_each_batch gradients stay unsharded until the last micro-batch.",
    ]
