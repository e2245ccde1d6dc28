"""Changes that a strategy needs in a script and in its launch command."""

from .types import TrainingSetup

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


def required_changes(setting: TrainingSetup) -> list[str]:
    """Return the changes, a sentence or two each, the largest first."""
    strategy, train = setting.layout, setting.train
    changes = [WRAPPING.get(strategy.kind, f"Wrap the model as {strategy.kind} requires.")]
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
