"""The docstring of a plan's program: its strategy, its run, and the packages that it needs."""

from ...text.units import percent_text
from ..batch_scaling import BatchScaling
from ..rank_share import data_parallel_ranks, sequences_per_step
from ..types import TrainingSetup
from .manifest import learning_rate

EXAMPLE_RATE = 1e-3  # without a reference run


def learning_rate_line(setting: TrainingSetup, batch: BatchScaling | None) -> str:
    """Return the learning rate, with a comment if it differs from that of the reference run."""
    rate = learning_rate(setting, batch)
    if rate is None or batch is None:
        return f"{EXAMPLE_RATE:g}  # an example: put in your own"
    if rate == batch.lr:
        return f"{rate:g}"
    warm_up = (
        f"; warm up to it over the first {percent_text(batch.warm_up_share)} of the run" if batch.warm_up_share else ""
    )
    return f"{rate:g}  # {batch.lr:g} of the reference run, scaled to this batch{warm_up}"


TITLES = {
    "hsdp": "Hybrid sharding with FSDP2: each group of ranks shards a copy of the model.",
    "fsdp2": "FSDP2: parameters, gradients and optimizer states are sharded over all ranks.",
    "zero-optimizer": "DDP with a sharded optimizer.",
    "single": "One GPU.",
    "ddp": "DDP: a copy of the model on each GPU.",
}
SPLIT_TITLES = {
    "tensor": "each layer, groups of them shard the rest",
    "context": "each sequence, all shard the weights",
    "expert": "the experts, all shard the other weights",
}


def strategy_title(setting: TrainingSetup) -> str:
    """Return the first line, which names what the strategy does."""
    strategy = setting.layout
    if strategy.kind == "deepspeed":
        return f"DeepSpeed with ZeRO stage {strategy.stage or 0}."
    if split := next((name for name in SPLIT_TITLES if strategy.splits[name] > 1), ""):
        return f"FSDP2 with {split} parallelism: {strategy.splits[split]} ranks split {SPLIT_TITLES[split]}."
    if strategy.kind == "fsdp2" and strategy.reshard_after_forward is False:
        return "FSDP2 that keeps the weights gathered between forward and backward pass."
    return TITLES[strategy.kind]


def run_summary(setting: TrainingSetup) -> str:
    """Return the model, the GPUs and the batch of the plan."""
    train = setting.train
    model = " ".join("".join(c if c.isprintable() and c != '"' else " " for c in setting.model.name).split())[:60]
    model = model.replace("\\", "/")
    gpus = f"{setting.gpus} GPU{'s' * (setting.gpus > 1)}"
    nodes = f" of {setting.nodes} nodes" if setting.nodes > 1 else ""
    sizes = f"{train.micro_batch or 1} × {train.grad_accum or 1} × {data_parallel_ranks(setting)}"
    batch = f"{sizes} = {sequences_per_step(setting)} sequences in each optimizer step"
    return f"{model + ' on ' if model else ''}{gpus}{nodes}: {batch}"


def requirements(setting: TrainingSetup, kind: str) -> str:
    """Return the packages needed in addition to torch and DeepSpeed as a line, or ""."""
    train = setting.train
    packages = ["peft"] if train.lora else []
    if train.optimizer == "adamw-8bit":
        packages.append("torchao" if kind == "fsdp2" else "bitsandbytes")
    return f"Required packages: pip install {' '.join(packages)}\n\n" if packages else ""
