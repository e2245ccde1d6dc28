"""Effective batch and learning rate of a run that moves to another number of GPUs.

Sources: the linear rule with its gradual warm-up is Goyal et al. (arXiv 1706.02677: SGD, warm-up over 5 of 90 epochs);
the square-root rule Krizhevsky (arXiv 1404.5997), for Adam and similar optimizers Malladi et al. (arXiv 2205.10287).
"""

import math

import msgspec

from ..errors import UserError
from ..text.units import percent_text
from . import spec
from .types import TrainingSetup

WARM_UP_SHARE = 5 / 90  # share of the run in which the rate rises to its new value
LINEAR_OPTIMIZERS = ("sgd",)
SOURCES = {"linear": "Goyal et al., arXiv 1706.02677", "square root": "Malladi et al., arXiv 2205.10287"}


class BatchScaling(msgspec.Struct, frozen=True, kw_only=True):
    """A run on ``reference_gpus`` that moves to ``gpus``; batches in sequences per optimizer step over all GPUs."""

    reference_gpus: int
    gpus: int
    micro_batch: int  # of the earlier run, as the next
    grad_accum: int | None  # None if only the batch is known
    reference_batch: int
    batch: int  # of the new run: with the same micro-batch and accumulation, or those that keep the batch
    keep_micro_batch: int  # with these two the batch is closest to that of the reference
    keep_grad_accum: int
    kept_batch: int
    rule: str  # for the learning rate if the batch changes: "linear" or "square root"
    source: str
    linear_factor: float = 1.0
    sqrt_factor: float = 1.0
    lr: float | None = None  # of the reference
    scaled_lr: float | None = None  # by the rule
    warm_up_share: float = 0.0  # of the run

    @property
    def changes(self) -> bool:
        """True if a step has another number of sequences than before."""
        return self.batch != self.reference_batch


def scale_batch(
    setting: TrainingSetup, reference_gpus: int, lr: float | None = None, global_batch: int | None = None
) -> BatchScaling:
    """Compute how another number of GPUs changes the batch of a complete setting.

    ``global_batch`` is the batch of both runs, if the accumulation of the setting was computed from it.

    Raises:
        UserError: A number makes no sense.
    """
    if not 0 < reference_gpus <= spec.MOST:
        raise UserError(f"--reference-gpus is {reference_gpus}", "give the GPUs of the run to compare with")
    if lr is not None and not (math.isfinite(lr) and 0 < lr < 1e3):
        raise UserError(f"--lr is {lr:g}", "give the learning rate of that run, such as 3e-4")
    train = setting.train
    micro_batch, grad_accum = train.micro_batch or 1, train.grad_accum or 1
    reference, now = micro_batch * grad_accum * reference_gpus, micro_batch * grad_accum * setting.gpus
    kept, before = _kept(reference, setting.gpus, micro_batch), grad_accum
    if global_batch is not None:
        reference, kept = global_batch, (micro_batch, grad_accum)
        before, rest = divmod(global_batch, micro_batch * reference_gpus)
        before = None if rest else before
    rule = "linear" if train.optimizer in LINEAR_OPTIMIZERS else "square root"
    found = BatchScaling(
        reference_gpus=reference_gpus,
        gpus=setting.gpus,
        micro_batch=micro_batch,
        grad_accum=before,
        reference_batch=reference,
        batch=reference,
        keep_micro_batch=kept[0],
        keep_grad_accum=kept[1],
        kept_batch=kept[0] * kept[1] * setting.gpus,
        rule=rule,
        source=SOURCES[rule],
        lr=lr,
    )
    return _with_batch(found, now)


def _with_batch(found: BatchScaling, now: int) -> BatchScaling:
    factor = now / found.reference_batch
    return msgspec.structs.replace(
        found,
        batch=now,
        linear_factor=factor,
        sqrt_factor=math.sqrt(factor),
        scaled_lr=scaled_learning_rate(found, now),
        warm_up_share=WARM_UP_SHARE if factor > 1 else 0.0,
    )


def keep_global_batch(setting: TrainingSetup, found: BatchScaling) -> tuple[TrainingSetup, BatchScaling, str]:
    """Return the setting that keeps the batch of the reference or comes closest, its batch, and a line on it."""
    micro_batch, grad_accum = found.keep_micro_batch, found.keep_grad_accum
    kept = _with_batch(found, found.kept_batch)
    wanted = f"closest to the {found.reference_batch}" if kept.changes else "as"
    note = f"batch: {_product(micro_batch, grad_accum, found.gpus)}, {wanted} on {found.reference_gpus} GPUs"
    return setting.with_train(micro_batch=micro_batch, grad_accum=grad_accum), kept, note


def scaled_learning_rate(found: BatchScaling, sequences: int) -> float | None:
    """Return the learning rate for a batch of that many sequences."""
    factor = sequences / found.reference_batch
    return found.lr * (factor if found.rule == "linear" else math.sqrt(factor)) if found.lr else None


def describe_scaling(found: BatchScaling) -> list[str]:
    """Describe the change in sentences."""
    was = f"{found.reference_batch} sequences"
    if found.grad_accum is not None:
        was = f"{_product(found.micro_batch, found.grad_accum, found.reference_gpus)} sequences"
    lines = [f"Batch of a step: {was} before; with {found.gpus} GPUs {found.batch}."]
    if not found.changes:
        now = _product(found.keep_micro_batch, found.keep_grad_accum, found.gpus)
        same = ", as before" if found.gpus == found.reference_gpus else f" before, {now} now"
        return [f"Batch of a step: {was}{same}; the learning rate does not change."]
    taking = f"micro-batch {found.keep_micro_batch}, accumulation {found.keep_grad_accum}"
    if found.kept_batch == found.reference_batch:
        lead = "Otherwise it is"
        lines.append(f"To keep the batch: {taking}; the learning rate does not change.")
    else:
        lead = "It is therefore"
        lines.append(
            f"A batch of {found.reference_batch} cannot be kept on {found.gpus} GPUs: the closest is "
            f"{found.kept_batch} ({taking})."
        )
    rate = f" = {found.scaled_lr:.3g}" if found.scaled_lr else ""
    times = found.linear_factor if found.rule == "linear" else found.sqrt_factor
    other, other_times = (
        ("square root", found.sqrt_factor) if found.rule == "linear" else ("linear", found.linear_factor)
    )
    warm_up = f", reached over the first {percent_text(found.warm_up_share)} of the run" if found.warm_up_share else ""
    lines.append(
        f"{lead} another experiment: learning rate × {times:.3g}{rate} ({found.rule} rule, {found.source})"
        f"{warm_up}; the {other} rule gives × {other_times:.3g}. Steps and schedule change with the batch."
    )
    return lines


def _product(micro_batch: int, grad_accum: int, gpus: int) -> str:
    return f"{micro_batch} × {grad_accum} × {gpus} GPUs = {micro_batch * grad_accum * gpus}"


def _kept(reference: int, gpus: int, micro_batch: int) -> tuple[int, int]:
    """Return the micro-batch, not larger than before, and the accumulation closest to the batch share of a GPU."""
    share = max(1, round(reference / gpus))
    fitting = next(size for size in range(min(micro_batch, share), 0, -1) if share % size == 0)
    if fitting * 2 > micro_batch or micro_batch >= share:
        return fitting, share // fitting
    return micro_batch, max(1, round(share / micro_batch))
