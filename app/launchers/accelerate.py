"""Configuration files for ``accelerate launch``: DDP, FSDP2, DeepSpeed.

Keys as Accelerate 1.6 and newer read them (FSDP2 needs 1.6 and torch 2.6); the tests load each file with Accelerate's
own loader, launcher and plugins.
"""

import shlex
from typing import Any

import yaml

from ..hardware.machine import GeneratedFix, Machine
from . import deepspeed
from .torchrun import STAND_IN_SCRIPT, advice_only

FILE = "accelerate.yaml"
DEFAULT_PORT = 29500
FSDP2_SINCE = (2, 6)
WRAP_FROM_PARAMETERS = 10_000_000


def base_config(box: Machine, distributed_type: str) -> dict[str, Any]:
    """What the three kinds share. ``num_processes`` counts the ranks of all nodes together."""
    plain: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": distributed_type,
        "num_machines": box.nodes,
        "num_processes": box.ranks * box.nodes,
        "machine_rank": 0,
        "main_process_port": 0,  # one node: Accelerate takes a free one
        "main_training_function": "main",
        "use_cpu": not box.gpu_count,
    }
    if box.nodes > 1:
        plain |= {
            "main_process_ip": box.head,
            "main_process_port": box.free_port or DEFAULT_PORT,
            "rdzv_backend": "static",
        }
    return plain


def ddp_config(box: Machine, precision: deepspeed.Precision = "no") -> dict[str, Any]:
    """DDP; without a word on it in the precision the script has now."""
    return base_config(box, "MULTI_GPU") | {"mixed_precision": precision}


def fsdp2_config(
    box: Machine,
    *,
    precision: deepspeed.Precision | None = None,
    reshard: bool = True,
    offload: bool = False,
    recompute: bool = False,
    shard_size: int | None = None,
    block: str = "",
) -> dict[str, Any]:
    """FSDP2. fsdp_version must be written (its default is 1); keys that only FSDP1 has are left out.

    ``precision``: what the box computes best in where None. ``shard_size``: ranks that share one copy of the model,
    where each further group of them has a copy of its own (Accelerate 1.10 and newer). ``block``: class of the layer
    that becomes a unit, else what has many parameters does.
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
    width = precision or ("bf16" if box.bf16 else "no")
    plain = base_config(box, "FSDP") | {"mixed_precision": width, "fsdp_config": fsdp}
    if shard_size:
        plain["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": box.ranks * box.nodes // shard_size,
            "parallelism_config_dp_shard_size": shard_size,
        }
    return plain


def deepspeed_config(box: Machine, file: str = deepspeed.FILE, *, stage: int | None = None) -> dict[str, Any]:
    """DeepSpeed by a file of its own. Beside that file Accelerate refuses mixed_precision, zero_stage and the like.

    ``stage``: with 3, models of transformers are split over the ranks while they are made.
    """
    section: dict[str, Any] = {"deepspeed_config_file": file, "zero3_init_flag": stage == 3}
    if box.nodes > 1:
        section["deepspeed_multinode_launcher"] = "standard"
    return base_config(box, "DEEPSPEED") | {"deepspeed_config": section}


def render_yaml(plain: dict[str, Any]) -> str:
    """A configuration as the content of its file."""
    return yaml.safe_dump(plain, sort_keys=False)


def accelerate_ddp(box: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-ddp``. Without GPUs it runs gloo processes, for which the launcher needs a word of its own."""
    if box.gpu_count is None:
        return advice_only("the number of GPUs")
    on_cpu = (
        ""
        if box.gpu_count
        else " ACCELERATE_USE_CPU=true is needed here: without it each process would train alone, and say nothing."
    )
    return GeneratedFix(
        text=_words(box) + on_cpu, commands=_start(box, target), files={FILE: render_yaml(ddp_config(box))}
    )


def accelerate_fsdp2(box: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-fsdp2``. Accelerate has no FSDP on the CPU (it falls back to DDP): words only there."""
    if not box.gpu_count:
        return _needs_gpus(box, "FSDP")
    if box.torch and box.torch < FSDP2_SINCE:
        return GeneratedFix(text=f"FSDP2 needs torch 2.6 or newer; this box has {box.torch[0]}.{box.torch[1]}.")
    return GeneratedFix(
        text=(
            f"{_words(box)} Modules of more than {WRAP_FROM_PARAMETERS:,} parameters become units of their own; for a "
            "transformer, TRANSFORMER_BASED_WRAP with fsdp_transformer_layer_cls_to_wrap: YourBlock is better. Needs "
            f"Accelerate 1.6 or newer.{_precision(box)}"
        ),
        commands=_start(box, target),
        files={FILE: render_yaml(fsdp2_config(box))},
    )


def accelerate_deepspeed(box: Machine, target: list[str]) -> GeneratedFix:
    """``accelerate-deepspeed``: the YAML and the JSON it names."""
    if not box.gpu_count:
        return _needs_gpus(box, "DeepSpeed")
    json_text = deepspeed.render_json(deepspeed.zero_config(box, automatic=True))
    return GeneratedFix(
        text=(
            f'{_words(box)} Batch sizes are "auto": Accelerate fills them in from your data loader. Precision, '
            f"clipping and ZeRO stage stand in {deepspeed.FILE} only."
        ),
        commands=_start(box, target),
        files={FILE: render_yaml(deepspeed_config(box)), deepspeed.FILE: json_text},
    )


def _start(box: Machine, target: list[str]) -> list[str]:
    on_cpu = [] if box.gpu_count else ["env", "ACCELERATE_USE_CPU=true"]
    line = [*on_cpu, "accelerate", "launch", "--config_file", FILE]
    script = target or [STAND_IN_SCRIPT]
    if box.nodes == 1:
        return [shlex.join([*line, *script])]
    return [shlex.join([*line, "--machine_rank", str(rank), *script]) for rank in range(box.nodes)]


def _words(box: Machine) -> str:
    counted = f"num_processes {box.ranks * box.nodes} is the total"
    if box.nodes == 1:
        return f"{counted}, one for each GPU." if box.gpu_count else f"{counted}; no GPU shows here."
    return (
        f"{counted} over {box.nodes} nodes. One line per node, each with its own --machine_rank; "
        f"{box.head} must be the first node."
    )


def _needs_gpus(box: Machine, what: str) -> GeneratedFix:
    if box.gpu_count is None:
        return advice_only("the number of GPUs")
    return GeneratedFix(text=f"{what} under Accelerate needs GPUs, and none shows here: make this file on the GPU box.")


def _precision(box: Machine) -> str:
    return "" if box.bf16 else f" mixed_precision is no, since {box.gpu_name or 'this GPU'} has no bfloat16."
