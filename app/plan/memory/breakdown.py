"""The products that each part of a peak consists of: the formulas of the memory model with their numbers filled in.

The numbers are those of ``model_states``, ``activations`` and ``temporaries``; the terms of a part add up to that part
of the candidate's breakdown. A part that no decomposition adds up to is shown as one term.
"""

import math

import msgspec

from ..model.parameter_counts import block_params, embedding_params
from ..types import Candidate, TrainingSetup
from . import activations, temporaries
from .formula import Factor, Term
from .model_states import (
    bytes_per_parameter,
    frozen_weight_bytes,
    optimizer_state_bytes,
    shard_counts,
    unsharded_grad_bytes,
    weights_with_grads,
)

CLOSE = 1e-3  # relative difference that may be rounding
REST = "other"
KEPT = {
    "none": "saved by each block",
    "full": "input of each block",
    "selective-op": "saved outputs",
    "selective-layer": "input of every second block, all of the others",
}
LOGITS = {
    "eager": "logits, their log-softmax and gradients",
    "compiled": "logits and their gradient",
    "chunked": "logits, and one chunk's gradients",
    "fused-linear": "logits of a chunk",
}
PHASES = {"loss": "at the end of the forward pass", "backward": "in the backward pass", "step": "in the optimizer step"}


def breakdown_terms(setting: TrainingSetup, found: Candidate) -> list[Term]:
    """Return the products that the peak of a candidate consists of, part by part."""
    shown: list[Term] = []
    for part, size_bytes in msgspec.structs.asdict(found.breakdown).items():
        if size_bytes > 0:
            shown += _adding_up(part, size_bytes, _ways(part, setting, found))
    return shown


def _adding_up(part: str, size_bytes: float, ways: list[list[Term]]) -> list[Term]:
    """Return the first decomposition of a part that adds up to it; without one, the whole part as one term."""
    for way in ways:
        made = [term._replace(part=part) for term in way if term.bytes > 0]
        if abs(size_bytes - sum(term.bytes for term in made)) <= CLOSE * size_bytes:
            return made
    return [Term(part, REST, (Factor(size_bytes, "MiB"),))]


def _ways(part: str, setting: TrainingSetup, found: Candidate) -> list[list[Term]]:
    """Return the possible decompositions of a part, which depend on the phase of the peak."""
    match part:
        case "params":
            return [_params(setting)]
        case "grads":
            grads, of_head = _grads(setting), _head_grad(setting)
            return [grads, of_head, grads + of_head]
        case "optimizer":
            return [_optimizer(setting)]
        case "activations":
            return [_kept(setting), _one_block(setting)]
        case "loss":
            return [_loss(setting)]
        case "buffers":
            gathered, at_loss, cast = _gathered(setting), _whole(setting, 1), _autocast(setting)
            return [gathered, gathered + cast, at_loss, at_loss + cast, cast, _ending(setting)]
        case "temporaries":
            return [_in_step(setting), _in_backward(setting)]
        case "context":
            return [_outside(setting)]
        case _:
            return [_gaps(found)]


def _ranks(count: int) -> list[Factor]:
    return [Factor(count, "ranks", divides=True)] if count > 1 else []


def _params(setting: TrainingSetup) -> list[Term]:
    model, train = setting.model, setting.train
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[0]
    trained = temporaries.trained_params(setting)
    frozen = model.params if train.lora else model.params - trained
    tables = embedding_params(model) if train.quant else 0.0
    return [
        _sharded("trained weights", trained, _name(setting), bytes_per_parameter(train).weight, over),
        _sharded("frozen weights", frozen - tables, "frozen weights", frozen_weight_bytes(train), over),
        _sharded("weights kept in 16 bit", tables, "weights of embedding and head", 2, over),
    ]


def _grads(setting: TrainingSetup) -> list[Term]:
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[1]
    count, name = weights_with_grads(setting), _name(setting)
    if width := unsharded_grad_bytes(setting):
        return [_sharded("gradients, unsharded until the last micro-batch", count, name, width, 1)]
    return [_sharded("gradients", count, name, bytes_per_parameter(setting.train).grad, over)]


def _head_grad(setting: TrainingSetup) -> list[Term]:
    whole, width = temporaries.head_grad_bytes(setting), bytes_per_parameter(setting.train).grad
    return _product("gradient of the output head", whole, [Factor(whole / width, "weights")] if width else [], "bytes")


