"""Configuration files for ``accelerate launch``: DDP, FSDP2, DeepSpeed.

Keys are those of Accelerate 1.6 and newer (FSDP2 needs 1.6 and torch 2.6). The tests load each file with Accelerate's
own loader, launcher and plugins.
"""

import shlex
from typing import Any

from ..hardware.machine import Machine
from ..text.yaml_output import render_yaml
from . import deepspeed
from .torchrun import STAND_IN_SCRIPT, advice_only
from .types import GeneratedFix

FILE = "accelerate.yaml"
DEFAULT_PORT = 29500
FSDP2_SINCE = (2, 6)
WRAP_FROM_PARAMETERS = 10_000_000


def base_config(machine: Machine, distributed_type: str) -> dict[str, Any]:
    """Build the part that all three kinds share. ``num_processes`` counts the ranks of all nodes together."""
    plain: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": distributed_type,
        "num_machines": machine.nodes,
        "num_processes": machine.ranks * machine.nodes,
        "machine_rank": 0,
        "main_process_port": 0,  # one node: Accelerate takes a free one
        "main_training_function": "main",
        "use_cpu": not machine.gpu_count,
    }
    if machine.nodes > 1:
        plain |= {
            "main_process_ip": machine.head,
            "main_process_port": machine.free_port or DEFAULT_PORT,
            "rdzv_backend": "static",
        }
    return plain


def ddp_config(machine: Machine, precision: deepspeed.Precision = "no") -> dict[str, Any]:
    """Build the configuration for DDP. By default the precision of the script stays."""
    return base_config(machine, "MULTI_GPU") | {"mixed_precision": precision}


def fsdp2_config(
    machine: Machine,
    *,
    precision: deepspeed.Precision | None = None,
    reshard: bool = True,
    offload: bool = False,
    recompute: bool = False,
    shard_size: int | None = None,
    block: str = "",
) -> dict[str, Any]:
    """Build the configuration for FSDP2. fsdp_version is explicit (its default is 1); keys of FSDP1 only are left out.

    ``precision``: bf16 if the GPUs have it, if None. ``shard_size``: ranks that share one copy of the model; each
    further group of them has its own copy (Accelerate 1.10 and newer). ``block``: class of the layer that becomes a
    unit; without it, modules with many parameters do.
    """
    by_size = {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": WRAP_FROM_PARAMETERS}
    by_class = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": block}
    fsdp = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": reshard,
        **(by_class if block else by_size),
        "fsdp_offload_params": offload,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_activation_checkpointing": recompute,
    }
    width = precision or ("bf16" if machine.bf16 else "no")
    plain = base_config(machine, "FSDP") | {"mixed_precision": width, "fsdp_config": fsdp}
    if shard_size:
        plain["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": machine.ranks * machine.nodes // shard_size,
            "parallelism_config_dp_shard_size": shard_size,
        }
    return plain


def deepspeed_config(machine: Machine, file: str = deepspeed.FILE, *, stage: int | None = None) -> dict[str, Any]:
    """Build the configuration for DeepSpeed with a file of its own. With such a file Accelerate refuses mixed_precision
    and zero_stage.

    ``stage``: with 3, models of transformers are sharded over the ranks while they are created.
    """
    section: dict[str, Any] = {"deepspeed_config_file": file, "zero3_init_flag": stage == 3}
    if machine.nodes > 1:
        section["deepspeed_multinode_launcher"] = "standard"
    return base_config(machine, "DEEPSPEED") | {"deepspeed_config": section}


def accelerate_ddp(machine: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-ddp``. Without GPUs it starts gloo processes, for which the launcher needs ACCELERATE_USE_CPU."""
    if machine.gpu_count is None:
        return advice_only("the number of GPUs")
    on_cpu = (
        ""
        if machine.gpu_count
        else " ACCELERATE_USE_CPU=true is needed here: without it each process trains alone, without a warning."
    )
    return GeneratedFix(
        text=_description(machine) + on_cpu,
        commands=_start(machine, target),
        files={FILE: render_yaml(ddp_config(machine))},
    )


def accelerate_fsdp2(machine: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-fsdp2``. Text alone without GPUs: Accelerate falls back to DDP on the CPU."""
    if not machine.gpu_count:
        return _needs_gpus(machine, "FSDP")
    if machine.torch and machine.torch < FSDP2_SINCE:
        return GeneratedFix(
            text=f"FSDP2 needs torch 2.6 or newer; this machine has {machine.torch[0]}.{machine.torch[1]}."
        )
    return GeneratedFix(
        text=(
            f"{_description(machine)} Modules of more than {WRAP_FROM_PARAMETERS:,} parameters become units of their "
            "own; for a "
            "transformer, TRANSFORMER_BASED_WRAP with fsdp_transformer_layer_cls_to_wrap: YourBlock is better. Needs "
            f"Accelerate 1.6 or newer.{_precision(machine)}"
        ),
        commands=_start(machine, target),
        files={FILE: render_yaml(fsdp2_config(machine))},
    )


def accelerate_deepspeed(machine: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-deepspeed``: the YAML and the JSON it names."""
    if not machine.gpu_count:
        return _needs_gpus(machine, "DeepSpeed")
    json_text = deepspeed.render_json(deepspeed.zero_config(machine, automatic=True))
    return GeneratedFix(
        text=(
            f'{_description(machine)} Batch sizes are "auto": Accelerate fills them in from your data loader. '
            "Precision, "
            f"clipping and ZeRO stage are in {deepspeed.FILE} only."
        ),
        commands=_start(machine, target),
        files={FILE: render_yaml(deepspeed_config(machine)), deepspeed.FILE: json_text},
    )


def _start(machine: Machine, target: list[str]) -> list[str]:
    on_cpu = [] if machine.gpu_count else ["env", "ACCELERATE_USE_CPU=true"]
    line = [*on_cpu, "accelerate", "launch", "--config_file", FILE]
    script = target or [STAND_IN_SCRIPT]
    if machine.nodes == 1:
        return [shlex.join([*line, *script])]
    return [shlex.join([*line, "--machine_rank", str(rank), *script]) for rank in range(machine.nodes)]


def _description(machine: Machine) -> str:
    counted = f"num_processes {machine.ranks * machine.nodes} is the total"
    if machine.nodes == 1:
        return f"{counted}, one for each GPU." if machine.gpu_count else f"{counted}; no GPU was found."
    return (
        f"{counted} over {machine.nodes} nodes. One line per node, each with its own --machine_rank; "
        f"{machine.head} must be the first node."
    )


def _needs_gpus(machine: Machine, what: str) -> GeneratedFix:
    if machine.gpu_count is None:
        return advice_only("the number of GPUs")
    return GeneratedFix(
        text=f"{what} under Accelerate needs GPUs, and none was found: create this file on the machine with the GPUs."
    )


def _precision(machine: Machine) -> str:
    return "" if machine.bf16 else f" mixed_precision is no, since {machine.gpu_name or 'this GPU'} has no bfloat16."
