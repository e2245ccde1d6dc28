"""The docstring of a plan's setup script: its strategy, its requirements, and what of the plan it leaves to you."""

from ...text.units import percent_text
from ..batch_scaling import BatchScaling
from ..types import TrainingSetup
from .manifest import learning_rate
from .optimizer_snippets import choose_optimizer, steps_in_backward

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


def strategy_title(setting: TrainingSetup) -> str:
    """Return the first line, which names what the strategy does."""
    strategy = setting.layout
    match strategy.kind:
        case "hsdp":
            return "Hybrid sharding with FSDP2: each group of ranks shards a copy of the model."
        case "fsdp2" if strategy.reshard_after_forward is False:
            return "FSDP2 that keeps the weights gathered between forward and backward pass."
        case "fsdp2":
            return "FSDP2: parameters, gradients and optimizer states are sharded over all ranks."
        case "zero-optimizer":
            return "DDP with a sharded optimizer."
        case "deepspeed":
            return f"DeepSpeed with ZeRO stage {strategy.stage or 0}."
        case _:
            return "DDP: a copy of the model on each GPU."


def run_summary(setting: TrainingSetup) -> str:
    """Return the model, the GPUs and the batch of the plan."""
    train = setting.train
    micro_batch, accumulation = train.micro_batch or 1, train.grad_accum or 1
    model = " ".join("".join(c if c.isprintable() and c != '"' else " " for c in setting.model.name).split())[:60]
    model = model.replace("\\", "/")
    gpus = f"{setting.gpus} GPU{'s' * (setting.gpus > 1)}"
    nodes = f" of {setting.nodes} nodes" if setting.nodes > 1 else ""
    whole = micro_batch * accumulation * setting.gpus
    batch = f"{micro_batch} × {accumulation} × {setting.gpus} = {whole} sequences in each optimizer step"
    return f"{model + ' on ' if model else ''}{gpus}{nodes}: {batch}"


def manual_steps(setting: TrainingSetup, kind: str) -> str:
    """Return the parts of the plan that the script does not do as a list, or "" if it does all."""
    lines = "".join(f"- {each}\n" for each in _not_done(setting, kind))
    return f"The plan also assumes the following, which this script does not do:\n{lines}\n" if lines else ""


def _not_done(setting: TrainingSetup, kind: str) -> list[str]:
    train = setting.train
    found: list[str] = []
    if train.optimizer and choose_optimizer(train, kind) != train.optimizer:
        found.append(f"the optimizer {train.optimizer}: this script uses AdamW, which may need more memory")
    if train.quant:
        found.append(f"frozen weights in {train.quant}")
    if train.frozen:
        found.append(f"{train.frozen:.0%} of the weights frozen: requires_grad_(False), before the model is wrapped")
    if train.optimizer_in_bwd and not steps_in_backward(train, kind):
        found.append("optimizer steps within the backward pass")
    if train.loss not in (None, "eager"):
        found.append(f"a {train.loss} loss")
    if kind != "deepspeed" and train.optimizer_state_dtype:
        found.append(f"optimizer states in {train.optimizer_state_dtype}")
    if kind == "deepspeed" and train.compile:
        found.append("torch.compile")
    return found


def requirements(setting: TrainingSetup, kind: str) -> str:
    """Return the packages needed in addition to torch and DeepSpeed as a line, or ""."""
    train = setting.train
    packages = ["peft"] if train.lora else []
    if choose_optimizer(train, kind) == "adamw-8bit":
        packages.append("torchao" if kind == "fsdp2" else "bitsandbytes")
    return f"Required packages: pip install {' '.join(packages)}\n\n" if packages else ""
