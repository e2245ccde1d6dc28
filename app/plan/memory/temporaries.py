"""Temporary memory: bytes per GPU for communication, gathered weights and the optimizer step.

Sources: torch 2.13 (`torch/distributed/fsdp/_fully_shard`, `torch/nn/parallel/distributed.py`, `torch/optim/adam.py`),
DeepSpeed 0.19 configuration docs (bucket sizes and their defaults).
"""

from functools import lru_cache

from ...hardware.gpu_catalog import name_words
from ...text.units import GIB, MIB
from ..model import parameter_counts
from ..model.parameter_counts import block_params, embedding_params, largest_matrix
from ..types import TrainingSetup
from .activations import compute_dtype_bytes, logits_bytes, recomputes_activations, uses_autocast
from .model_states import bytes_per_parameter, frozen_weight_bytes, shard_counts

DEEPSPEED_BUCKET = 5e8  # elements; the default of reduce_bucket_size and allgather_bucket_size
DEEPSPEED_LIVE = 1e9  # stage3_max_live_parameters
DEEPSPEED_PREFETCH = 5e7  # stage3_prefetch_bucket_size
DEEPSPEED_SUB_GROUP = 1e9  # elements per optimizer step of stage 3
STEP_COPIES = 1.0  # copies of its shard that foreach Adam makes: the square root (torch 2.13; 2.1 in Lightning's table)
LOOP_TENSORS = 3  # copies of its largest tensor that the for-loop Adam makes (torch 2.13), also in the backward pass
ADAFACTOR_TENSORS = 2  # in fp32: the squared gradient and the update (transformers' Adafactor)
CONTEXT_BYTES = 1.0 * GIB  # CUDA context and cuBLAS workspace (0.5 to 1.3 GiB observed)
CONTEXT_BYTES_OF = {"v100": 1343 * MIB}  # measured separately by transformers' performance guide (4.26)
# GPUs from the time of torch 1, whose zero_grad kept the gradients in memory (2.0 enabled set_to_none): with them the
# nine figures of that guide are reproduced, without them those that keep activations are 10 % too low.
OF_TORCH_1 = {"p100", "v100"}
# Bytes per unpacked weight: its 16-bit copy, and the temporaries in which 4-bit values are shifted and scaled
# (bitsandbytes' kernel needs none; AutoGPTQ 0.4 unpacks to int32 and int16, then multiplies in 16 bit).
UNPACKED_BYTES = {"nf4": 2, "nf4-dq": 2, "gptq-int4": 4 + 2 + 2 + 2}
NCCL_BYTES = 0.75 * GIB  # one set of communicators (0.3 to 1.5 GiB observed)


@lru_cache(maxsize=256)
def trained_params(setting: TrainingSetup) -> float:
    """Return the number of parameters that have a gradient."""
    return parameter_counts.trained_params(setting.model, setting.train)


@lru_cache(maxsize=256)
def gathered_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of temporarily unsharded weights: gathered blocks, gradients before reduction, buckets."""
    train, strategy = setting.train, setting.layout
    if shards_weights(setting):
        return _fsdp(setting)
    back = _fsdp(setting) if strategy.cpu_offload or strategy.offload_param else 0.0
    if strategy.kind == "deepspeed":
        own = _deepspeed(setting, trained_params(setting), _whole_bytes(setting))
        return own if strategy.stage == 3 else own + back
    if strategy.replicates:
        return back + (
            0.0 if strategy.gradient_as_bucket_view else trained_params(setting) * bytes_per_parameter(train).grad
        )
    # FSDP1 without sharding reduces the gradients of a block in place, or in another precision.
    return back or (block_params(setting.model) * _reduced_bytes(setting) if strategy.sharding == "NO_SHARD" else 0.0)


def shards_weights(setting: TrainingSetup) -> bool:
    """Return whether FSDP shards the weights over ranks."""
    strategy = setting.layout
    return strategy.is_fsdp and setting.gpus > 1 and strategy.sharding != "NO_SHARD"


def _whole_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per gathered weight."""
    return frozen_weight_bytes(setting.train) if setting.train.lora else float(compute_dtype_bytes(setting.train))


