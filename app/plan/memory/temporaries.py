"""Temporary memory of a rank: the optimizer step, copies of autocast, unpacked weights, and the CUDA context."""

from functools import lru_cache

from ...text.units import GIB, MIB
from ..model.parameter_counts import block_params, expert_params, largest_matrix, trained_params
from ..model.parameters import bytes_per_parameter
from ..types import TrainingSetup
from .activations import COPIES, LOGITS_COPIES, logits_terms
from .computation import casts_no_experts, recomputes_activations, uses_autocast
from .formula import Factor, ranks, term, total_bytes
from .gathered_weights import Terms, buffer
from .model_states import all_parameters, shard_counts, splits_rows

DEEPSPEED_SUB_GROUP = 1e9  # elements per optimizer step of stage 3
STEP_COPIES = 1.0  # copies of its shard that foreach Adam makes: the square root (torch 2.13; 2.1 in Lightning's table)
LOOP_TENSORS = 3  # copies of its largest tensor that the for-loop Adam makes (torch 2.13), also in the backward pass
# In fp32: the squared gradient and the update (transformers' Adafactor), and copies of 16-bit ones.
ADAFACTOR_TENSORS = 2
CONTEXT_BYTES = 1.0 * GIB  # CUDA context (0.5 to 1.3 GiB observed)
# With all kernels, before torch loaded them lazily (``torch/cuda/__init__.py`` sets CUDA_MODULE_LOADING since 1.13):
# 1,343 MiB in the guide of transformers 4.26 to training on one GPU.
EAGER_CONTEXT_BYTES = 1.3 * GIB
CUBLAS_BYTES = 32 * MIB  # its workspace
# Bytes per unpacked weight: its 16-bit copy, and the temporaries in which 4-bit values are shifted and scaled
# (bitsandbytes' kernel needs none; AutoGPTQ 0.4 unpacks to int32 and int16, then multiplies in 16 bit).
UNPACKED_BYTES = {"nf4": 2, "nf4-dq": 2, "gptq-int4": 4 + 2 + 2 + 2}
NCCL_BYTES = 0.75 * GIB  # one set of communicators (0.3 to 1.5 GiB observed)


def head_grad_terms(setting: TrainingSetup) -> Terms:
    """Return the output head's gradient while the loss is still in memory.

    A loss in parts is still in memory when that gradient is computed; a fused linear loss computes it in the forward
    pass. After a loss in one part, which is freed by then, only the difference in size counts. The gradient is whole if
    others are sharded later.
    """
    model, train = setting.model, setting.train
    if train.lora or "no LM head" in model.note:
        return ()
    gradient = float(model.vocab or 0) * (model.hidden or 0) * bytes_per_parameter(train).grad
    freed = total_bytes(logits_terms(setting)) if (train.loss or "eager") == "eager" else 0.0
    return (term("grads", "gradient of the output head", Factor(gradient - freed, "MiB")),) if gradient > freed else ()


@lru_cache(maxsize=256)
def optimizer_step_terms(setting: TrainingSetup) -> Terms:
    """Return the temporaries of the optimizer step."""
    train, strategy = setting.train, setting.layout
    if strategy.steps_on_host:
        return ()
    over = shard_counts(strategy, setting.gpus, setting.nodes)[2]
    parts = [(each, elements * each.trained) for each, elements in all_parameters(setting) if each.trained]
    trained = sum(elements for _, elements in parts)
    shard = trained / over

    def temporary(what: str, width: float, elements: float = trained, *more: Factor) -> Terms:
        return (term("temporaries", what, Factor(elements, "weights"), Factor(width, "bytes"), *more),)

    if strategy.kind == "deepspeed":
        width = 2 if train.master_dtype == "bf16" else 2 + 4
        if strategy.stage == 3 and shard > DEEPSPEED_SUB_GROUP:
            return temporary("flat gradients, a group at a time", width, DEEPSPEED_SUB_GROUP)
        return temporary("flat gradients", width, trained, *ranks(over))
    largest = min(shard, max((each.elements / each.copies for each, _ in parts), default=0.0) / over)
    if train.optimizer == "adafactor":
        per = bytes_per_parameter(train)
        tensors = ADAFACTOR_TENSORS + (per.weight < 4) + (per.grad < 4)
        return temporary("temporaries of the largest tensor", tensors * 4, largest)
    if train.optimizer_impl == "fused" or train.optimizer not in ("adamw", "adam"):
        return ()
    width = bytes_per_parameter(train).weight
    loops = train.optimizer_in_bwd or train.precedes_torch(2, 0)  # which made foreach the default
    if loops and LOOP_TENSORS * largest < shard:
        return temporary("copies of the largest tensor", width * LOOP_TENSORS, largest)
    uneven = sum(elements / each.shards(over, splits_rows(each, strategy)) for each, elements in parts)
    copies = STEP_COPIES * uneven * over / trained if trained else 0.0
    return temporary("copies of the foreach step", width * copies, trained, *ranks(over))


