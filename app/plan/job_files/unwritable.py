"""Parts of a plan that the files cannot do. Files without them would need more memory than planned."""

from ...errors import UserError
from ..types import TrainingSetup
from .optimizer_snippets import choose_optimizer, steps_in_backward


def refuse_unwritable(setting: TrainingSetup, kind: str) -> None:
    """Refuse a setting whose files would not be what was planned. ``kind``: of the templates.

    Raises:
        UserError: It names the parts, and what to leave out.
    """
    parts = _unwritable(setting, kind)
    if parts:
        what = ", ".join(part for part, _ in parts)
        raise UserError(f"the files cannot do all of this plan: {what}", parts[0][1])


def _unwritable(setting: TrainingSetup, kind: str) -> list[tuple[str, str]]:
    """Return each part with what to do instead."""
    train, strategy = setting.train, setting.layout
    found: list[tuple[str, str]] = []
    if strategy.kind in ("fsdp1", "fairscale-sharded-ddp"):
        found.append((strategy.kind, "plan for fsdp2"))
    if train.optimizer and choose_optimizer(train, kind) != train.optimizer:
        found.append((f"the optimizer {train.optimizer} with {strategy.kind}", "plan for another optimizer: adamw"))
    if train.quant:
        found.append((f"frozen weights in {train.quant}", "plan without --quant, or quantize in your own script"))
    if train.optimizer_in_bwd and not steps_in_backward(train, kind):
        found.append(("optimizer steps within the backward pass", "plan for fsdp2 without accumulation"))
    if train.loss == "fused-linear" or (kind == "deepspeed" and train.loss not in (None, "eager")):
        found.append((f"a {train.loss} loss", "plan with --loss chunked, or eager for DeepSpeed"))
    if train.optimizer_state_dtype and kind != "deepspeed":
        found.append((f"optimizer states in {train.optimizer_state_dtype}", "plan without optimizer_state_dtype"))
    if train.optimizer == "muon" and strategy.stage == 3:  # seen with 0.19.8; DeepSpeed #8443
        found.append(("Muon with ZeRO-3, under which DeepSpeed's loss does not fall", "plan for ZeRO-2 or fsdp2"))
    if kind == "deepspeed" and train.frozen:
        found.append(("frozen weights with DeepSpeed", "plan for fsdp2 or ddp"))
    if kind == "deepspeed" and train.compile:
        found.append(("torch.compile with DeepSpeed", "plan without --compile"))
    return found