def _reduced_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per gradient in reduction: unsharded, and in the reduce precision (fp32 if weights are); 0 if
    none is.
    """
    train = setting.train
    if train.lora:
        return 0.0
    return compute_dtype_bytes(train) + bytes_per_parameter(train).grad


def _fsdp(setting: TrainingSetup) -> float:
    """Return the bytes of blocks in use and prefetched, the gradients of one in reduction, and embedding and head."""
    model, strategy, weight = setting.model, setting.layout, _whole_bytes(setting)
    block = block_params(model)
    staged = 2 * block * weight / setting.gpus if strategy.cpu_offload else 0.0  # shards in transfer
    return _with_kept(setting, 2 * block * weight + _root_bytes(setting)) + block * _reduced_bytes(setting) + staged


def _root_bytes(setting: TrainingSetup) -> float:
    return embedding_params(setting.model) * compute_dtype_bytes(setting.train)


def gathered_at_loss_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of gathered weights at the peak of the loss.

    With FSDP2 these are embedding, head, the last block and what is not resharded (FSDP1 frees blocks later, as it
    records streams); otherwise all, as DDP creates its buckets at construction.
    """
    if setting.layout.is_fully_shard and shards_weights(setting):
        return _with_kept(setting, block_params(setting.model) * _whole_bytes(setting) + _root_bytes(setting))
    return gathered_bytes(setting)


def backward_end_bytes(setting: TrainingSetup) -> float:
    """Return the bytes that FSDP holds at the end of the backward pass.

    Embedding and head are gathered and their gradients in reduction; this rank's shard of them does not exist yet.
    """
    if not shards_weights(setting):
        return 0.0
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[1]
    shard = 0.0 if setting.train.lora else bytes_per_parameter(setting.train).grad / over
    return _root_bytes(setting) + embedding_params(setting.model) * (_reduced_bytes(setting) - shard)