def _optimizer(setting: TrainingSetup) -> list[Term]:
    train, over = setting.train, shard_counts(setting.layout, setting.gpus, setting.nodes)[2]
    what = "optimizer states" + (", fp32 copy of the weights" if (train.dtype or "").endswith("-deepspeed") else "")
    return [_sharded(what, temporaries.trained_params(setting), _name(setting), optimizer_state_bytes(setting), over)]


def _name(setting: TrainingSetup) -> str:
    return "adapter weights" if setting.train.lora else "weights"


def _sharded(what: str, count: float, name: str, width: float, over: int) -> Term:
    return Term("", what, (Factor(count, name), Factor(width, "bytes"), *_ranks(over)))


def _product(what: str, whole: float, factors: list[Factor], last: str, *more: Factor) -> list[Term]:
    """Return a term of ``whole`` bytes whose last factor is derived from the others, or no term for 0 bytes."""
    others = math.prod(each.value for each in (*factors, *more))
    return [Term("", what, (*factors, Factor(whole / others, last), *more))] if whole and others else []


def _kept(setting: TrainingSetup) -> list[Term]:
    """Return the terms of saved activations: tokens, layers, and tensors of the hidden size."""
    model, train = setting.model, setting.train
    whole, scores = activations.main_activation_bytes(setting), activations.attention_score_bytes(setting)
    tower = Term("", "saved by the vision tower", (Factor(activations.vision_activation_bytes(setting), "MiB"),))
    layers = [_tokens(setting), Factor(float(model.layers or 0), "layers")]
    if not activations.recomputes_activations(train) and scores and not train.act_offload:
        share = whole / (activations.block_activation_bytes(setting) + activations.adapter_activation_bytes(setting))
        seen = [*layers, Factor(train.seq_len or 0, "tokens seen"), Factor(model.heads or 0, "heads")]
        scored = _product("attention scores", scores * share, seen, "bytes")
        return [*_copies(KEPT["none"], whole - scores * share, layers, setting), *scored, tower]
    return [*_copies(KEPT[train.act_ckpt or "none"], whole, layers, setting), tower]


def _copies(what: str, whole: float, factors: list[Factor], setting: TrainingSetup) -> list[Term]:
    hidden, width = Factor(setting.model.hidden or 0, "hidden"), activations.compute_dtype_bytes(setting.train)
    return _product(what, whole, factors, "tensors", hidden, Factor(width, "bytes"))


def _tokens(setting: TrainingSetup) -> Factor:
    return Factor(activations.batch_tokens(setting.train), "tokens")


def _one_block(setting: TrainingSetup) -> list[Term]:
    whole = activations.block_activation_bytes(setting)
    return _copies("rest of one block", whole, [_tokens(setting)], setting)


def _loss(setting: TrainingSetup) -> list[Term]:
    logits = [_tokens(setting), Factor(setting.model.vocab or 0, "logits a token")]
    return _product(LOGITS[setting.train.loss or "eager"], activations.logits_bytes(setting), logits, "bytes")


def _autocast(setting: TrainingSetup) -> list[Term]:
    whole = temporaries.autocast_bytes(setting)
    return _product(
        "16-bit copies of autocast",
        whole,
        [Factor(temporaries.autocast_weight_count(setting), "weights")],
        "bytes",
    )


def _gathered(setting: TrainingSetup) -> list[Term]:
    """Return the terms of weights and gradients that are temporarily unsharded, and of buckets."""
    train, strategy = setting.train, setting.layout
    if temporaries.shards_weights(setting):
        return _blocks(setting)
    back = _blocks(setting) if strategy.cpu_offload or strategy.offload_param else []
    if strategy.kind == "deepspeed":
        return _deepspeed(setting) + (back if strategy.stage != 3 else [])
    if strategy.replicates:
        trained = [Factor(temporaries.trained_params(setting), "gradients")]
        return [*back, *_product("DDP's buckets", trained[0].value * bytes_per_parameter(train).grad, trained, "bytes")]
    return back


def _weight(setting: TrainingSetup) -> Factor:
    """Return the factor for the bytes of an unsharded weight."""
    train = setting.train
    return Factor(frozen_weight_bytes(train) if train.lora else float(activations.compute_dtype_bytes(train)), "bytes")


