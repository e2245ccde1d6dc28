"""Memory of communication on a rank: gathered weights, buckets, and gradients in reduction.

Sources: torch 2.13 (``torch/distributed/fsdp/_fully_shard``, ``torch/nn/parallel/distributed.py``), the configuration
docs of DeepSpeed 0.19 (bucket sizes and their defaults).
"""

from functools import lru_cache

from ..model.parameter_counts import kv_width, trained_params
from ..model.parameters import EMBEDDING, HEAD, ROOT, Parameter, Unit, bytes_per_parameter, frozen_weight_bytes
from ..types import TrainingSetup
from .computation import compute_dtype_bytes, layer_tokens, recomputes_activations
from .formula import Factor, Term, ranks, term, total_bytes
from .model_states import shard_counts, sharing_ranks, splits_rows, units_of

DEEPSPEED_BUCKET = 5e8  # elements; the default of reduce_bucket_size and allgather_bucket_size
DEEPSPEED_LIVE = 1e9  # stage3_max_live_parameters
DEEPSPEED_PREFETCH = 5e7  # stage3_prefetch_bucket_size
UNEVEN_ROUTING = 1.25
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
        return (*back, buffer("DDP's buckets", trained_params(setting.model, setting.train), "gradients", width))
    # FSDP1 without sharding reduces the gradients of a block in place, or in another precision.
    if strategy.sharding == "NO_SHARD":
        return (_reduced(setting, _largest_unit(setting)),)
    return back


@lru_cache(maxsize=256)
def at_loss_terms(setting: TrainingSetup) -> Terms:
    """Return what is gathered at the peak of the loss.

    With FSDP2 these are the root or the output head, the buffer that the last block was gathered in, and what is not
    resharded (FSDP1 frees blocks later, as it records streams); otherwise all, as DDP creates its buckets at
    construction.
    """
    if setting.layout.is_fully_shard and shards_weights(setting):
        return (*_kept_units(setting, _root(setting, HEAD)), _gathered("buffer of the last block", setting))
    return gathered_terms(setting)


@lru_cache(maxsize=256)
def forward_terms(setting: TrainingSetup) -> Terms:
    """Return what FSDP2 has gathered when it copies a block out of its all-gather buffer in the forward pass.

    That are the block, this buffer, and the one of the block before (torch 2.13, ``FSDPParamGroup.wait_for_unshard``).
    """
    if not (setting.layout.is_fully_shard and shards_weights(setting)):
        return ()
    gathered = (*_root(setting, HEAD), _gathered("block in use", setting))
    return (*_kept_units(setting, gathered), _gathered("all-gather buffers", setting, Factor(2, "blocks")))


@lru_cache(maxsize=256)
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
        return (buffer("gradients of a tied table", table, "gradients", 2 * per.grad),) if twice else ()
    over = shard_counts(setting.layout, setting.gpus, setting.nodes)[1]
    elements = sum(unit.elements for unit in _root_units(setting, EMBEDDING))
    reduced = compute_dtype_bytes(train) + per.grad - per.grad / over  # unsharded, and in the reduce precision
    return (buffer("gradients of embedding and head", elements, "gradients", reduced),)


def buffer(what: str, count: float, name: str, width: float, *more: Factor) -> Term:
    return term("buffers", what, Factor(count, name), Factor(width, "bytes"), *more)


def _whole_bytes(setting: TrainingSetup) -> float:
    """Return the bytes per gathered weight."""
    return frozen_weight_bytes(setting.train) if setting.train.lora else float(compute_dtype_bytes(setting.train))


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
    return buffer(what, _padded(setting, unit), f"weights of a {unit.name}", _whole_bytes(setting), *more)


def _reduced(setting: TrainingSetup, unit: Unit) -> Term:
    """Return the gradients of a unit in reduction: as computed, and in the buffer that is sent."""
    train, padded = setting.train, _padded(setting, unit)
    if train.lora or not unit.elements:
        return buffer("gradients in reduction", unit.elements, "gradients", 0.0)
    sent = compute_dtype_bytes(train) + bytes_per_parameter(train).grad * padded / unit.elements
    return buffer("gradients in reduction", unit.elements, f"gradients of a {unit.name}", sent)


