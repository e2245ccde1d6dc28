"""What the set-up code of a plan says in its head: what it is, what it needs, and what of the plan it does not do."""

from ..batch_scaling import BatchScaling
from ..types import TrainingSetup
from .manifest import learning_rate
from .optimizer_snippets import choose_optimizer, steps_in_backward

EXAMPLE_RATE = 1e-3  # where none is known


def learning_rate_line(setting: TrainingSetup, batch: BatchScaling | None) -> str:
    """The learning rate, with a comment where it is not that of the run before."""
    rate = learning_rate(setting, batch)
    if rate is None or batch is None:
        return f"{EXAMPLE_RATE:g}  # an example's: put yours"
    if rate == batch.lr:
        return f"{rate:g}"
    rise = f"; rise to it over the first {batch.warm_up_share:.0%} of the run" if batch.warm_up_share else ""
    return f"{rate:g}  # {batch.lr:g} of the run before, for another batch{rise}"


def strategy_title(setting: TrainingSetup) -> str:
    """What its strategy does, as its first line."""
    strategy = setting.layout
    match strategy.kind:
        case "hsdp":
            return "Hybrid sharding with FSDP2: each group of ranks shards a copy of the model."
        case "fsdp2" if strategy.reshard_after_forward is False:
            return "FSDP2 that keeps the weights whole between forward and backward pass."
        case "fsdp2":
            return "FSDP2: parameters, gradients and optimizer states are sharded over all ranks."
        case "zero-optimizer":
            return "DDP with a sharded optimizer."
        case "deepspeed":
            return f"DeepSpeed with ZeRO stage {strategy.stage or 0}."
        case _:
            return "DDP: a copy of the model on each GPU."


def run_summary(setting: TrainingSetup) -> str:
    """The model, the GPUs and the batch it is made for."""
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
    """What the plan counts on and the script does not do, as text; empty where there is nothing."""
    lines = "".join(f"- {each}\n" for each in _not_done(setting, kind))
    return f"The plan counts on these as well, which this script does not do:\n{lines}\n" if lines else ""


def _not_done(setting: TrainingSetup, kind: str) -> list[str]:
    train = setting.train
    found: list[str] = []
    if train.optimizer and choose_optimizer(train, kind) != train.optimizer:
        found.append(f"the optimizer {train.optimizer}: it is AdamW here, which may need more memory")
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
    """What it needs besides torch and DeepSpeed, as a line; empty where that is nothing."""
    train = setting.train
    packages = ["peft"] if train.lora else []
    if choose_optimizer(train, kind) == "adamw-8bit":
        packages.append("torchao" if kind == "fsdp2" else "bitsandbytes")
    return f"It needs what this installs: pip install {' '.join(packages)}\n\n" if packages else ""
