"""Training options of a plan from the given values."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import UserError
from . import spec
from .types import Lora, Model, TrainingOptions

PLAIN_OPTIONS = tuple(
    name for name in TrainingOptions.__struct_fields__ if name not in ("lora", "frozen", "global_batch")
)
MOST_BATCH = 10**9
MOST_PERCENT = 100  # a bare number up to it is ambiguous: a percentage or a count


def train_from_values(
    given: Mapping[str, Any], model: Model, gpus: int, frozen: float = 0.0
) -> tuple[TrainingOptions, list[str]]:
    """Return the training options, with a line for each that was computed; ``frozen`` is the model's own share.

    Raises:
        UserError: A value makes no sense, or the batch does not multiply out.
    """
    found = given["train"] if "train" in given else _from_options(given, model, frozen)
    if given.get("global_batch") is None:
        return found, []
    return _with_global_batch(found, given["global_batch"], gpus)


def _from_options(given: Mapping[str, Any], model: Model, frozen: float) -> TrainingOptions:
    plain = {name: given[name] for name in PLAIN_OPTIONS if was_given(given, name)}
    rank = given.get("lora")
    if given.get("lora_target") and rank is None:
        raise UserError("--lora-target without --lora", "give the rank of the adapters, such as --lora 16")
    if given.get("quant") and rank is None:
        raise UserError(f"weights in {given['quant']} cannot be trained", "give a LoRA rank, such as 16")
    lora = Lora(r=rank, target=given.get("lora_target")) if rank is not None else None
    share = parse_share(given["frozen"], model.params) if given.get("frozen") is not None else frozen
    if lora and given.get("frozen") is not None:
        raise UserError(
            "--frozen and --lora exclude each other", "leave out --frozen: with adapters the whole model is frozen"
        )
    return msgspec.structs.replace(
        msgspec.convert(plain, TrainingOptions), lora=lora, frozen=share if share and not lora else None
    )


def leaves_micro_batch_open(given: Mapping[str, Any]) -> bool:
    """Return whether the batch of a step is given, but not how it is divided into micro-batches."""
    return was_given(given, "global_batch") and not (was_given(given, "micro_batch") or was_given(given, "grad_accum"))


def was_given(given: Mapping[str, Any], name: str) -> bool:
    """Return whether an option was given; a flag that is off was not."""
    return given.get(name) is not None and given[name] is not False


def parse_share(text: str, params: float) -> float:
    """Parse the share of the weights that is not trained: ``0.9``, ``90%`` or ``6B``.

    Raises:
        UserError: It is no share, or all weights, or ambiguous.
    """
    try:
        if text.strip().endswith("%"):
            share = float(text.strip()[:-1]) / 100
        else:
            count = spec.parse_count(text)
            if 1 < count <= MOST_PERCENT:
                raise UserError(f"--frozen is {text[:40]}", f"give {count:g}% for a share, or a count such as 6B")
            share = count / params if count > 1 else count
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        next_step = f"a share such as 0.9, or parameters, fewer than {params:,.0f}; for adapters give --lora R"
        raise UserError(f"--frozen is {text[:40]}", next_step)
    return share


def _with_global_batch(found: TrainingOptions, batch: int, gpus: int) -> tuple[TrainingOptions, list[str]]:
    """Compute the accumulation, or the micro-batch if that is given, for ``batch`` sequences per optimizer step."""
    if not 0 < batch <= MOST_BATCH:
        raise UserError(f"--global-batch is {batch}", f"give sequences of one optimizer step, at most {MOST_BATCH:,}")
    for name, value in (("micro_batch", found.micro_batch), ("grad_accum", found.grad_accum)):
        if value is not None and value <= 0:
            raise UserError(f"train.{name} is {value}", "give a positive number of a sensible size")
    micro, accumulation = found.micro_batch, found.grad_accum
    if micro is not None and accumulation is not None:
        whole = micro * accumulation * gpus
        if whole != batch:
            shown = f"{micro} per GPU × {accumulation} accumulated × {gpus} GPUs = {whole}, not {batch}"
            raise UserError(f"--global-batch {batch}: {shown}", "leave out --grad-accum, and it is computed")
        return found, []
    if accumulation is None:
        micro = micro or 1
        accumulation = _quotient(batch, micro * gpus, f"{micro} per GPU × {gpus} GPUs")
    else:
        micro = _quotient(batch, accumulation * gpus, f"{accumulation} accumulated × {gpus} GPUs")
    is_free = found.micro_batch is None and found.grad_accum is None
    note = f"batch: {micro} per GPU × {accumulation} accumulated × {gpus} GPUs = {batch}"
    return msgspec.structs.replace(found, micro_batch=micro, grad_accum=accumulation), [] if is_free else [note]


def _quotient(batch: int, part: int, words: str) -> int:
    if batch % part:
        below = batch // part * part
        nearest = f"{below} or {below + part}" if below else f"{part}"
        raise UserError(f"--global-batch {batch} is no multiple of {words} = {part}", f"take {nearest}")
    return batch // part