def _whole(setting: TrainingSetup, blocks: int) -> list[Term]:
    """Return the terms of weights that FSDP has gathered: ``blocks`` blocks, embedding and head, or all of them."""
    model, strategy, weight = setting.model, setting.layout, _weight(setting)
    block = Factor(block_params(model), "weights of a block")
    tables = Factor(embedding_params(model), "weights of embedding and head")
    width = Factor(activations.compute_dtype_bytes(setting.train), "bytes")
    found = [
        Term("", "blocks in use", (Factor(blocks, "blocks"), block, weight)),
        Term("", "embedding and head, gathered", (tables, width)),
    ]
    every = Term("", "weights that stay gathered", (Factor(model.params, "weights"), weight))
    if strategy.sharding == "SHARD_GRAD_OP" or strategy.reshard_after_forward is False:
        return [every] if every.bytes > sum(term.bytes for term in found) else found
    ranks = _ranks(int(strategy.reshard_after_forward or 1))
    larger = every._replace(what="larger shards, after the forward pass", factors=(*every.factors, *ranks))
    return [*found, larger] if ranks else found


def _blocks(setting: TrainingSetup) -> list[Term]:
    """Return the terms of blocks gathered in the backward pass, with the gradients of one block in reduction."""
    model, train, weight = setting.model, setting.train, _weight(setting)
    block = Factor(block_params(model), "gradients of a block")
    reduced = Factor(
        0 if train.lora else activations.compute_dtype_bytes(train) + bytes_per_parameter(train).grad, "bytes"
    )
    found = [*_whole(setting, 2), Term("", "gradients before reduction", (block, reduced))]
    if setting.layout.cpu_offload:
        staged = (Factor(2, "blocks"), block._replace(what="weights of a block"), weight, *_ranks(setting.gpus))
        found.append(Term("", "shards in transfer", staged))
    return found


def _deepspeed(setting: TrainingSetup) -> list[Term]:
    model, strategy, weight = setting.model, setting.layout, _weight(setting)
    trained = temporaries.trained_params(setting)
    reduce = Factor(min(strategy.reduce_bucket_size or temporaries.DEEPSPEED_BUCKET, trained), "values")
    gather = Factor(min(strategy.allgather_bucket_size or temporaries.DEEPSPEED_BUCKET, trained), "values")
    two = Factor(2, "bytes")
    if strategy.stage != 3:
        times = [] if strategy.overlap_comm is False else [Factor(2, "buffers")]
        return [
            Term("", "reduce buckets", (reduce, two, *times)),
            Term("", "all-gather bucket", (gather, two)),
        ]
    largest = max(block_params(model), embedding_params(model) / (1 if model.tied else 2))
    live = min(temporaries.DEEPSPEED_LIVE + largest, model.params)
    if temporaries.is_persistent(setting):
        live, largest = model.params, 0.0
    return [
        Term("", "gathered modules", (Factor(live, "weights"), weight)),
        Term("", "buffer for the largest", (Factor(largest, "weights"), weight)),
        Term("", "prefetched", (Factor(temporaries.DEEPSPEED_PREFETCH, "weights"), weight)),
        Term("", "reduce bucket", (reduce, two)),
    ]


def _ending(setting: TrainingSetup) -> list[Term]:
    tables = [Factor(embedding_params(setting.model), "weights of embedding and head")]
    return _product("embedding and head with their gradients", temporaries.backward_end_bytes(setting), tables, "bytes")


def _in_backward(setting: TrainingSetup) -> list[Term]:
    tokens = [_tokens(setting)]
    again, flow = activations.recomputed_block_bytes(setting), activations.activation_gradient_bytes(setting)
    return [
        *_copies("recomputed block", again, tokens, setting),
        *_copies("gradients inside a block", flow, tokens, setting),
        Term("", "weights unpacked from 4 bit", (Factor(temporaries.dequantized_bytes(setting), "MiB"),)),
    ]


def _in_step(setting: TrainingSetup) -> list[Term]:
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[2]
    whole, trained = temporaries.optimizer_step_bytes(setting), temporaries.trained_params(setting)
    what = "gradients in fp32" if setting.layout.kind == "deepspeed" else "temporaries of the optimizer step"
    width = whole * over / trained if trained else 0.0
    if width >= 1:
        return [_sharded(what, trained, _name(setting), width, over)]
    return _product(what, whole, [Factor(whole / 4, "values at a time")], "bytes")  # a group at a time


def _outside(setting: TrainingSetup) -> list[Term]:
    nccl = temporaries.NCCL_BYTES if setting.gpus > 1 else 0.0
    cuda = Factor(temporaries.non_torch_bytes(setting) - nccl, "MiB")
    return [Term("", "CUDA context and cuBLAS", (cuda,)), Term("", "NCCL's communicators", (Factor(nccl, "MiB"),))]


def _gaps(found: Candidate) -> list[Term]:
    allocated = Factor(found.peak_allocated_bytes_per_gpu, "GiB allocated")
    return _product("reserved by PyTorch's allocator, but not usable", found.breakdown.gaps, [allocated], "in gaps")
