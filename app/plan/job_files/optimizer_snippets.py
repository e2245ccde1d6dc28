"""The optimizer of a setup script: its choice, its class definitions, and the lines that create it."""

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
LION = '''\
class Lion(torch.optim.Optimizer):
    """Lion (arXiv 2302.06675), which steps by the sign of the averaged gradient, its only state.

    Use a learning rate of a third to a tenth of AdamW's.
    """

    def __init__(self, parameters, lr: float, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            of_step, of_mean = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                direction = state["mean"].lerp(parameter.grad, 1 - of_step).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                state["mean"].lerp_(parameter.grad, 1 - of_mean)
'''
PAIR = """\
in_blocks = [weight for module in model.modules() if isinstance(module, Block) for weight in module.parameters()]
    matrices = dict.fromkeys(weight for weight in in_blocks if weight.ndim == 2 and weight.requires_grad)
    others = [weight for weight in model.parameters() if weight.requires_grad and weight not in matrices]
    muon = {muon}
    return [muon, {adamw}]"""
IN_BACKWARD = """\
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizers = {{parameter: {made} for parameter in trained}}

    def step(parameter: torch.nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(step)
    return list(optimizers.values())"""


def choose_optimizer(train: TrainingOptions, kind: str) -> str:
    """Return the optimizer that the script creates: the plan's if possible, else AdamW.

    torch's Adafactor cannot step on sharded tensors (torch 2.13).
    """
    optimizer = train.optimizer or "adamw"
    return optimizer if optimizer in OPTIMIZERS and (kind, optimizer) != ("fsdp2", "adafactor") else "adamw"


def optimizer_tags(setting: TrainingSetup, kind: str) -> set[str]:
    """Return the tags of the templates that concern the optimizer."""
    train, strategy = setting.train, setting.layout
    optimizer = choose_optimizer(train, kind)
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
    return train.optimizer_in_bwd and kind == "fsdp2" and once and choose_optimizer(train, kind) != "muon"


def optimizer_classes(has: set[str]) -> str:
    """Return the class that the script defines for its optimizer."""
    return LION if "own-lion" in has else ""


def optimizer_lines(train: TrainingOptions, kind: str, has: set[str]) -> str:
    """Return the body of the function that creates the optimizer."""
    optimizer = choose_optimizer(train, kind)
    if "pair" in has:
        return PAIR.format(
            muon=_constructor("muon", "list(matrices)", train, has), adamw=_constructor("adamw", "others", train, has)
        )
    if "in-backward" in has:
        return IN_BACKWARD.format(made=_constructor(optimizer, "[parameter]", train, has))
    if train.lora or train.frozen:
        trained = "trained = [weight for weight in model.parameters() if weight.requires_grad]\n    "
        return f"{trained}return {_constructor(optimizer, 'trained', train, has)}"
    return f"return {_constructor(optimizer, 'model.parameters()', train, has)}"


def _constructor(optimizer: str, parameters: str, train: TrainingOptions, has: set[str]) -> str:
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


def optimizer_docstring(train: TrainingOptions, kind: str, has: set[str]) -> str:
    """Return the docstring of ``make_optimizer``."""
    words = OPTIMIZERS[choose_optimizer(train, kind)].words
    if has & {"cpu-adam", "cpu-lion"}:
        return f"DeepSpeed's {words} that steps on the host, where its states are."
    if "pair" in has:
        words += " for the matrices of the blocks, AdamW for everything else"
    if "zero" in has:
        return f"{words}.\n\n    Each rank keeps the states of its share of the parameters.\n    "
    if "muon" in has and kind == "fsdp2":
        return f"{words}.\n\n    It needs whole matrices: each step gathers them.\n    "
    return f"{words}."
