"""Changes that a strategy needs in a script and in its launch command; the words are ``strategies.jsonc``."""

import msgspec

from .rank_share import data_parallel_ranks
from .tables import read_table
from .types import TrainingSetup


class StrategyWords(msgspec.Struct, frozen=True):
    """Words on a strategy, or on what ranks split: the title of a program, the change to a script, the mesh."""

    title: str = ""
    change: str = ""
    mesh: str = ""


WORDS = read_table("strategies.jsonc", dict[str, StrategyWords])


def mesh_line(setting: TrainingSetup) -> str:
    """Return the call that creates the mesh of a strategy that splits the model, its outermost dimension first.

    Ranks that split a sequence or experts shard the weights as well, so theirs is a part of the sharding dimension.
    """
    strategy = setting.layout
    shards = data_parallel_ranks(setting) // (strategy.expert or 1)
    sizes = {
        "pp": strategy.pipeline,
        "dp_shard": shards if shards > 1 else None,
        **{WORDS[name].mesh: getattr(strategy, name) for name in ("context", "expert", "tensor")},
    }
    used = {name: size for name, size in sizes.items() if size}
    shape, names = ", ".join(map(str, used.values())), ", ".join(f'"{name}"' for name in used)
    comma = "," if len(used) == 1 else ""
    return f'mesh = init_device_mesh("cuda", ({shape}{comma}), mesh_dim_names=({names}{comma}))'


def without_files(setting: TrainingSetup) -> str:
    """Return what job files cannot split like this, or ""."""
    used = [name for name, size in setting.layout.splits.items() if size > 1]
    if not setting.layout.splits_model:
        return ""
    if "pipeline" in used:
        return "stages of a pipeline"
    if len(used) > 1:
        return f"{' and '.join(used)} parallelism together"
    return "split layers with experts" if used == ["tensor"] and setting.model.experts else ""


def split_changes(setting: TrainingSetup) -> list[str]:
    """Return the mesh of a strategy that splits the model, and the calls that use it; [] for others."""
    strategy = setting.layout
    if not strategy.splits_model:
        return []
    used = [name for name in WORDS if strategy.splits.get(name, 1) > 1]
    changes = [f"{mesh_line(setting)}.", *(WORDS[name].change for name in used)]
    if inner := [f'"{WORDS[name].mesh}"' for name in used if name in ("context", "expert")]:
        names = ", ".join(['"dp_shard"', *inner])
        changes.append(f"fully_shard over the flattened dimensions: mesh[{names}]._flatten().")
    return changes


def required_changes(setting: TrainingSetup) -> list[str]:
    """Return the changes, a sentence or two each, the largest first."""
    strategy, train = setting.layout, setting.train
    changes = [WORDS[strategy.kind].change, *split_changes(setting)]
    if strategy.is_fully_shard and strategy.reshard_after_forward is False:
        changes.append("reshard_after_forward=False: weights stay unsharded between forward and backward pass.")
    elif strategy.kind == "fsdp2" and (strategy.reshard_after_forward or 0) > 1:
        changes.append(f"reshard_after_forward={strategy.reshard_after_forward}: split less after the forward pass.")
    if strategy.kind == "deepspeed":
        changes.append(f"zero_optimization.stage is {strategy.stage or 0}.")
    if strategy.cpu_offload:
        changes.append("offload_policy=CPUOffloadPolicy(), with gloo in addition to NCCL for tensors on the host.")
    offloaded = {"optimizer states": strategy.offload_optimizer, "parameters": strategy.offload_param}
    for what, device in offloaded.items():
        if device:
            where = "host memory" if device == "cpu" else "NVMe"
            changes.append(f"DeepSpeed keeps {what} in {where}; its CPU optimizer is compiled at the first start.")
    if train.act_ckpt not in (None, "none"):
        part = {"full": "every block", "selective-layer": "every second block"}.get(train.act_ckpt, "a part of the ops")
        changes.append(f"Recompute activations: wrap {part} in torch.utils.checkpoint.")
    if setting.nodes > 1:
        changes.append(f"Start it on each of the {setting.nodes} nodes with the same rendezvous address.")
    return changes
