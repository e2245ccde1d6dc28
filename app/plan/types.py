"""Types of a plan: model, training options, strategy, setting, and candidates with their figures.

Field names and values are those of ``ddpwizard plan --spec``. None means not given; ``spec.fill_defaults`` fills in the
default and returns a line for it.
"""

import re
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

Dtype = Literal[
    "fp32", "bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure", "bf16-deepspeed", "fp16-deepspeed", "bf16", "fp16"
]
Checkpointing = Literal["none", "full", "selective-op", "selective-layer"]
Kind = Literal["single", "ddp", "zero-optimizer", "fsdp1", "fsdp2", "hsdp", "deepspeed"]
Optimizer = Literal["adamw", "adam", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd", "lion"]
Offload = Literal["cpu", "nvme"]
Binding = Literal["", "GPU memory", "link", "host memory", "host link", "NVMe", "arithmetic"]


class BlockLayout(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Implementation of the block of a model family, which determines the tensors saved for its backward pass."""

    norm: Literal["layer", "rms", "rms-t5", "rms-fp32", "layer-fp32"] = "rms"  # by the tensors that it saves
    norms: int = 2  # tensors of the hidden size that are inputs of norms
    products: int = 2  # such tensors that matrix products take: one for attention, one for the feed-forward part
    others: int = 0  # further tensors of the hidden size: scaled, gated, or cast for a router
    normed_heads: bool = False  # queries and keys have separate norms
    latent: int = 0  # normed elements per token between two products that replace one
    value_share: float = 1.0  # size of a head's values over that of its keys
    joint: bool = False  # queries, keys and values are one product, and values are a view of it
    copied: bool = False  # the output of fused attention is copied, as its queries consist of parts
    inner: int = 0  # further tensors of the feed-forward width, for the activation function
    inner_fp32: bool = False  # these are computed in fp32 under autocast
    wide_softmax: bool = False  # eager attention has its softmax in fp32
    capped: bool = False  # its scores go through a tanh
    drops_scores: bool = True  # dropout applies to attention scores
    math_groups: bool = False  # fused attention gets keys of fewer heads, for which PyTorch has no kernel
    fused: bool = True  # transformers implements it with fused attention


class Model(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Shape of a transformer. ``params`` counts all parameters; other numbers are as in a Hugging Face config."""

    params: float
    name: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    intermediate: int | None = None
    vocab: int | None = None
    tied: bool = False
    mlp: Literal["swiglu", "geglu", "gated-gelu", "gelu", "relu"] | None = None
    largest_layer: float | None = None  # parameters of the largest layer, if only that is known
    note: str = ""
    kind: Literal["decoder", "encoder", "encoder-decoder", "vision"] | None = None
    head_dim: int | None = None  # if it is not hidden / heads
    experts: int | None = None  # per layer
    experts_per_token: int | None = None
    expert_layers: int | None = None  # layers with experts; all if None
    active_params: float | None = None  # parameters that a token passes through, of a mixture of experts
    positions: int | None = None  # tokens of a sample, if the model fixes them, as for a picture
    max_positions: int | None = None  # longest sequence that it is made for, in tokens
    block: str = ""  # class of the repeated layer; several are separated by commas
    layout: BlockLayout | None = None
    decoder_layers: int | None = None  # of the layers of an encoder-decoder; half of them if None
    tower: "Model | None" = None  # vision tower; its parameters are included in params


class Lora(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Low-rank adapters of rank ``r`` on the linear layers that ``target`` names."""

    r: int = 8  # as in PEFT
    target: str | None = None
    alpha: float | None = None
    dropout: float | None = None  # before the adapters; None counts its masks, 0 does not


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Training options; sizes are per GPU."""

    dtype: Dtype | None = None
    optimizer: Optimizer | None = None
    optimizer_impl: Literal["fused", "foreach"] | None = None
    optimizer_state_dtype: Literal["fp32", "bf16"] | None = None
    master_dtype: Literal["fp32", "bf16"] | None = None
    optimizer_in_bwd: bool = False
    micro_batch: int | None = None
    seq_len: int | None = None
    grad_accum: int | None = None
    global_batch: int | None = None  # sequences of an optimizer step over all GPUs, in a specification
    target_len: int | None = None  # tokens of the decoder of an encoder-decoder
    images: int | None = None  # pictures per sequence, if the model has a vision tower
    act_ckpt: Checkpointing | None = None
    reentrant: bool = False  # full recomputation with use_reentrant=True, the default of transformers before 5
    act_offload: bool = False
    attention: Literal["flash", "eager"] | None = None
    loss: Literal["eager", "compiled", "chunked", "fused-linear"] | None = None
    torch: str | None = None  # version, if it is not a recent one
    keeps_logits: bool = True  # the output of the model is alive in the backward pass, as in most loops
    compile: bool = False
    fp8: bool = False  # the products of blocks, with weights and gradients as before (torchao's float8 training)
    dropout: float | None = None
    lora: Lora | None = None
    quant: Literal["nf4", "nf4-dq", "gptq-int4"] | None = None
    upcast_frozen: bool | None = None  # weights that are not in 4 bit are in fp32; None: as PEFT's usual recipe
    alloc: str | None = None  # "expandable_segments", as in PYTORCH_ALLOC_CONF
    reference_model: bool = False  # a frozen copy computes the same sequences (DPO, or the KL term of RL)
    packed: bool = False  # sequences are packed to the full length
    data: str | None = None  # "fixed length" if every sequence has the full length
    frozen: float | None = None  # share of the weights that is not trained, in [0, 1)

    def precedes_torch(self, *version: int) -> bool:
        """Return whether a version of torch is given and older than ``version``."""
        return bool(self.torch) and tuple(int(part) for part in re.findall(r"\d+", self.torch or "")[:2]) < version


# The words that a training option takes, by its name.
CHOICES = {
    name: tuple(word for each in get_args(hint) for word in get_args(each))
    for name, hint in get_type_hints(TrainingOptions).items()
}


class Strategy(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Layout of the model states over the GPUs."""

    kind: Kind
    sharding: Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"] | None = None
    reshard_after_forward: bool | int | None = None
    shard_size: int | None = None  # hsdp: ranks that share one copy
    stage: Literal[0, 1, 2, 3] | None = None
    offload_optimizer: Offload | None = None
    offload_param: Offload | None = None
    cpu_offload: bool = False
    reduce_bucket_size: float | None = None
    allgather_bucket_size: float | None = None
    overlap_comm: bool | None = None
    sync_each_batch: bool | None = None  # FSDP: gradients are reduced in each accumulated micro-batch
    gradient_as_bucket_view: bool = False
    own_table_units: bool = False  # fully_shard: embedding and output head are wrapped separately
    experts_by_columns: bool = False  # fully_shard: experts are split over their second dimension (shard_placement_fn)
    tensor: int | None = None  # ranks that split each layer (tensor parallelism), within a node
    pipeline: int | None = None  # stages
    context: int | None = None  # ranks that split each sequence; they shard the weights like others
    expert: int | None = None  # ranks that split the experts of a layer
    is_share: bool = False  # the setting is the share of one rank already
    meta_init: bool | None = None  # built on the meta device, so no rank holds the whole model on its host

    @property
    def shards_weights(self) -> bool:
        """True if no GPU holds all weights."""
        return self.stage == 3 or (self.is_fsdp and self.sharding != "NO_SHARD")

    @property
    def splits_model(self) -> bool:
        """True if ranks compute different parts of the model or of a sequence, and the setting is not yet a share."""
        return not self.is_share and max(self.splits.values()) > 1

    @property
    def splits(self) -> dict[str, int]:
        """Return the number of ranks by what is split over them: each layer, the layers, a sequence, the experts."""
        return {name: getattr(self, name) or 1 for name in ("tensor", "pipeline", "context", "expert")}

    @property
    def replicates(self) -> bool:
        """True for DDP, whose buckets are allocated at its creation and kept."""
        return self.kind in ("ddp", "zero-optimizer")

    @property
    def is_fsdp(self) -> bool:
        """True for FSDP of any kind."""
        return self.kind == "fsdp1" or self.is_fully_shard

    @property
    def is_fully_shard(self) -> bool:
        """True for ``fully_shard`` (FSDP2), on a mesh of one or two dimensions."""
        return self.kind in ("fsdp2", "hsdp")

    @property
    def steps_on_host(self) -> bool:
        """True if the optimizer states are not on the GPU."""
        return bool(self.cpu_offload or self.offload_optimizer)

    @property
    def offloads(self) -> bool:
        """True if a part of the states is on the host or on a drive."""
        return self.steps_on_host or bool(self.offload_param)


class TrainingSetup(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Everything that a candidate is computed from; ``gpus`` is the number over all ``nodes``."""

    model: Model
    train: TrainingOptions = TrainingOptions()
    gpus: int
    nodes: int = 1
    strategy: Strategy | None = None
    gpu: str | None = None
    gpu_memory_gib: float | None = None

    @property
    def layout(self) -> Strategy:
        """Return the strategy; if None, that of a single GPU."""
        return self.strategy or Strategy(kind="single")

    def with_train(self, **changes: Any) -> "TrainingSetup":
        """Return the setting with other training options."""
        return msgspec.structs.replace(self, train=msgspec.structs.replace(self.train, **changes))

    def with_layout(self, **changes: Any) -> "TrainingSetup":
        """Return the setting with another layout of the states."""
        return msgspec.structs.replace(self, strategy=msgspec.structs.replace(self.layout, **changes))


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at the peak by part, bytes per GPU."""

    params: float
    grads: float
    optimizer: float
    activations: float
    loss: float
    buffers: float  # of communication, and gathered weights
    temporaries: float  # of the optimizer step
    context: float  # CUDA, cuBLAS and NCCL, not allocated by PyTorch
    gaps: float = 0.0  # of PyTorch's allocator; with them the parts add up to the memory used on the GPU


class Band(msgspec.Struct, frozen=True):
    """Expected range of the reserved peak, bytes."""

    low: float
    high: float


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of one change to a candidate, which is evaluated again with it."""

    change: str
    gpu_bytes: float  # difference of the memory used on the GPU
    fits: bool | Literal["tight"] | None
    step_seconds: float  # difference of the step time
    tokens_per_s: float  # with the change, over all GPUs


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy with its figures, bytes per GPU unless named otherwise; ``fits`` is None if it is not known."""

    strategy: str
    fits: bool | Literal["tight"] | None
    is_tracked: bool = False  # memory and verdict are those that torch's trackers saw
    in_practice: bool = True  # False if a step takes 20 times the ideal or more
    model_state_bytes_per_gpu: float
    peak_allocated_bytes_per_gpu: float
    peak_reserved_bytes_per_gpu: float
    device_used_bytes_per_gpu: float
    band: Band
    peak_phase: Literal["loss", "backward", "step"]
    breakdown: Breakdown
    host_bytes: float
    loading_host_bytes: float = 0.0  # of each rank while it builds and loads the model
    recompute: Checkpointing = "none"
    micro_batch: int = 1  # sequences per GPU, or per group of those that split the model
    grad_accum: int = 1
    largest_micro_batch: int | None = None  # sequences per GPU that fit with room
    comm_bytes_per_step: float = 0.0
    exposed_comm_seconds: float = 0.0
    step_seconds: float = 0.0
    tokens_per_s: float = 0.0  # over all GPUs
    slower_than_ideal: float = 0.0  # 0.41: 41 % longer than compute only
    mfu: float = 0.0  # model FLOPS utilization: share of the peak rate
    binds: Binding = ""
    dominated_by: str = ""  # strategy of its family that is no worse in time and memory
    why: str = ""
    why_not: str = ""  # why it is not the first choice
    without_files: str = ""  # what the job files cannot split
    lever: str = ""
    changes: list[WhatIfResult] = []
    files: list[str] = []

    @property
    def works(self) -> bool:
        """True if it fits, or its memory is not known, and its steps are short enough."""
        return self.fits is not False and self.in_practice

    @property
    def full_name(self) -> str:
        """Return the name of the strategy with its recomputation."""
        return self.strategy + {"none": "", "full": ", recomputing"}.get(self.recompute, ", recomputing in part")


class PlanRow(NamedTuple):
    """A candidate and the complete setting that it was computed from."""

    candidate: Candidate
    setting: TrainingSetup
