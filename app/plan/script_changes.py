"""Changes that a strategy needs in a script and in its launch command."""

from .rank_share import data_parallel_ranks
from .types import Strategy, TrainingSetup

WRAPPING = {
    "single": "Nothing to wrap: one process, no process group.",
    "ddp": "Wrap the model in DistributedDataParallel, give the loader a DistributedSampler; start with torchrun.",
    "zero-optimizer": "As for DDP, with torch.distributed.optim.ZeroRedundancyOptimizer. Call "
    "consolidate_state_dict before a checkpoint is saved, to gather its states.",
    "fsdp2": "Call fully_shard on each block, then on the model, before the optimizer is created; save with "
    "torch.distributed.checkpoint; start with torchrun.",
    "hsdp": "As for FSDP2, on a two-dimensional mesh: copies across nodes, shards within a node.",
    "deepspeed": "Pass model and optimizer to deepspeed.initialize (or ds_config.json to the Trainer or Accelerate); "
    "call backward and step of the engine; start with deepspeed.",
}


# The dimension of a mesh, and the calls of torch 2.13 that use it.
SPLITS = {
    "pipeline": (
        "pp",
        "Cut the model into stages: PipelineStage for each, run by Schedule1F1B.",
    ),
    "context": (
        "cp",
        "Run forward and backward pass in context_parallel(mesh['cp'], buffers=[…], buffer_seq_dims=[…]) with inputs, "
        "labels and positions; attention must be scaled_dot_product_attention.",
    ),
    "tensor": (
        "tp",
        "parallelize_module(block, mesh['tp'], …): ColwiseParallel for queries, keys, values, gate and up, "
        "RowwiseParallel for the two outputs, SequenceParallel for norms; loss_parallel() around the loss.",
    ),
    "expert": (
        "ep",
        "Give each rank of mesh['ep'] its experts, send tokens with all_to_all_single before and after them, and wrap "
        "experts in fully_shard apart from the rest of a block, over the ranks that hold the same ones.",
    ),
}


def mesh_line(setting: TrainingSetup) -> str:
    """Return the call that creates the mesh of a strategy that splits the model, its outermost dimension first.

    Ranks that split a sequence or experts shard the weights as well, so theirs is a part of the sharding dimension.
    """
    strategy = setting.layout
    shards = data_parallel_ranks(setting) // (strategy.expert or 1)
    sizes = {
        "pp": strategy.pipeline,
        "dp_shard": shards if shards > 1 else None,
        **{SPLITS[name][0]: getattr(strategy, name) for name in ("context", "expert", "tensor")},
    }
    used = {name: size for name, size in sizes.items() if size}
    shape, names = ", ".join(map(str, used.values())), ", ".join(f'"{name}"' for name in used)
    comma = "," if len(used) == 1 else ""
    return f'mesh = init_device_mesh("cuda", ({shape}{comma}), mesh_dim_names=({names}{comma}))'


def split_changes(setting: TrainingSetup) -> list[str]:
    """Return the mesh of a strategy that splits the model, and the calls that use it; [] for others."""
    strategy = setting.layout
    if not strategy.splits_model:
        return []
    calls = [call for name, (_, call) in SPLITS.items() if strategy.splits[name] > 1]
    return [f"{mesh_line(setting)}.", *calls, *_flattened(strategy)]


def _flattened(strategy: Strategy) -> list[str]:
    inner = [SPLITS[name][0] for name in ("context", "expert") if getattr(strategy, name)]
    if not inner:
        return []
    dimensions = ", ".join(f'"{name}"' for name in ("dp_shard", *inner))
    return [f"fully_shard over the flattened dimensions: mesh[{dimensions}]._flatten()."]


def required_changes(setting: TrainingSetup) -> list[str]:
    """Return the changes, a sentence or two each, the largest first."""
    strategy, train = setting.layout, setting.train
    changes = [WRAPPING.get(strategy.kind, f"Wrap the model as {strategy.kind} requires."), *split_changes(setting)]
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