def head_grad_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of the output head's gradient while the loss is still in memory.

    A loss in parts is still in memory when that gradient is computed; a fused linear loss computes it in the forward
    pass. After a loss in one part, which is freed by then, only the difference in size counts. The gradient is whole if
    others are sharded later.
    """
    model, train = setting.model, setting.train
    if train.lora or "no LM head" in model.note:
        return 0.0
    gradient = float(model.vocab or 0) * (model.hidden or 0) * bytes_per_parameter(train).grad
    return max(0.0, gradient - logits_bytes(setting)) if (train.loss or "eager") == "eager" else gradient


def _with_kept(setting: TrainingSetup, gathered: float) -> float:
    """Return ``gathered`` and the weights that stay gathered until the backward pass: all, or larger shards."""
    strategy, whole = setting.layout, setting.model.params * _whole_bytes(setting)
    if strategy.sharding == "SHARD_GRAD_OP" or strategy.reshard_after_forward is False:
        return max(gathered, whole)
    ranks = strategy.reshard_after_forward or 1
    return gathered + (whole / ranks if ranks > 1 else 0.0)


def _deepspeed(setting: TrainingSetup, trained: float, weight: float) -> float:
    strategy = setting.layout
    reduce_bucket = min(strategy.reduce_bucket_size or DEEPSPEED_BUCKET, trained)
    gather_bucket = min(strategy.allgather_bucket_size or DEEPSPEED_BUCKET, trained)
    if strategy.stage == 3:
        # Gathered modules up to the limit, the largest beyond it, and the flat buffer that receives them.
        largest = max(block_params(setting.model), embedding_params(setting.model) / (1 if setting.model.tied else 2))
        live = min(DEEPSPEED_LIVE + largest, setting.model.params)
        if is_persistent(setting):
            live, largest = setting.model.params, 0.0
        return (live + largest + DEEPSPEED_PREFETCH) * weight + reduce_bucket * 2
    # Two buffers if one is filled while the other is sent; the examples of DeepSpeed and transformers enable it.
    overlapping = 1 if strategy.overlap_comm is False else 2
    return reduce_bucket * 2 * overlapping + gather_bucket * 2


def is_persistent(setting: TrainingSetup) -> bool:
    """Return whether weights that ZeRO-3 fetches from the host stay on the GPU until their backward pass.

    They do on one GPU, as the figures of PEFT's README show (7.0, 17 and 14 GiB). With several ranks each module is
    sharded again after its forward pass.
    """
    return bool(setting.layout.offload_param) and setting.gpus == 1 and not recomputes_activations(setting.train)


def optimizer_step_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of temporaries in the optimizer step."""
    train, strategy = setting.train, setting.layout
    if strategy.steps_on_host:
        return 0.0
    over = shard_counts(strategy, setting.gpus, setting.nodes)[2]
    shard = trained_params(setting) / over
    if strategy.kind == "deepspeed":
        if train.master_dtype == "bf16":
            return 0.0
        return 4 * min(shard, DEEPSPEED_SUB_GROUP if strategy.stage == 3 else shard)  # fp32 gradients of the shard
    largest = min(shard, _largest_trained(setting) / over)
    if train.optimizer == "adafactor":
        return ADAFACTOR_TENSORS * 4 * largest
    if train.optimizer_impl == "fused" or train.optimizer not in ("adamw", "adam"):
        return 0.0
    width = bytes_per_parameter(train).weight
    return width * (min(STEP_COPIES * shard, LOOP_TENSORS * largest) if train.optimizer_in_bwd else STEP_COPIES * shard)


def _largest_trained(setting: TrainingSetup) -> float:
    """Return the number of elements of the largest trained matrix: the embedding, or one of a block."""
    model = setting.model
    if not model.hidden:
        return model.largest_layer or model.params
    table = float(model.vocab or 0) * model.hidden
    return float(model.hidden) if setting.train.lora else max(table, largest_matrix(model))


def autocast_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of 16-bit copies of fp32 weights that are kept during the forward pass.

    torch.autocast keeps copies of trained weights, each product one of a frozen weight unless it is recomputed.
    Quantised weights have none.
    """
    return 2 * autocast_weight_count(setting)


def autocast_weight_count(setting: TrainingSetup) -> float:
    """Return the number of weights that have such copies."""
    if not uses_autocast(setting):
        return 0.0
    frozen_have_none = setting.train.quant or recomputes_activations(setting.train)
    return trained_params(setting) if frozen_have_none else setting.model.params


def dequantized_bytes(setting: TrainingSetup) -> float:
    """Return the bytes of the unpacked quantised weight in use; autograd saves those that AutoGPTQ unpacks."""
    quant = setting.train.quant
    kept = 2 * block_params(setting.model) if quant == "gptq-int4" else 0.0
    return kept + (largest_matrix(setting.model) * UNPACKED_BYTES[quant] if quant else 0.0)


def keeps_last_gradients(setting: TrainingSetup) -> bool:
    """Return whether the gradients of the last step still exist in the forward pass."""
    whole = setting.layout.kind == "single" or setting.layout.replicates
    return whole and not OF_TORCH_1.isdisjoint(name_words(setting.gpu or ""))


@lru_cache(maxsize=256)
def non_torch_bytes(setting: TrainingSetup) -> float:
    """Return the bytes in use on the GPU outside of PyTorch's allocator."""
    named = next((name for name in name_words(setting.gpu or "") if name in CONTEXT_BYTES_OF), "")
    return CONTEXT_BYTES_OF.get(named, CONTEXT_BYTES) + (NCCL_BYTES if setting.gpus > 1 else 0.0) + 32 * MIB
