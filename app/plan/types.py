"""What a plan is made from and what it says: a model, how it is trained, a strategy, a box; a candidate with its peaks.

Field names and values are those of ``ddpwizard plan --spec``. None: not said; ``spec.complete`` fills in the usual
default and tells it.
"""

from typing import Literal, NamedTuple

import msgspec

Dtype = Literal[
    "fp32", "bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure", "bf16-deepspeed", "fp16-deepspeed", "bf16", "fp16"
]
Checkpointing = Literal["none", "full", "selective-op", "selective-layer"]
Kind = Literal["single", "ddp", "zero-optimizer", "fsdp1", "fsdp2", "hsdp", "deepspeed", "fairscale-sharded-ddp"]
Offload = Literal["cpu", "nvme"]
Binding = Literal["", "GPU memory", "link", "host memory", "host link", "NVMe", "arithmetic"]


class BlockLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the block of a family is written, as far as its backward pass needs other tensors for it."""

    norm: Literal["layer", "rms", "rms-t5", "rms-fp32", "layer-fp32"] = "rms"  # what it makes on its way
    norms: int = 2  # tensors of the hidden size that go into norms
    products: int = 2  # of those that matrix products take, one for attention and one for the feed-forward part
    others: int = 0  # more tensors of the hidden size: what is scaled, gated, or cast for a router
    normed_heads: bool = False  # queries and keys have norms of their own
    latent: int = 0  # normed elements per token between two products that stand for one
    value_share: float = 1.0  # size of a head's values over that of its keys
    joint: bool = False  # queries, keys and values are one product, of which values stay a view
    copied: bool = False  # what fused attention gives is copied, as its queries are put together of parts
    inner: int = 0  # more tensors of the feed-forward width, for the activation function
    inner_fp32: bool = False  # which autocast computes in fp32
    wide_softmax: bool = False  # eager attention has its softmax in fp32
    capped: bool = False  # and its scores go through a tanh
    drops_scores: bool = True  # and dropout, where there is any
    fused: bool = True  # transformers has it with fused attention


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A transformer by its shape. ``params``: all of them; the other numbers as in a Hugging Face config."""

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
    largest_layer: float | None = None  # parameters of the largest layer, where only that is known
    note: str = ""
    kind: Literal["decoder", "encoder", "encoder-decoder", "vision"] | None = None
    head_dim: int | None = None  # where it is another than hidden / heads
    experts: int | None = None  # of a layer
    experts_per_token: int | None = None
    active_params: float | None = None  # what one token passes through, where experts share the work
    positions: int | None = None  # tokens of a sample, where the model fixes them: a picture's
    max_positions: int | None = None  # tokens of the longest sequence that it is made for
    block: str = ""  # class of the layer that it repeats; several with a comma between them
    layout: BlockLayout | None = None
    decoder_layers: int | None = None  # of the layers of an encoder-decoder; half of them where not said
    tower: "Model | None" = None  # what sees the pictures; its parameters are among those of the whole


class Lora(msgspec.Struct, frozen=True, kw_only=True):
    """Low-rank adapters of rank ``r`` on the linear layers that ``target`` names."""

    r: int = 8  # as PEFT has it
    target: str | None = None
    alpha: float | None = None


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How it is trained; per GPU where that makes a difference."""

    dtype: Dtype | None = None
    optimizer: Literal["adamw", "adam", "adamw-8bit", "adafactor", "muon", "sgd", "lion"] | None = None
    optimizer_impl: Literal["fused", "foreach"] | None = None
    optimizer_state_dtype: Literal["fp32", "bf16"] | None = None
    master_dtype: Literal["fp32", "bf16"] | None = None
    optimizer_in_bwd: bool = False
    micro_batch: int | None = None
    seq_len: int | None = None
    grad_accum: int | None = None
    target_len: int | None = None  # tokens that a decoder beside an encoder writes
    images: int | None = None  # pictures of a sequence, where the model has a tower for them
    act_ckpt: Checkpointing | None = None
    act_offload: bool = False
    attention: Literal["flash", "eager"] | None = None
    loss: Literal["eager", "compiled", "chunked", "fused-linear"] | None = None
    compile: bool = False
    dropout: float | None = None
    lora: Lora | None = None
    quant: Literal["nf4", "nf4-dq", "gptq-int4"] | None = None
    alloc: str | None = None  # "expandable_segments": set in PYTORCH_ALLOC_CONF
    packed: bool = False  # sequences are put together to the full length
    data: str | None = None  # "fixed length", where every sequence has the full length
    frozen: float | None = None  # share of the weights that is not trained, 0 to under 1


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """How the states are laid out over the GPUs."""

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
    sync_each_batch: bool | None = None  # FSDP: gradients are split in each micro-batch that is accumulated
    gradient_as_bucket_view: bool = False

    @property
    def replicates(self) -> bool:
        """Whether it is DDP, whose buckets are made with it and stay."""
        return self.kind in ("ddp", "zero-optimizer")

    @property
    def is_fsdp(self) -> bool:
        """Whether it is FSDP of any kind."""
        return self.kind == "fsdp1" or self.is_fully_shard

    @property
    def is_fully_shard(self) -> bool:
        """Whether it is ``fully_shard`` (FSDP2), over one mesh or two."""
        return self.kind in ("fsdp2", "hsdp")

    @property
    def steps_on_host(self) -> bool:
        """Whether the optimizer's states are not on the GPU."""
        return bool(self.cpu_offload or self.offload_optimizer)

    @property
    def offloads(self) -> bool:
        """Whether a part of it is kept on the host or on a drive."""
        return self.steps_on_host or bool(self.offload_param)


class TrainingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the planner. ``gpus``: all, over ``nodes``; ``gpu_memory_gib``: what a program can use of one."""

    model: Model
    train: TrainingOptions = TrainingOptions()
    gpus: int
    nodes: int = 1
    strategy: Strategy | None = None
    gpu: str | None = None
    gpu_memory_gib: float | None = None

    @property
    def layout(self) -> Strategy:
        """Its strategy; one GPU with everything where none is named."""
        return self.strategy or Strategy(kind="single")


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """What is in memory at the peak, bytes per GPU."""

    params: float
    grads: float
    optimizer: float
    activations: float
    loss: float
    buffers: float  # what communication and gathered weights need
    temporaries: float  # what the optimizer step needs for itself
    context: float  # CUDA, cuBLAS, NCCL: outside of what PyTorch allocates
    gaps: float = 0.0  # what PyTorch's allocator holds besides; with them the parts add up to what is used of the GPU


class Band(msgspec.Struct, frozen=True):
    """Between which figures the reserved peak is expected, bytes."""

    low: float
    high: float


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one change to a candidate would buy: the same question asked again with it."""

    change: str
    gpu_bytes: float  # more than now in use on the GPU; less is negative
    fits: bool | Literal["tight"] | None
    step_seconds: float | None = None  # more than now
    tokens_per_s: float | None = None  # with it, over all GPUs


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy with its figures; bytes per GPU unless named otherwise. ``fits``: None where it is not known."""

    strategy: str
    fits: bool | Literal["tight"] | None
    in_practice: bool = True  # not where a step takes 100 times the ideal and more
    model_state_bytes_per_gpu: float
    peak_allocated_bytes_per_gpu: float
    peak_reserved_bytes_per_gpu: float
    device_used_bytes_per_gpu: float
    band: Band
    peak_phase: Literal["loss", "backward", "step"]
    breakdown: Breakdown
    host_bytes: float
    recompute: Checkpointing = "none"
    largest_micro_batch: int | None = None  # sequences per GPU that surely fit
    comm_bytes_per_step: float | None = None
    exposed_comm_seconds: float | None = None
    step_seconds: float | None = None
    tokens_per_s: float | None = None  # over all GPUs
    slower_than_ideal: float | None = None  # 0.41: 41 % longer than the arithmetic alone, each once, without a wait
    mfu: float | None = None  # share of the peak rate that the model's arithmetic, each once, makes use of
    binds: Binding = ""
    dominated_by: str = ""  # one of its family that is as fast, needs as little, and less of one of both
    why: str = ""
    lever: str = ""
    changes: list[WhatIfResult] = []
    files: list[str] = []

    @property
    def full_name(self) -> str:
        """The strategy with what it computes twice."""
        return self.strategy + {"none": "", "full": ", recomputing"}.get(self.recompute, ", recomputing in part")


class PlanRow(NamedTuple):
    """A candidate and the complete setting it was computed from."""

    candidate: Candidate
    setting: TrainingSetup
