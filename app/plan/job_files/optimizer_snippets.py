"""The optimizer of a setup script: its choice, and the expression that creates it."""

from collections.abc import Set
from typing import NamedTuple

from ..types import TrainingOptions, TrainingSetup

DEEPSPEED_TYPES = {"muon": "Muon"}  # created by DeepSpeed, by their names in its configuration
FUSED = ("adamw", "adam", "sgd")  # optimizers with fused=True
ON_HOST = {"adamw": "DeepSpeedCPUAdam", "adam": "DeepSpeedCPUAdam", "lion": "DeepSpeedCPULion"}  # DeepSpeed's own


class OptimizerCode(NamedTuple):
    """An optimizer that scripts create: its class as they name it, its description, and further arguments."""

    name: str
    words: str
    options: str = ""


# The 8-bit one is bitsandbytes', with FSDP2 torchao's, whose states can be sharded tensors. With match_rms_adamw Muon
# works with a learning rate tuned for AdamW (``torch/optim/_muon.py``).
OPTIMIZERS = {
    "adamw": OptimizerCode("torch.optim.AdamW", "AdamW"),
    "adam": OptimizerCode("torch.optim.Adam", "Adam"),
    "sgd": OptimizerCode("torch.optim.SGD", "SGD without momentum, which keeps no state"),
    "adafactor": OptimizerCode("torch.optim.Adafactor", "Adafactor (torch 2.5 or newer)"),
    "adamw-8bit": OptimizerCode("AdamW8bit", "AdamW with 8-bit states"),
    "paged-adamw-8bit": OptimizerCode("PagedAdamW8bit", "AdamW with 8-bit states that are paged to the host"),
    "lion": OptimizerCode("Lion", "Lion"),
    "muon": OptimizerCode("torch.optim.Muon", "Muon (torch 2.9 or newer)", ', adjust_lr_fn="match_rms_adamw"'),
}


def optimizer_tags(setting: TrainingSetup, kind: str) -> set[str]:
    """Return the tags of the templates that concern the optimizer."""
    train, strategy = setting.train, setting.layout
    optimizer = train.optimizer or "adamw"
    held = {
        optimizer: True,
        "zero": strategy.kind == "zero-optimizer",
        "pair": optimizer == "muon" and kind != "deepspeed" and not train.lora,
        "named": kind == "deepspeed" and optimizer in DEEPSPEED_TYPES,
        "cpu-adam": bool(strategy.offload_optimizer) and optimizer in ("adamw", "adam"),
        "cpu-lion": bool(strategy.offload_optimizer) and optimizer == "lion",
        "in-backward": steps_in_backward(train, kind),
    }
    held["several"] = held["pair"] or held["in-backward"]
    held["own-lion"] = optimizer == "lion" and not held["cpu-lion"]
    return {name for name, true in held.items() if true}


def steps_in_backward(train: TrainingOptions, kind: str) -> bool:
    """Return whether the script can step each parameter in the backward pass, as planned.

    Gradients must be reduced and complete by then: DDP's are not, and Muon's collectives would wait for those of the
    backward pass.
    """
    once = (train.grad_accum or 1) == 1 and not (train.dtype or "").startswith("fp16")
    return train.optimizer_in_bwd and kind == "fsdp2" and once and train.optimizer != "muon"


def optimizer_values(train: TrainingOptions, kind: str, has: Set[str]) -> dict[str, str]:
    """Return the values of the templates: what creates the optimizer, AdamW next to Muon, and the description."""
    optimizer = train.optimizer or "adamw"
    trained = "trained" if has & {"part"} else "model.parameters()"
    parameters = "list(matrices)" if "pair" in has else "[parameter]" if "in-backward" in has else trained
    return {
        "OPTIMIZER": _constructor(optimizer, parameters, train, has),
        "ADAMW": _constructor("adamw", "others", train, has),
        "OPTIMIZER_DOC": optimizer_docstring(train, kind, has),
    }


def _constructor(optimizer: str, parameters: str, train: TrainingOptions, has: Set[str]) -> str:
    name, _, options = OPTIMIZERS[optimizer]
    if has & {"cpu-adam", "cpu-lion"}:
        mode = ", adamw_mode=False" if optimizer == "adam" else ""
        return f"{ON_HOST[optimizer]}({parameters}, lr=LEARNING_RATE{mode})"
    fused = ", fused=True" if train.optimizer_impl == "fused" and optimizer in FUSED else ""
    arguments = f"lr=LEARNING_RATE{fused}{options}"
    if "zero" not in has:
        return f"{name}({parameters}, {arguments})"
    within = f"{parameters}, optimizer_class={name}, {arguments}"
    if optimizer == "muon":  # the line would be too long
        return f"ZeroRedundancyOptimizer(\n        {within}\n    )"
    return f"ZeroRedundancyOptimizer({within})"


def optimizer_docstring(train: TrainingOptions, kind: str, has: Set[str]) -> str:
    """Return the docstring of ``make_optimizer``."""
    words = OPTIMIZERS[train.optimizer or "adamw"].words
    if has & {"cpu-adam", "cpu-lion"}:
        return f"DeepSpeed's {words} that steps on the host, where its states are."
    if "pair" in has:
        words += " for the matrices of the blocks, AdamW for everything else"
    if "zero" in has:
        return f"{words}.\n\n    Each rank keeps the states of its share of the parameters.\n    "
    if "muon" in has and kind == "fsdp2":
        return f"{words}.\n\n    It needs whole matrices: each step gathers them.\n    "
    return f"{words}."
