"""Temporary memory of a rank: terms of communication, gathered weights, the optimizer step, and the CUDA context.

Sources: torch 2.13 (`torch/distributed/fsdp/_fully_shard`, `torch/nn/parallel/distributed.py`, `torch/optim/adam.py`),
DeepSpeed 0.19 configuration docs (bucket sizes and their defaults).
"""

from functools import lru_cache

from ...text.units import GIB, MIB
from ..model.parameter_bytes import bytes_per_parameter, frozen_weight_bytes
from ..model.parameter_counts import (
    block_params,
    embedding_params,
    expert_params,
    kv_width,
    largest_matrix,
    trained_params,
)
from ..model.parameters import EMBEDDING, HEAD, ROOT, Parameter, Unit
from ..types import TrainingSetup
from .activations import (
    COPIES,
    FP32_LOGITS_COPIES,
    casts_no_experts,
    compute_dtype_bytes,
    logits_terms,
    recomputes_activations,
    uses_autocast,
)
from .formula import Factor, Term, ranks, term, total_bytes
from .model_states import shard_counts, sharing_ranks, splits_rows, units_of
from .token_counts import layer_tokens

DEEPSPEED_BUCKET = 5e8  # elements; the default of reduce_bucket_size and allgather_bucket_size
DEEPSPEED_LIVE = 1e9  # stage3_max_live_parameters
DEEPSPEED_PREFETCH = 5e7  # stage3_prefetch_bucket_size
DEEPSPEED_SUB_GROUP = 1e9  # elements per optimizer step of stage 3
STEP_COPIES = 1.0  # copies of its shard that foreach Adam makes: the square root (torch 2.13; 2.1 in Lightning's table)
LOOP_TENSORS = 3  # copies of its largest tensor that the for-loop Adam makes (torch 2.13), also in the backward pass
ADAFACTOR_TENSORS = (
    2  # in fp32: the squared gradient and the update (transformers' Adafactor), and copies of 16-bit ones
)
CONTEXT_BYTES = 1.0 * GIB  # CUDA context (0.5 to 1.3 GiB observed)
# With all kernels, before torch loaded them lazily (``torch/cuda/__init__.py`` sets CUDA_MODULE_LOADING since 1.13):
# 1,343 MiB in the guide of transformers 4.26 to training on one GPU.
EAGER_CONTEXT_BYTES = 1.3 * GIB
CUBLAS_BYTES = 32 * MIB  # its workspace
# Bytes per unpacked weight: its 16-bit copy, and the temporaries in which 4-bit values are shifted and scaled
# (bitsandbytes' kernel needs none; AutoGPTQ 0.4 unpacks to int32 and int16, then multiplies in 16 bit).
UNPACKED_BYTES = {"nf4": 2, "nf4-dq": 2, "gptq-int4": 4 + 2 + 2 + 2}
UNEVEN_ROUTING = 1.25
NCCL_BYTES = 0.75 * GIB  # one set of communicators (0.3 to 1.5 GiB observed)

Terms = tuple[Term, ...]


def shards_weights(setting: TrainingSetup) -> bool:
    """Return whether FSDP shards the weights over ranks."""
    strategy = setting.layout
    return strategy.is_fsdp and setting.gpus > 1 and strategy.sharding != "NO_SHARD"


@lru_cache(maxsize=256)
def gathered_terms(setting: TrainingSetup) -> Terms:
    """Return what is unsharded for a time in the backward pass: gathered units, gradients in reduction, buckets."""
    train, strategy = setting.train, setting.layout
    if shards_weights(setting):
        return _fsdp(setting)
    back = _fsdp(setting) if strategy.cpu_offload or strategy.offload_param else ()
    if strategy.kind == "deepspeed":
        own = _deepspeed(setting)
        return own if strategy.stage == 3 else own + back
    if strategy.replicates:
        width = 0.0 if strategy.gradient_as_bucket_view else bytes_per_parameter(train).grad
        return (*back, _buffer("DDP's buckets", trained_params(setting.model, setting.train), "gradients", width))
    # FSDP1 without sharding reduces the gradients of a block in place, or in another precision.
    if strategy.sharding == "NO_SHARD":
        return (_reduced(setting, _largest_unit(setting)),)
    return back


def bucket_terms(setting: TrainingSetup) -> Terms:
    """Return the buffers that exist in the optimizer step too: those of DDP and DeepSpeed are never freed."""
    return gathered_terms(setting) if setting.layout.replicates or setting.layout.kind == "deepspeed" else ()


