"""The files that run a candidate: start lines, launcher configurations, setup code, job scripts, a manifest.

The generators of the fix screen make them, for the machine of the plan.
"""

import os
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from ...hardware.machine import Machine
from ...launchers import accelerate, deepspeed, schedulers, torchrun
from ...system.files import write_atomic
from ...text.units import GIB, gib_text
from ...text.yaml_output import render_yaml
from ..batch_scaling import BatchScaling
from ..memory.model_states import model_states
from ..types import TrainingSetup
from . import deepspeed_json, setup_script
from .manifest import FILE as MANIFEST
from .manifest import render_manifest

__all__ = ["missing_script_reason", "render_job_files", "render_manifest", "script_path_from", "write_job_files"]

ENV_FILE = "env.sh"
READS_JSON = (
    "# The script must read --deepspeed and its JSON, as deepspeed_setup.py and the Trainer of transformers do.\n"
)
LEAST_GIB = 0.05  # smaller differences are not mentioned
DEEPSPEED_ENV = ".deepspeed_env"  # read by its launcher in this directory, and copied to the other nodes
HEAD = "node-1"  # a placeholder for the address of the first node
MODES = {"launch.sh": 0o755, schedulers.SLURM_FILE: 0o755}
OMP_THREADS = 4


def render_job_files(
    setting: TrainingSetup,
    script: str = "train.py",
    batch: BatchScaling | None = None,
    versions: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """Render the files of a complete setting with its strategy, name to content.

    ``batch``: of the reference run it continues; ``versions``: of the packages of the run.
    """
    strategy = setting.layout
    machine = _machine(setting)
    with_zero = strategy.kind == "deepspeed"
    script = f"./{script}" if script.startswith("-") else script
    target = [script, "--deepspeed", deepspeed.FILE] if with_zero else [script]
    made = {
        "launch.sh": _launch(machine, target, with_zero),
        ENV_FILE: _environment(setting),
        MANIFEST: render_manifest(setting, batch, versions),
    }
    if with_zero:
        made |= deepspeed_json.render_configs(setting, machine, batch)
        made["deepspeed_setup.py"] = setup_script.render_deepspeed(setting, machine, batch)
        if setting.nodes > 1:
            made[deepspeed.HOSTFILE] = deepspeed.hostfile_text(machine)
            made[DEEPSPEED_ENV] = "".join(f"{name}={value}\n" for name, value in _variables().items())
    elif strategy.is_fully_shard:
        made["fsdp2_setup.py"] = setup_script.render_fsdp2(setting, machine, batch)
    elif strategy.replicates:
        made["ddp_setup.py"] = setup_script.render_ddp(setting, machine, batch)
    if configuration := _accelerate(setting, machine, script):
        made[accelerate.FILE] = configuration
    variables = _variables()
    made[schedulers.SLURM_FILE] = schedulers.render_sbatch(machine, target, ENV_FILE)
    made[schedulers.PYTORCHJOB_FILE] = schedulers.render_pytorchjob(machine, target, variables)
    made[schedulers.JOBSET_FILE] = schedulers.render_jobset(machine, target, variables)
    return made


def script_path_from(directory: Path, script: str) -> str:
    """Return the script's path relative to ``directory`` if it exists, for the start line."""
    return os.path.relpath(script, directory) if Path(script).exists() else script


def missing_script_reason(script: str, names: Collection[str]) -> str:
    """Return a note that the script is neither here nor among the files, or ""."""
    if Path(script).exists() or Path(script).name in names:
        return ""
    setup = next((name for name in names if name.endswith("_setup.py")), "")
    instead = f"; {setup} is a complete script that you can use instead" if setup else ""
    return f"{script} does not exist and is not generated: the files start it, so put your script there{instead}"


def write_job_files(directory: Path, made: dict[str, str], option: str) -> None:
    """Write the files; start scripts become executable.

    Raises:
        UserError: The directory cannot be written.
    """
    for name, content in made.items():
        write_atomic(directory / name, content.encode(), option, MODES.get(name, 0o644))


def _machine(setting: TrainingSetup) -> Machine:
    return Machine(
        gpu_count=setting.gpus // setting.nodes,
        gpu_memory_bytes=int((setting.gpu_memory_gib or 0) * GIB),
        gpu_name=setting.gpu or "",
        nodes=setting.nodes,
        head=HEAD,
    )


def _launch(machine: Machine, target: list[str], with_zero: bool) -> str:
    if with_zero:
        line, where = deepspeed.launch_line(machine, target), "on the node"
        if machine.nodes > 1:
            where = "on the first node; it reaches the others by ssh, and sets\n# the variables of .deepspeed_env there"
    elif machine.nodes > 1:
        line, where = (
            torchrun.torchrun_line_for_nodes(machine, target),
            f"on each node; replace {HEAD} with the address of the first",
        )
    else:
        line, where = torchrun.torchrun_line(machine, target), "on the node"
    what = f"{machine.ranks * machine.nodes} ranks" if machine.ranks * machine.nodes > 1 else "one process"
    comment = f"# Starts {what}. Run it {where}.\n{READS_JSON if with_zero else ''}"
    return f'#!/bin/sh\n{comment}set -eu\ncd "$(dirname "$0")"\n. ./env.sh\nexec {line}\n'


def _variables() -> dict[str, str]:
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "OMP_NUM_THREADS": str(OMP_THREADS)}


