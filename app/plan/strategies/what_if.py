"""What-if analysis: evaluate a candidate again with one option changed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ...text.units import GIB, gib_text, percent_text, ratio_text, seconds_text, signed_text
from ..memory.computation import has_known_shape, recomputes_activations
from ..memory.model_states import shard_counts
from ..spec import PER_NODE, nodes_for
from ..types import Candidate, TrainingSetup, WhatIfResult
from .evaluate import PlanContext, evaluate, exceeds_gpu, gpu_of

FUSED = "the fused optimizer (fused=True)"
SMALL_BUCKET = 5e7  # elements, instead of DeepSpeed's 5e8
WORTH_BYTES = 0.05 * GIB
WORTH_SHOWN = 0.01  # of a step: smaller changes are not shown
ROOMY_SHARE = 0.75  # of the GPU: below it memory is not scarce
WORTH_SHARE = 0.02  # of a step, or of the tokens per second
PARTS = {
    "loss": "the loss",
    "activations": "activations",
    "temporaries": "copies of the optimizer step",
    "optimizer": "optimizer states",
    "buffers": "buffers and gathered weights",
    "grads": "gradients",
    "params": "parameters",
    "context": "memory of CUDA and NCCL",
}
STATES = ("params", "grads", "optimizer")
TWICE_THE_LINK = "twice the link bandwidth"


class WhatIf(NamedTuple):
    """A change: its name, the changed setting and context, and the parts of the peak that it reduces most."""

    name: str
    setting: TrainingSetup
    context: PlanContext
    parts: tuple[str, ...] = ()


def worthwhile_changes(found: Candidate, setting: TrainingSetup, context: PlanContext) -> list[WhatIfResult]:
    """Return the single changes that are worth it: those of memory first, the cheapest of them first."""
    what_ifs = list(_smaller(found, setting, context))
    if found.fits is True:
        largest = largest_part(found)
        what_ifs = [each for each in what_ifs if largest in each.parts][:1]
    if found.fits is not False:
        what_ifs += list(_faster(found, setting, context))
    changed = (_change(each, found) for each in what_ifs)
    return [
        each
        for each in changed
        if each.gpu_bytes < -WORTH_BYTES or (each.fits is not False and _gain(each, found) > WORTH_SHARE)
    ]


def best_what_if(found: Candidate, setting: TrainingSetup, changes: list[WhatIfResult], context: PlanContext) -> str:
    """Describe the largest part of the peak and the best changes: the cheapest that is enough, and the fastest."""
    if found.fits is False and not exceeds_gpu(found, setting):
        return _for_host(found, setting, context)
    largest = largest_part(found)
    share = getattr(found.breakdown, largest) / found.device_used_bytes_per_gpu
    parts = [f"{percent_text(share)} of the peak is {PARTS[largest]}"]
    less = [each for each in changes if each.gpu_bytes < -WORTH_BYTES]
    faster = [each for each in changes if _gain(each, found) > WORTH_SHARE]
    if found.fits is True or found.fits is None:
        is_roomy = found.device_used_bytes_per_gpu < ROOMY_SHARE * (setting.gpu_memory_gib or 0.0) * GIB
        parts += [what_if_text(less[0], found)] if less and not (faster and is_roomy) else []
    elif less:
        enough = [each for verdict in (True, "tight") for each in less if each.fits == verdict]
        parts.append(effect_text(enough[0] if enough else min(less, key=lambda each: each.gpu_bytes), found))
    if found.fits is not False:
        best = max(faster, key=lambda each: _gain(each, found), default=None)
        text = what_if_text(best, found) if best else ""
        parts += [text] if text and text not in parts else []
    if len(parts) == 1:
        of_several = (
            "take more or larger GPUs, or a smaller model" if found.fits is False else "no single change saves more"
        )
        one = "shard it over more GPUs, or train adapters on quantized weights"
        parts.append(one if setting.gpus == 1 else of_several)
    return "; ".join(parts)


def _for_host(found: Candidate, setting: TrainingSetup, context: PlanContext) -> str:
    """Return the changes that reduce the memory of a host: more hosts, or a drive."""
    twice = evaluate(_doubled(setting), context)
    changes = {f"{2 * setting.gpus} GPUs: {{}} of host memory for each": twice}
    if setting.layout.stage == 3 and setting.layout.offload_optimizer == "cpu":
        changes["the optimizer on NVMe: {}"] = evaluate(setting.with_layout(offload_optimizer="nvme"), context)
    parts = (
        text.format(signed_text(then.host_bytes - found.host_bytes, lambda size_bytes: gib_text(size_bytes, 0)))
        for text, then in changes.items()
    )
    return f"most of the host's memory is optimizer states; {'; '.join(parts)}"


def throughput_headroom(found: Candidate, setting: TrainingSetup, context: PlanContext) -> float:
    """Return the relative gain in tokens per second of a doubled micro-batch, if the GPU had memory for it."""
    now = setting.train.micro_batch or 1
    if found.fits is not True or found.largest_micro_batch is None or found.largest_micro_batch >= 2 * now:
        return 0.0
    return evaluate(setting.with_train(micro_batch=2 * now), context).tokens_per_s / found.tokens_per_s - 1


def what_if_text(change: WhatIfResult, now: Candidate) -> str:
    """Return a change with its effects: ``recompute activations: -21.3 GiB, +30% of a step``."""
    parts: list[str] = []
    if abs(change.gpu_bytes) > WORTH_BYTES:
        parts.append(signed_text(change.gpu_bytes, gib_text))
    gain, tokens = _gain(change, now), change.tokens_per_s * (now.step_seconds + change.step_seconds)
    if abs(tokens / (now.tokens_per_s * now.step_seconds) - 1) < 1e-6:  # a step has as many as before
        share = change.step_seconds / now.step_seconds
        if change.change == TWICE_THE_LINK and abs(share) >= WORTH_SHOWN:
            parts.append(signed_text(change.step_seconds, seconds_text))
        elif abs(share) >= WORTH_SHOWN:
            times = f"{ratio_text(1 + share)} times the" if share >= 1 else f"{signed_text(share, percent_text)} of a"
            parts.append(f"{times} step")
    elif gain >= 1:
        parts.append(f"{ratio_text(1 + gain)} times the tokens per second")
    elif abs(gain) >= WORTH_SHOWN:
        parts.append(f"{percent_text(abs(gain))} {'more' if gain > 0 else 'fewer'} tokens per second")
    return f"{change.change}: {', '.join(parts)}" if parts else change.change


def effect_text(change: WhatIfResult, now: Candidate) -> str:
    """Return a change with its effects, and whether a candidate that does not surely fit fits then."""
    then = {True: ", then it fits", "tight": ", then it only just fits", None: ", "}
    return what_if_text(change, now) + (
        "" if now.fits in (True, None) else then.get(change.fits, ", which is not enough")
    )


def largest_part(found: Candidate) -> str:
    """Return the name of the largest part of the peak."""
    parts = found.breakdown
    return max(PARTS, key=lambda name: getattr(parts, name))


def _change(what_if: WhatIf, now: Candidate) -> WhatIfResult:
    then = evaluate(what_if.setting, what_if.context)
    return WhatIfResult(
        change=what_if.name,
        gpu_bytes=then.device_used_bytes_per_gpu - now.device_used_bytes_per_gpu,
        fits=then.fits,
        step_seconds=then.step_seconds - now.step_seconds,
        tokens_per_s=then.tokens_per_s,
    )


def _gain(change: WhatIfResult, now: Candidate) -> float:
    return change.tokens_per_s / now.tokens_per_s - 1


def _smaller(found: Candidate, setting: TrainingSetup, context: PlanContext) -> Iterator[WhatIf]:
    """Yield the changes that save memory, the cheapest first (a chunked loss costs nothing, offloading much)."""
    train, strategy = setting.train, setting.layout

    def trained(name: str, *parts: str, **values: Any) -> WhatIf:
        return WhatIf(name, setting.with_train(**values), context, parts)

    def laid_out(name: str, **values: Any) -> WhatIf:
        return WhatIf(name, setting.with_layout(**values), context, ("buffers",))

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
    steps_alone = strategy.kind in ("single", "fsdp2") and (train.grad_accum or 1) == 1
    if steps_alone and not (train.optimizer_in_bwd or train.lora or strategy.steps_on_host):
        yield trained("the optimizer in the backward pass", "grads", optimizer_in_bwd=True)
    if has_known_shape(setting.model) and not train.act_offload:
        yield trained("saved activations on the host", "activations", act_offload=True)
    if train.optimizer in ("adamw", "adam") and not strategy.steps_on_host:
        yield trained("an 8-bit optimizer", "optimizer", optimizer="adamw-8bit")
    if strategy.kind != "single" and max(shard_counts(strategy, setting.gpus, setting.nodes)) > 1:
        yield WhatIf(f"{2 * setting.gpus} GPUs", _doubled(setting), context, STATES)


def _faster(found: Candidate, setting: TrainingSetup, context: PlanContext) -> Iterator[WhatIf]:
    """Yield the changes that may make a step faster."""
    train, links = setting.train, context.links
    most = found.largest_micro_batch or 0
    if most > (train.micro_batch or 1):
        yield WhatIf(f"micro-batch {most}", setting.with_train(micro_batch=most), context)
    if found.exposed_comm_seconds > WORTH_SHARE * found.step_seconds:
        wider = links._replace(intra_gbps=2 * links.intra_gbps, inter_gbps=2 * links.inter_gbps)
        yield WhatIf(TWICE_THE_LINK, setting, context._replace(links=wider))
    strategy = setting.layout
    if train.optimizer_impl == "foreach" and strategy.kind != "deepspeed" and not strategy.cpu_offload:
        yield WhatIf(FUSED, setting.with_train(optimizer_impl="fused"), context)
    if recomputes_activations(train):
        yield WhatIf("keep activations", setting.with_train(act_ckpt="none"), context)
    if strategy.offloads:
        return
    if not train.compile:
        yield WhatIf("torch.compile", setting.with_train(compile=True), context)
    if train.compile and not (train.fp8 or train.lora or train.dtype == "fp32") and gpu_of(setting).fp8_tflops:
        yield WhatIf("products in fp8", setting.with_train(fp8=True), context)


def _doubled(setting: TrainingSetup) -> TrainingSetup:
    per_node = setting.gpus // setting.nodes if setting.nodes > 1 else max(PER_NODE, setting.gpus)
    return msgspec.structs.replace(setting, gpus=2 * setting.gpus, nodes=nodes_for(2 * setting.gpus, per_node))