def at_loss_terms(setting: TrainingSetup) -> Terms:
    """Return what is gathered at the peak of the loss.

    With FSDP2 these are the root or the output head, the buffer that the last block was gathered in, and what is not
    resharded (FSDP1 frees blocks later, as it records streams); otherwise all, as DDP creates its buckets at
    construction.
    """
    if setting.layout.is_fully_shard and shards_weights(setting):
        return (*_kept_units(setting, _root(setting, HEAD)), _gathered("buffer of the last block", setting))
    return gathered_terms(setting)


def forward_terms(setting: TrainingSetup) -> Terms:
    """Return what FSDP2 has gathered when it copies a block out of its all-gather buffer in the forward pass.

    That are the block, this buffer, and the one of the block before (torch 2.13, ``FSDPParamGroup.wait_for_unshard``).
    """
    if not (setting.layout.is_fully_shard and shards_weights(setting)):
        return ()
    gathered = (*_root(setting, HEAD), _gathered("block in use", setting))
    return (*_kept_units(setting, gathered), _gathered("all-gather buffers", setting, Factor(2, "blocks")))


def backward_end_terms(setting: TrainingSetup) -> Terms:
    """Return what the gradients of embedding and head need at the end of the backward pass.

    FSDP reduces them after it has freed their weights; this rank's shard of them does not exist yet. Without it, those
    of a tied table are computed twice, for the head and for the embedding, and added.
    """
    model, train, per = setting.model, setting.train, bytes_per_parameter(setting.train)
    if train.lora:
        return ()
    if not shards_weights(setting):
        table = float(model.vocab or 0) * (model.hidden or 0) * (1 - (train.frozen or 0.0))
        twice = model.tied and model.kind in (None, "decoder")
        return (_buffer("gradients of a tied table", table, "gradients", 2 * per.grad),) if twice else ()
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[1]
    elements = sum(unit.elements for unit in _root_units(setting, EMBEDDING))
    reduced = _reduced_bytes(setting) - per.grad / over
    return (_buffer("gradients of embedding and head", elements, "gradients", reduced),)


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


def _buffer(what: str, count: float, name: str, width: float, *more: Factor) -> Term:
    return term("buffers", what, Factor(count, name), Factor(width, "bytes"), *more)


def _whole_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per gathered weight."""
    return frozen_weight_bytes(setting.train) if setting.train.lora else float(compute_dtype_bytes(setting.train))


def _reduced_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per gradient in reduction: unsharded, and in the reduce precision; 0 if none is reduced."""
    train = setting.train
    return 0.0 if train.lora else compute_dtype_bytes(train) + bytes_per_parameter(train).grad


@lru_cache(maxsize=256)
def _largest_unit(setting: TrainingSetup) -> Unit:
    """Return the repeated unit that takes most memory while it is gathered."""
    repeated = [unit for unit in units_of(setting) if unit.name not in (ROOT, HEAD, EMBEDDING)]
    return max(repeated, key=lambda unit: _padded(setting, unit), default=Unit("block", 0.0, ()))


@lru_cache(maxsize=256)
def _padded(setting: TrainingSetup, unit: Unit) -> float:
    """Return the elements of the buffer in which a unit is gathered or reduced: a largest shard for each rank."""
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[0]

    def padded(each: Parameter) -> float:
        shared_by = sharing_ranks(each, over, setting.layout)
        return each.elements * shared_by / each.shards(shared_by, splits_rows(each, setting.layout))

    return sum(map(padded, unit.parameters))


def _gathered(what: str, setting: TrainingSetup, *more: Factor) -> Term:
    """Return the largest unit with its weights gathered, with the padding of its shards."""
    unit = _largest_unit(setting)
    return _buffer(what, _padded(setting, unit), f"weights of a {unit.name}", _whole_bytes(setting), *more)


def _reduced(setting: TrainingSetup, unit: Unit) -> Term:
    """Return the gradients of a unit in reduction: as computed, and in the buffer that is sent."""
    train, padded = setting.train, _padded(setting, unit)
    if train.lora or not unit.elements:
        return _buffer("gradients in reduction", unit.elements, "gradients", 0.0)
    sent = compute_dtype_bytes(train) + bytes_per_parameter(train).grad * padded / unit.elements
    return _buffer("gradients in reduction", unit.elements, f"gradients of a {unit.name}", sent)