def _environment(setting: TrainingSetup) -> str:
    why = {
        "PYTORCH_CUDA_ALLOC_CONF": "Free memory in small pieces can be reused for larger tensors: fewer gaps.",
        "OMP_NUM_THREADS": "CPU threads per rank; torchrun sets 1 by default.",
    }
    lines = ["# The environment of every rank: launch.sh and job.slurm read it."]
    for name, value in _variables().items():
        lines += [f"# {why[name]}", f"export {name}={shlex.quote(value)}"]
    if setting.nodes > 1:
        lines += ["# The network interface between the nodes, if NCCL chooses another:"]
        lines += ["# export NCCL_SOCKET_IFNAME=eth0"]
    return "\n".join(lines) + "\n"


def _accelerate(setting: TrainingSetup, machine: Machine, script: str) -> str | None:
    """Return ``accelerate.yaml``, or None for a strategy that Accelerate does not have."""
    train, strategy = setting.train, setting.layout
    precision = deepspeed_json.precision_name(setting)
    notes: list[str] = []
    if strategy.kind == "deepspeed":
        plain = accelerate.deepspeed_config(machine, deepspeed.AUTO_FILE, stage=strategy.stage)
        notes.append(f"Precision, stage, offload and buckets are set in {deepspeed.AUTO_FILE}.")
    elif strategy.is_fully_shard:
        hybrid = strategy.kind == "hsdp"
        plain = accelerate.fsdp2_config(
            machine,
            precision=precision,
            reshard=strategy.reshard_after_forward is not False,
            offload=strategy.cpu_offload,
            recompute=train.act_ckpt == "full",
            shard_size=(strategy.shard_size or machine.ranks) if hybrid else None,
            block=setting.model.block,
        )
        block = setting.model.block.replace(",", " and ")
        notes.append(
            f"Each {block} becomes an FSDP unit; if your blocks have another class, name it."
            if block
            else "For a transformer use TRANSFORMER_BASED_WRAP and fsdp_transformer_layer_cls_to_wrap: YourBlock."
        )
        if hybrid:
            notes.append("parallelism_config needs Accelerate 1.10 or newer.")
        if type(strategy.reshard_after_forward) is int:
            notes.append(f"Accelerate cannot reshard to {strategy.reshard_after_forward} ranks; fsdp2_setup.py does.")
    elif strategy.replicates:
        plain = accelerate.ddp_config(machine, precision)
        if strategy.kind == "zero-optimizer":
            notes.append("Accelerate does not shard optimizer states: your script must, as ddp_setup.py does.")
    elif strategy.kind == "single":
        plain = accelerate.base_config(machine, "NO") | {"mixed_precision": precision}
    else:
        return None
    if train.dtype in ("bf16-pure", "fp16-pure") and strategy.kind != "deepspeed":
        plain["mixed_precision"] = "no"
        notes.append(f"Load the model in {precision}: its weights must be 16 bit.")
    if (train.grad_accum or 1) > 1:
        notes += _accumulation(setting)
    in_yaml = train.act_ckpt == "full" and strategy.is_fully_shard
    if train.act_ckpt not in (None, "none") and not in_yaml:
        notes.append("Enable activation checkpointing in the model: gradient_checkpointing_enable() in transformers.")
    rank = " --machine_rank N" if machine.nodes > 1 else ""
    head = f"accelerate launch --config_file {accelerate.FILE}{rank} {shlex.quote(script)}"
    if machine.nodes > 1:
        notes.insert(0, f"Run it on each node, with N from 0; replace {HEAD} with the address of the first.")
    return "".join(f"# {line}\n" for line in [head, *notes]) + render_yaml(plain)


def _accumulation(setting: TrainingSetup) -> list[str]:
    """Return how to enable accumulation in Accelerate; FSDP's gradients stay whole unless each micro-batch reduces
    them.
    """
    steps, strategy = setting.train.grad_accum, setting.layout
    if not strategy.is_fully_shard:
        return [f"In the script: Accelerator(gradient_accumulation_steps={steps})."]
    whole = msgspec.structs.replace(setting, strategy=msgspec.structs.replace(strategy, sync_each_batch=False))
    more_bytes = model_states(whole).total - model_states(setting).total
    plugin = f"GradientAccumulationPlugin(num_steps={steps}, sync_each_batch=True)"
    more = f"{gib_text(more_bytes)} more on a GPU" if more_bytes >= LEAST_GIB * GIB else "more on the host"
    return [
        f"In the script: Accelerator(gradient_accumulation_plugin={plugin}).",
        'For the Trainer: accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}}.',
        f"Without sync_each_batch gradients stay unsharded until the last micro-batch: {more}.",
    ]
