"""What one changes in a script and in how it is started, for a strategy."""

from .types import TrainingSetup

WRAPPING = {
    "single": "Nothing to wrap: one process, no process group.",
    "ddp": "Wrap the model in DistributedDataParallel, give the loader a DistributedSampler; start with torchrun.",
    "zero-optimizer": "As for DDP; the optimizer is torch.distributed.optim.ZeroRedundancyOptimizer. Before a "
    "checkpoint is saved its states are gathered (consolidate_state_dict).",
    "fsdp2": "Call fully_shard on each block, then on the model, before the optimizer is made; save with "
    "torch.distributed.checkpoint; start with torchrun.",
    "hsdp": "As for FSDP2, on a mesh of two dimensions: copies over nodes, shards within one.",
    "deepspeed": "Give model and optimizer to deepspeed.initialize (or ds_config.json to the Trainer or Accelerate); "
    "backward and step are the engine's; start with deepspeed.",
}


def required_changes(setting: TrainingSetup) -> list[str]:
    """The changes, a sentence or two each, the largest first."""
    strategy, train = setting.layout, setting.train
    said = [WRAPPING.get(strategy.kind, f"Wrap the model as {strategy.kind} asks for.")]
    if strategy.is_fully_shard and strategy.reshard_after_forward is False:
        said.append("reshard_after_forward=False: weights stay whole between forward and backward pass.")
    elif strategy.kind == "fsdp2" and (strategy.reshard_after_forward or 0) > 1:
        said.append(f"reshard_after_forward={strategy.reshard_after_forward}: split less after the forward pass.")
    if strategy.kind == "deepspeed":
        said.append(f"zero_optimization.stage is {strategy.stage or 0}.")
    if strategy.cpu_offload:
        said.append("offload_policy=CPUOffloadPolicy(), with gloo beside NCCL for what is on the host.")
    offloaded = {"optimizer states": strategy.offload_optimizer, "parameters": strategy.offload_param}
    for what, device in offloaded.items():
        if device:
            where = "host memory" if device == "cpu" else "NVMe"
            said.append(f"DeepSpeed keeps {what} in {where}; its CPU optimizer is compiled at the first start.")
    if train.act_ckpt not in (None, "none"):
        part = {"full": "every block", "selective-layer": "every second block"}.get(train.act_ckpt, "a part of the ops")
        said.append(f"Recompute activations: wrap {part} in torch.utils.checkpoint.")
    if setting.nodes > 1:
        said.append(f"Start it on each of the {setting.nodes} nodes with the same rendezvous address.")
    return said