def _root_units(setting: TrainingSetup, name: str) -> list[Unit]:
    """Return the root, or the unit of that name if the root has none: a tied head is the embedding."""
    names = (ROOT, name, EMBEDDING) if setting.model.tied else (ROOT, name)
    return [unit for unit in units_of(setting) if unit.name in names]


def _root(setting: TrainingSetup, name: str) -> Terms:
    """Return the weights of the root, gathered, or of embedding or head if they are units of their own."""
    width = compute_dtype_bytes(setting.train)
    return tuple(
        _buffer(f"{unit.name}, gathered", unit.elements, "weights", width) for unit in _root_units(setting, name)
    )


def _fsdp(setting: TrainingSetup) -> Terms:
    """Return the units of FSDP in the backward pass: one in use, one prefetched, gradients in reduction, the root."""
    strategy, unit = setting.layout, _largest_unit(setting)
    root = () if strategy.own_table_units else _root(setting, HEAD)
    gathered = (*root, _gathered("block in use", setting), _gathered("next block", setting))
    found = (*_kept_units(setting, gathered, freed=1), _reduced(setting, unit))
    if not strategy.cpu_offload:
        return found
    staged = _buffer("shards in transfer", unit.elements, "weights", _whole_bytes(setting), Factor(2, "blocks"))
    return (*found, staged.times(*ranks(setting.gpus)))


def _kept_units(setting: TrainingSetup, gathered: Terms, freed: int = 0) -> Terms:
    """Return ``gathered``, or all weights if they stay gathered until the backward pass, or with larger shards.

    ``freed``: blocks that were freed when the first gradients are reduced.
    """
    strategy = setting.layout
    units = units_of(setting)
    if strategy.sharding == "SHARD_GRAD_OP" or strategy.reshard_after_forward is False:
        elements = sum(unit.repeats * _padded(setting, unit) for unit in units)
        elements -= freed * _padded(setting, _largest_unit(setting))
        every = _buffer("weights that stay gathered", elements, "weights", _whole_bytes(setting))
        return (every,) if every.bytes > total_bytes(gathered) else gathered
    size = int(strategy.reshard_after_forward or 1)
    if size == 1:
        return gathered
    larger = _buffer("larger shards, after the forward pass", setting.model.params, "weights", _whole_bytes(setting))
    return (*gathered, larger.times(*ranks(size)))


def _deepspeed(setting: TrainingSetup) -> Terms:
    model, strategy, weight = setting.model, setting.layout, _whole_bytes(setting)
    trained = trained_params(setting.model, setting.train)
    reduce_bucket = min(strategy.reduce_bucket_size or DEEPSPEED_BUCKET, trained)
    gather_bucket = min(strategy.allgather_bucket_size or DEEPSPEED_BUCKET, trained)
    if strategy.stage != 3:
        # Two buffers if one is filled while the other is sent; the examples of DeepSpeed and transformers enable it.
        overlapping = () if strategy.overlap_comm is False else (Factor(2, "buffers"),)
        return (
            _buffer("reduce buckets", reduce_bucket, "values", 2, *overlapping),
            _buffer("all-gather bucket", gather_bucket, "values", 2),
        )
    # Gathered modules up to the limit, the largest beyond it, and the flat buffer that receives them.
    largest = max(_largest_unit(setting).elements, embedding_params(model) / (1 if model.tied else 2))
    live = min(DEEPSPEED_LIVE + largest, model.params)
    if is_persistent(setting):
        live, largest = model.params, 0.0
    return (
        _buffer("gathered modules", live, "weights", weight),
        _buffer("buffer for the largest", largest, "weights", weight),
        _buffer("prefetched", DEEPSPEED_PREFETCH, "weights", weight),
        _buffer("reduce bucket", reduce_bucket, "values", 2),
    )


def is_persistent(setting: TrainingSetup) -> bool:
    """Return whether weights that ZeRO-3 fetches from the host stay on the GPU until their backward pass.

    They do on one GPU, as the figures of PEFT's README show (7.0, 17 and 14 GiB). With several ranks each module is
    sharded again after its forward pass.
    """
    return bool(setting.layout.offload_param) and setting.gpus == 1 and not recomputes_activations(setting.train)