def _root_units(setting: TrainingSetup, name: str) -> list[Unit]:
    """Return the root, or the unit of that name if the root has none: a tied head is the embedding."""
    names = (ROOT, name, EMBEDDING) if setting.model.tied else (ROOT, name)
    return [unit for unit in units_of(setting) if unit.name in names]


def _root(setting: TrainingSetup, name: str) -> Terms:
    """Return the weights of the root, gathered, or of embedding or head if they are units of their own."""
    width = compute_dtype_bytes(setting.train)
    return tuple(
        buffer(f"{unit.name}, gathered", unit.elements, "weights", width) for unit in _root_units(setting, name)
    )


def _fsdp(setting: TrainingSetup) -> Terms:
    """Return the units of FSDP in the backward pass: one in use, one prefetched, gradients in reduction, the root."""
    strategy, unit = setting.layout, _largest_unit(setting)
    root = () if strategy.own_table_units else _root(setting, HEAD)
    gathered = (*root, _gathered("block in use", setting), _gathered("next block", setting))
    found = (*_kept_units(setting, gathered, freed=1), _reduced(setting, unit))
    if not strategy.cpu_offload:
        return found
    staged = buffer("shards in transfer", unit.elements, "weights", _whole_bytes(setting), Factor(2, "blocks"))
    return (*found, staged.times(*ranks(setting.gpus)))


def _kept_units(setting: TrainingSetup, gathered: Terms, freed: int = 0) -> Terms:
    """Return ``gathered``, or all weights but ``freed`` blocks if they stay gathered, or with larger shards."""
    strategy = setting.layout
    units = units_of(setting)
    if strategy.sharding == "SHARD_GRAD_OP" or strategy.reshard_after_forward is False:
        elements = sum(unit.repeats * _padded(setting, unit) for unit in units)
        elements -= freed * _padded(setting, _largest_unit(setting))
        every = buffer("weights that stay gathered", elements, "weights", _whole_bytes(setting))
        return (every,) if every.bytes > total_bytes(gathered) else gathered
    size = int(strategy.reshard_after_forward or 1)
    if size == 1:
        return gathered
    larger = buffer("larger shards, after the forward pass", setting.model.params, "weights", _whole_bytes(setting))
    return (*gathered, larger.times(*ranks(size)))


def reduce_bucket_terms(setting: TrainingSetup) -> Terms:
    """Return the buckets in which DeepSpeed reduces gradients, of their full size however few weights are trained.

    Stage 3 allocates its bucket once, 1 and 2 theirs for each backward pass: two if one is filled while the other is
    sent, which the examples of DeepSpeed and transformers enable (``setup_buckets``).
    """
    strategy = setting.layout
    bucket = buffer("reduce bucket", strategy.reduce_bucket_size or DEEPSPEED_BUCKET, "values", 2)
    twice = strategy.stage != 3 and strategy.overlap_comm is not False
    return (bucket.times(Factor(2, "buffers")) if twice else bucket,)


def _deepspeed(setting: TrainingSetup) -> Terms:
    """Return the buckets of DeepSpeed, and of stage 3 the modules that are gathered.

    It gathers modules without children one by one, ahead until the limit of live elements is reached, and one at the
    limit; those of one call are copied out of their buffer (``PartitionedParameterCoordinator.fetch_sub_module`` and
    ``AllGatherCoalescedHandle``).
    """
    model, weight = setting.model, _whole_bytes(setting)
    buckets = reduce_bucket_terms(setting)
    if setting.layout.stage != 3:
        return buckets
    largest = max(each.elements / each.copies for unit in units_of(setting) for each in unit.parameters)
    live = model.params if is_persistent(setting) else min(DEEPSPEED_LIVE + largest, model.params)
    return (
        buffer("gathered modules", live, "weights", weight),
        buffer("buffer of those prefetched", DEEPSPEED_PREFETCH, "weights", weight),
        *buckets,
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