def autocast_terms(setting: TrainingSetup) -> Terms:
    """Return the 16-bit copies of fp32 weights that are kept during the forward pass.

    torch.autocast keeps copies of trained weights, each product one of a frozen weight unless it is recomputed.
    Quantised weights have none, and experts neither if it does not cast them.
    """
    if not uses_autocast(setting):
        return ()
    frozen_have_none = setting.train.quant or recomputes_activations(setting.train)
    copied = trained_params(setting.model, setting.train) if frozen_have_none else setting.model.params
    if casts_no_experts(setting):
        copied = max(0.0, copied - expert_params(setting.model))
    return (buffer("16-bit copies of autocast", copied, "weights", 2),)


def autocast_at_loss_terms(setting: TrainingSetup) -> Terms:
    """Return what those copies add to the peak of the loss.

    Recomputed blocks save none of them: they are freed when the forward pass ends, before an eager loss has its last
    copy of the logits.
    """
    copies = autocast_terms(setting)
    if not copies or not recomputes_activations(setting.train) or setting.train.loss not in (None, "eager"):
        return copies
    logits = [each for each in logits_terms(setting) if each.what == COPIES["eager"]]
    more = total_bytes(copies) - total_bytes(logits) / LOGITS_COPIES["eager"]
    return (term("buffers", "16-bit copies of autocast, beyond the logits", Factor(more, "MiB")),) if more > 0 else ()


def dequantized_terms(setting: TrainingSetup) -> Terms:
    """Return the unpacked quantised weight in use; autograd saves those that AutoGPTQ unpacks."""
    quant = setting.train.quant
    if not quant:
        return ()
    matrix = Factor(largest_matrix(setting.model), "weights of a matrix")
    unpacked = term("temporaries", "unpacked from 4 bit", matrix, Factor(UNPACKED_BYTES[quant], "bytes"))
    if quant != "gptq-int4":
        return (unpacked,)
    block = Factor(block_params(setting.model), "weights of a block")
    return unpacked, term("temporaries", "unpacked, saved by a block", block, Factor(2, "bytes"))


def keeps_last_gradients(setting: TrainingSetup) -> bool:
    """Return whether gradients of the last micro-batch or step still exist in the forward pass.

    Accumulated ones do, and views into DDP's buckets, which are never freed. ``zero_grad`` of torch 1 kept them in
    memory; 2.0 made set_to_none its default.
    """
    train, layout = setting.train, setting.layout
    if (train.grad_accum or 1) > 1 or (layout.replicates and layout.gradient_as_bucket_view):
        return True
    return (layout.kind == "single" or layout.replicates) and train.precedes_torch(2, 0)


def non_torch_terms(setting: TrainingSetup) -> Terms:
    """Return what is in use on the GPU outside of PyTorch's allocator."""
    context = EAGER_CONTEXT_BYTES if setting.train.precedes_torch(1, 13) else CONTEXT_BYTES
    cuda = term("context", "CUDA context and cuBLAS", Factor(context + CUBLAS_BYTES, "MiB"))
    if setting.gpus == 1:
        return (cuda,)
    split = sum(size > 1 for size in setting.layout.splits.values())
    sets = (Factor(1 + split, "meshes"),) if split else ()
    return (cuda, term("context", "NCCL's communicators", Factor(NCCL_BYTES, "MiB"), *sets))