def exchange_terms(setting: TrainingSetup) -> Terms:
    """Return the buffers in which ranks exchange tokens for their experts, or keys and values of a sequence.

    Tokens are sent and received; the fullest rank gets more than the average (capacity factor of GShard, arXiv
    2006.16668). The keys and values of a sequence are gathered whole (torch 2.13, ``context_parallel``).
    """
    model, strategy = setting.model, setting.layout
    width = Factor(compute_dtype_bytes(setting.train), "bytes")
    tokens = Factor(layer_tokens(setting), "tokens")
    found: list[Term] = []
    if strategy.expert:
        copies = Factor(float(model.experts_per_token or 1), "experts of a token")
        size = tokens, copies, Factor(float(model.hidden or 0), "elements"), width
        found.append(term("buffers", "tokens sent to experts and back", *size, Factor(2 * UNEVEN_ROUTING, "buffers")))
    if strategy.context:
        size = tokens, Factor(2 * kv_width(model), "elements of keys and values"), width
        found.append(term("buffers", "keys and values of the sequence", *size, Factor(strategy.context, "ranks")))
    return tuple(found)


def optimizer_step_terms(setting: TrainingSetup) -> Terms:
    """Return the temporaries of the optimizer step."""
    train, strategy = setting.train, setting.layout
    if strategy.steps_on_host:
        return ()
    over = shard_counts(strategy, setting.gpus, setting.nodes)[2]
    trained = trained_params(setting.model, setting.train)
    shard = trained / over

    def temporary(what: str, width: float, elements: float = trained, *more: Factor) -> Terms:
        return (term("temporaries", what, Factor(elements, "weights"), Factor(width, "bytes"), *more),)

    if strategy.kind == "deepspeed":
        if train.master_dtype == "bf16":
            return ()
        if strategy.stage == 3 and shard > DEEPSPEED_SUB_GROUP:
            return temporary("gradients in fp32, a group at a time", 4, DEEPSPEED_SUB_GROUP)
        return temporary("gradients in fp32", 4, trained, *ranks(over))
    largest = min(shard, _largest_trained(setting) / over)
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
    uneven = sum(
        unit.repeats * each.elements * each.trained / each.shards(over, splits_rows(each, strategy))
        for unit in units_of(setting)
        for each in unit.parameters
    )
    return (
        temporary("copies of the foreach step", width * STEP_COPIES * uneven * over / trained, trained, *ranks(over))
        if trained
        else ()
    )


def _largest_trained(setting: TrainingSetup) -> float:
    """Return the number of elements of the largest trained matrix: the embedding, or one of a block."""
    model = setting.model
    if not model.hidden:
        return model.params
    table = float(model.vocab or 0) * model.hidden
    return float(model.hidden) if setting.train.lora else max(table, largest_matrix(model))


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
    return (_buffer("16-bit copies of autocast", copied, "weights", 2),)


def autocast_at_loss_terms(setting: TrainingSetup) -> Terms:
    """Return what those copies add to the peak of the loss.

    Recomputed blocks save none of them: they are freed when the forward pass ends, before an eager loss has its last
    copy of the logits.
    """
    copies = autocast_terms(setting)
    if not copies or not recomputes_activations(setting.train) or setting.train.loss not in (None, "eager"):
        return copies
    logits = [each for each in logits_terms(setting) if each.what == COPIES["eager"]]
    more = total_bytes(copies) - total_bytes(logits) / FP32_LOGITS_COPIES["eager"]
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
    """Return whether the gradients of the last step still exist in the forward pass.

    ``zero_grad`` of torch 1 kept them in memory; 2.0 made set_to_none its default.
    """
    whole = setting.layout.kind == "single" or setting.layout.replicates
    return whole and setting.train.precedes_torch(2, 0)


def non_torch_terms(setting: TrainingSetup) -> Terms:
    """Return what is in use on the GPU outside of PyTorch's allocator."""
    context = EAGER_CONTEXT_BYTES if setting.train.precedes_torch(1, 13) else CONTEXT_BYTES
    cuda = term("context", "CUDA context and cuBLAS", Factor(context + CUBLAS_BYTES, "MiB"))
    if setting.gpus == 1:
        return (cuda,)
    split = sum(size > 1 for size in setting.layout.splits.values())
    sets = (Factor(1 + split, "meshes"),) if split else ()
    return (cuda, term("context", "NCCL's communicators", Factor(NCCL_BYTES, "MiB"), *sets))
