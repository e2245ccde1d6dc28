"""What one change to a candidate would buy: the model asked again with it, nothing else changed."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...text.units import GIB
from ..memory.activations import has_known_shape, recomputes_activations
from ..memory.model_states import shard_counts
from ..spec import PER_NODE, nodes_for
from ..types import Candidate, TrainingOptions, TrainingSetup, WhatIfResult
from .evaluate import PlanContext, evaluate, exceeds_gpu

FUSED = "the fused optimizer (fused=True)"
SMALL_BUCKET = 5e7  # elements, instead of DeepSpeed's 5e8
WORTH_BYTES = 0.05 * GIB
WORTH_SHOWN = 0.01  # of a step, from which on its change is said
ROOMY_SHARE = 0.75  # of the GPU in use at most
WORTH_SHARE = 0.02  # of a step, or of the tokens per second
PARTS = {
    "loss": "the loss",
    "activations": "activations",
    "temporaries": "what the optimizer's step copies",
    "optimizer": "optimizer states",
    "buffers": "buffers and gathered weights",
    "grads": "gradients",
    "params": "parameters",
    "context": "what CUDA and NCCL hold",
}
STATES = ("params", "grads", "optimizer")
TWICE_THE_LINK = "twice the link"


class WhatIf(NamedTuple):
    """A change by its name, what is asked with it, and the parts of the peak that it takes most off."""

    name: str
    setting: TrainingSetup
    around: PlanContext
    parts: tuple[str, ...] = ()


def worthwhile_changes(found: Candidate, setting: TrainingSetup, around: PlanContext) -> list[WhatIfResult]:
    """What single changes would buy that are worth it, those of memory first, the cheapest of them first."""
    asked = list(_smaller(found, setting, around))
    if found.fits is True:
        largest = largest_part(found)
        asked = [each for each in asked if largest in each.parts][:1]
    if found.fits is not False:
        asked += list(_faster(found, setting, around))
    changed = (_change(each, found) for each in asked)
    return [each for each in changed if _worth(each, found)]


def best_what_if(found: Candidate, setting: TrainingSetup, bought: list[WhatIfResult], around: PlanContext) -> str:
    """The largest part of the peak; the cheapest change that makes it fit, else that takes most off; the one that
    makes it fastest. Where the host is what lacks memory, what would take it off there."""
    if found.fits is False and not exceeds_gpu(found, setting):
        return _for_host(found, setting, around)
    largest = largest_part(found)
    share = getattr(found.breakdown, largest) / found.device_used_bytes_per_gpu
    said = [f"{share:.0%} of the peak is {PARTS[largest]}"]
    less = [each for each in bought if each.gpu_bytes < -WORTH_BYTES]
    quicker = [each for each in bought if _gain(each, found) > WORTH_SHARE and each not in less]
    if found.fits is True or found.fits is None:
        said += [what_if_text(less[0], found)] if less and not (quicker and _roomy(found, setting)) else []
    elif less:
        enough = next((each for each in less if each.fits is True), None) or next(
            (each for each in less if each.fits == "tight"), None
        )
        best = enough or min(less, key=lambda each: each.gpu_bytes)
        said.append(f"{what_if_text(best, found)}, {_then(best)}")
    if found.fits is not False:
        best = max(quicker, key=lambda each: _gain(each, found), default=None)
        said += [what_if_text(best, found)] if best else []
    if len(said) == 1:
        said.append(_states_are_left(found, setting))
    return "; ".join(said)


def _for_host(found: Candidate, setting: TrainingSetup, around: PlanContext) -> str:
    """What takes memory off a host: more of them, or a drive."""
    twice = evaluate(_doubled(setting), around)
    said = [f"{_twice(setting)}: {(twice.host_bytes - found.host_bytes) / GIB:+,.0f} GiB of host memory for each"]
    strategy = setting.layout
    if strategy.stage == 3 and strategy.offload_optimizer == "cpu":
        on_drive = msgspec.structs.replace(strategy, offload_optimizer="nvme")
        then = evaluate(msgspec.structs.replace(setting, strategy=on_drive), around)
        said.append(f"the optimizer on NVMe: {(then.host_bytes - found.host_bytes) / GIB:+,.0f} GiB")
    return f"most of the host's memory is optimizer states; {'; '.join(said)}"


def throughput_headroom(found: Candidate, setting: TrainingSetup, around: PlanContext) -> float:
    """By which share there would be more tokens per second with twice the micro-batch, if the GPU had room for it."""
    now = setting.train.micro_batch or 1
    if found.fits is not True or found.largest_micro_batch is None or found.largest_micro_batch >= 2 * now:
        return 0.0
    twice = msgspec.structs.replace(setting, train=msgspec.structs.replace(setting.train, micro_batch=2 * now))
    then = evaluate(twice, around).tokens_per_s
    return then / found.tokens_per_s - 1 if then and found.tokens_per_s else 0.0


def what_if_text(change: WhatIfResult, now: Candidate) -> str:
    """``recompute activations: -21.3 GiB, +30% of a step``."""
    said: list[str] = []
    if abs(change.gpu_bytes) > WORTH_BYTES:
        said.append(f"{change.gpu_bytes / GIB:+,.1f} GiB")
    gain = _gain(change, now)
    if change.step_seconds is not None and now.step_seconds and _same_tokens(change, now):
        share = change.step_seconds / now.step_seconds
        slow = now.step_seconds >= 0.1
        if abs(share) < WORTH_SHOWN:
            pass
        elif change.change == TWICE_THE_LINK:
            said.append(f"{change.step_seconds:+.2f} s" if slow else f"{1000 * change.step_seconds:+.1f} ms")
        else:
            said.append(f"{ratio_text(1 + share)} times the step" if share >= 1 else f"{share:+.0%} of a step")
    elif gain >= 1:
        said.append(f"{ratio_text(1 + gain)} times the tokens per second")
    elif abs(gain) >= WORTH_SHOWN:
        said.append(f"{abs(gain):.0%} {'more' if gain > 0 else 'fewer'} tokens per second")
    return f"{change.change}: {', '.join(said)}" if said else change.change


def ratio_text(ratio: float) -> str:
    """``2.4`` and ``310``: a ratio from 2 on, in words of three digits at most."""
    return f"{ratio:,.1f}" if ratio < 100 else f"{float(f'{ratio:.2g}'):,.0f}"


def largest_part(found: Candidate) -> str:
    """The largest part of the peak."""
    parts = found.breakdown
    return max(PARTS, key=lambda name: getattr(parts, name))


def _roomy(found: Candidate, setting: TrainingSetup) -> bool:
    """Whether so much of the GPU is left that less memory is not what one looks for."""
    return found.device_used_bytes_per_gpu < ROOMY_SHARE * (setting.gpu_memory_gib or 0.0) * GIB


def _change(asked: WhatIf, now: Candidate) -> WhatIfResult:
    then = evaluate(asked.setting, asked.around)
    seconds = None
    if then.step_seconds is not None and now.step_seconds is not None:
        seconds = then.step_seconds - now.step_seconds
    return WhatIfResult(
        change=asked.name,
        gpu_bytes=then.device_used_bytes_per_gpu - now.device_used_bytes_per_gpu,
        fits=then.fits,
        step_seconds=seconds,
        tokens_per_s=then.tokens_per_s,
    )


def _gain(change: WhatIfResult, now: Candidate) -> float:
    """By which share there are more tokens per second."""
    return change.tokens_per_s / now.tokens_per_s - 1 if change.tokens_per_s and now.tokens_per_s else 0.0


def _same_tokens(change: WhatIfResult, now: Candidate) -> bool:
    """Whether a step has as many tokens as before."""
    if not (change.tokens_per_s and now.tokens_per_s and now.step_seconds and change.step_seconds is not None):
        return True
    then = change.tokens_per_s * (now.step_seconds + change.step_seconds)
    return abs(then / (now.tokens_per_s * now.step_seconds) - 1) < 1e-6


def _worth(change: WhatIfResult, now: Candidate) -> bool:
    return change.gpu_bytes < -WORTH_BYTES or (change.fits is not False and _gain(change, now) > WORTH_SHARE)


def _then(change: WhatIfResult) -> str:
    return {True: "then it fits", "tight": "then it hardly fits", None: ""}.get(change.fits, "which is not enough")


def _smaller(found: Candidate, setting: TrainingSetup, around: PlanContext) -> Iterator[WhatIf]:
    """Changes that take memory off, the cheapest first (a loss in chunks costs nothing, an offload much)."""
    train, strategy = setting.train, setting.layout

    def trained(name: str, *parts: str, **values: object) -> WhatIf:
        changed: TrainingOptions = msgspec.structs.replace(train, **values)  # type: ignore[arg-type]
        return WhatIf(name, msgspec.structs.replace(setting, train=changed), around, parts)

    def laid_out(name: str, **values: object) -> WhatIf:
        changed = msgspec.structs.replace(strategy, **values)  # type: ignore[arg-type]
        return WhatIf(name, msgspec.structs.replace(setting, strategy=changed), around, ("buffers",))

    if found.breakdown.loss and train.loss in ("eager", "compiled"):
        yield trained("the loss in chunks", "loss", loss="chunked")
    if found.breakdown.loss and found.fits is False and train.loss != "fused-linear":
        yield trained("a fused linear loss (Liger's or Apple's cut cross-entropy)", "loss", loss="fused-linear")
    if found.peak_phase == "step" and found.breakdown.temporaries and strategy.kind != "deepspeed":
        yield trained(FUSED, "temporaries", optimizer_impl="fused")
    if strategy.replicates and not strategy.gradient_as_bucket_view:
        yield laid_out("gradient_as_bucket_view=True", gradient_as_bucket_view=True)
    if strategy.kind == "deepspeed" and not (strategy.reduce_bucket_size or strategy.allgather_bucket_size):
        yield laid_out("buckets of 5e7 elements", reduce_bucket_size=SMALL_BUCKET, allgather_bucket_size=SMALL_BUCKET)
    if strategy.is_fully_shard and strategy.reshard_after_forward is False:
        yield laid_out("reshard after the forward pass", reshard_after_forward=True)
    if has_known_shape(setting.model) and not recomputes_activations(train):
        yield trained("recompute some activations", "activations", act_ckpt="selective-op")
    if has_known_shape(setting.model) and train.act_ckpt != "full":
        yield trained("recompute activations", "activations", act_ckpt="full")
    micro_batch = train.micro_batch or 1
    if micro_batch > 1 and micro_batch % 2 == 0:
        accumulated = 2 * (train.grad_accum or 1)
        name = f"micro-batch {micro_batch // 2}, accumulation {accumulated}"
        yield trained(name, "activations", "loss", micro_batch=micro_batch // 2, grad_accum=accumulated)
    if train.optimizer in ("adamw", "adam") and not strategy.steps_on_host:
        yield trained("an 8-bit optimizer", "optimizer", optimizer="adamw-8bit")
    if strategy.kind != "single" and max(shard_counts(strategy, setting.gpus, setting.nodes)) > 1:
        yield WhatIf(_twice(setting), _doubled(setting), around, STATES)


def _faster(found: Candidate, setting: TrainingSetup, around: PlanContext) -> Iterator[WhatIf]:
    """Changes that may make it faster."""
    train, links = setting.train, around.links
    if links is None:
        return
    most = found.largest_micro_batch or 0
    if most > (train.micro_batch or 1):
        changed = msgspec.structs.replace(train, micro_batch=most)
        yield WhatIf(f"micro-batch {most}", msgspec.structs.replace(setting, train=changed), around)
    if (found.exposed_comm_seconds or 0.0) > WORTH_SHARE * (found.step_seconds or 1.0):
        wider = links._replace(intra_gbps=2 * links.intra_gbps, inter_gbps=2 * links.inter_gbps)
        yield WhatIf(TWICE_THE_LINK, setting, around._replace(links=wider))
    strategy = setting.layout
    if train.optimizer_impl == "foreach" and strategy.kind != "deepspeed" and not strategy.cpu_offload:
        fused = msgspec.structs.replace(train, optimizer_impl="fused")
        yield WhatIf(FUSED, msgspec.structs.replace(setting, train=fused), around)
    if recomputes_activations(train):
        kept = msgspec.structs.replace(train, act_ckpt="none")
        yield WhatIf("keep activations", msgspec.structs.replace(setting, train=kept), around)


def _twice(setting: TrainingSetup) -> str:
    return f"{2 * setting.gpus} GPUs"


def _doubled(setting: TrainingSetup) -> TrainingSetup:
    per_node = setting.gpus // setting.nodes if setting.nodes > 1 else max(PER_NODE, setting.gpus)
    return msgspec.structs.replace(setting, gpus=2 * setting.gpus, nodes=nodes_for(2 * setting.gpus, per_node))


def _states_are_left(found: Candidate, setting: TrainingSetup) -> str:
    """Where none of the changes above takes anything off: what is left to do."""
    if setting.gpus == 1:
        return "more GPUs to shard it over, or adapters on quantised weights"
    if found.fits is False:
        return "more or larger GPUs, or a smaller model"
    return "no single change takes more off"
