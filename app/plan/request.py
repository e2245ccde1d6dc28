"""Resolve what is asked of the planner to one complete request.

The command line, a specification file and the planner's form give a mapping of values; ``resolve_request`` alone
decides on the model, the machine, the defaults and the assumptions.

The keys of the mapping are the names of the options of ``ddpwizard plan``; a key that is missing or None is not given.
Four keys have no option: ``train`` (``TrainingOptions`` that are set already), ``strategy``, ``gpu_memory_gib`` and
``more_gpus``; ``model`` may be a ``Model``, and ``snapshot`` is a machine snapshot in memory.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from ..hardware import gpu_catalog, server_catalog
from ..hardware.machine import Machine
from . import model_source, spec
from .machine import resolve_machine
from .model.parameter_counts import is_encoder_decoder
from .model_source import BuildModel, ModelSource
from .rank_share import check_split
from .timing.communication import Links
from .train_options import leaves_micro_batch_open, train_from_values, was_given
from .types import Checkpointing, Model, TrainingOptions, TrainingSetup

SEQ_LEN_PAIRS = 512  # of encoder-decoders, as T5 was trained (arXiv 1910.10683)
NEXT_TO_SPEC = ("host_memory", "intra_gbps", "inter_gbps", "script")  # options that a specification has no keys for


class PlanRequest(NamedTuple):
    """A complete setting, and everything else its plan depends on.

    ``recompute`` is the only kind of activation checkpointing to try, None for all kinds; ``chooses_micro_batch``: each
    strategy divides the batch in its own way. ``per_node`` is the number of GPUs of a full node; ``more_gpus`` GPUs are
    added for the question what more of them would give, over ``scaled_links``, the links between full nodes.
    """

    setting: TrainingSetup
    links: Links
    assumed: list[str]
    source: ModelSource
    per_node: int
    more_gpus: int
    scaled_links: Links
    host_bytes: float | None = None
    nvme_bytes: float | None = None
    recompute: Checkpointing | None = None
    chooses_micro_batch: bool = False
    global_batch: int | None = None


def option_name(name: str) -> str:
    """Return the option of the command line for a given value."""
    return f"--{name.replace('_', '-')}"


def request_from_spec(text: bytes, options: Mapping[str, Any]) -> PlanRequest:
    """Read a request from a specification file; only links and host memory may be given as options in addition.

    Raises:
        UserError: The text is no specification, or an option sets what belongs in it.
    """
    repeated = [option_name(name) for name in options if name not in NEXT_TO_SPEC and was_given(options, name)]
    if repeated:
        raise UserError(f"{', '.join(repeated)} cannot be combined with --spec", "set it in the specification")
    setting = spec.parse_spec(text)
    given = {name: options.get(name) for name in NEXT_TO_SPEC} | {
        "model": setting.model,
        "train": setting.train,
        "strategy": setting.strategy,
        "gpus": setting.gpus,
        "nodes": msgspec.json.decode(text).get("nodes") and setting.nodes,
        "gpu": setting.gpu,
        "gpu_memory_gib": setting.gpu_memory_gib,
        "global_batch": setting.train.global_batch,
        "micro_batch": setting.train.micro_batch,
        "grad_accum": setting.train.grad_accum,
    }

    def spec_key(name: str) -> str:
        return f"train.{name}" if name in TrainingOptions.__struct_fields__ else option_name(name)

    found = resolve_request(given, already_named, already_named, spec_key)
    unknown = [f"{name} has no effect: it is no key of a specification" for name in spec.unknown_keys(text)]
    return found._replace(assumed=[*unknown, *found.assumed])


def resolve_request(
    given: Mapping[str, Any],
    build: BuildModel,
    detect: Callable[[], Machine],
    name_of: Callable[[str], str] = option_name,
) -> PlanRequest:
    """Resolve given values to a request.

    ``build`` is called to build a model with the user's own code, ``detect`` to inspect this machine if no GPUs are
    given; ``name_of``: what the reader calls a value in its input, for messages.

    Raises:
        UserError: A value makes no sense, or contradicts another.
        InspectionError: The child that builds the user's own model gave no answer.
    """
    source = model_source.resolve_model(given, build)
    machine = resolve_machine(given, detect)
    train, batch_notes = train_from_values(given, source.model, machine.gpus, source.frozen)
    train = train if source.keeps_logits else msgspec.structs.replace(train, keeps_logits=False)
    stated = train
    compares = given.get("strategy") is None
    train, kind_notes = _fit_to_machine(train, source.model, machine.gpu, compares)
    setting = TrainingSetup(
        model=source.model,
        train=train,
        gpus=machine.gpus,
        nodes=machine.nodes,
        strategy=given.get("strategy"),
        gpu=machine.gpu,
        gpu_memory_gib=machine.gpu_memory_gib,
    )
    spec.check_setting(setting)
    check_split(setting)
    whole, defaults = spec.fill_defaults(setting)
    whole, length_notes = _fit_to_positions(whole, train)
    replaced = ("seq_len:",) if length_notes else ()
    if compares and train.act_ckpt is None:
        replaced += ("act_ckpt:",)
    per_node = max(1, whole.gpus // whole.nodes) if whole.nodes > 1 else max(machine.full_node_gpus, whole.gpus)
    scaled_links = machine.links
    if given.get("inter_gbps") is None and not given.get("machine"):  # fewer GPUs of a node have a share of its network
        network = server_catalog.assume_network(whole.gpu, whole.gpu_memory_gib, per_node)
        scaled_links = scaled_links._replace(inter_gbps=network.gbps)
    return PlanRequest(
        setting=whole,
        links=machine.links,
        assumed=[
            *source.notes,
            *machine.notes,
            *batch_notes,
            *kind_notes,
            *(line for line in defaults if not line.startswith(replaced)),
            *length_notes,
            *_without_effect(given, stated, whole, name_of),
            *_rate(whole, machine.links),
        ],
        source=source,
        per_node=per_node,
        more_gpus=given.get("more_gpus") or nearest_full_nodes(whole.gpus, per_node, whole.gpus),
        scaled_links=scaled_links,
        host_bytes=machine.host_bytes,
        nvme_bytes=machine.nvme_bytes,
        recompute=train.act_ckpt if compares else None,
        chooses_micro_batch=leaves_micro_batch_open(given),
        global_batch=given.get("global_batch"),
    )


def already_named(*_: object) -> Any:
    """Take the place of building or detecting: a specification has its model and its GPUs, the form its GPUs."""
    raise AssertionError("the model and the GPUs are named")


def nearest_full_nodes(gpus: int, per_node: int, more: int, up: bool = True) -> int:
    """Return the additional GPUs closest to ``more``, at least 1, that leave no node partly used."""
    wanted = gpus + more
    if wanted > per_node:
        wanted = (-(-wanted // per_node) if up else wanted // per_node) * per_node
    wanted = min(wanted, max(spec.MOST // per_node * per_node, 1))
    return wanted - gpus if wanted > gpus else max(1, per_node - gpus % per_node)


def limit_warning(setting: TrainingSetup) -> str:
    """Return what the setting asks of the model or the GPU beyond its limits, or "" if nothing."""
    positions = setting.model.max_positions
    if positions and (setting.train.seq_len or 0) > positions:
        return f"made for {positions:,} tokens"
    if (setting.train.dtype or "").startswith("bf16") and not gpu_catalog.has_bf16(setting.gpu):
        return f"{setting.gpu} has no bf16"
    return ""


def _fit_to_machine(
    train: TrainingOptions, model: Model, gpu: str | None, compares: bool
) -> tuple[TrainingOptions, list[str]]:
    """Set the data type that the GPU computes in and, to compare strategies, the usual length of text pairs."""
    notes: list[str] = []
    if train.dtype is None and not gpu_catalog.has_bf16(gpu):
        train = msgspec.structs.replace(train, dtype="fp16")
        notes.append(f"dtype: fp16, as {gpu} has no units for bf16")
    elif (train.dtype or "").startswith("bf16") and not gpu_catalog.has_bf16(gpu):
        notes.append(f"rate of bf16: that of fp16, though {gpu} has no units for bf16 and is slower")
    if compares and train.seq_len is None and is_encoder_decoder(model):
        train = msgspec.structs.replace(train, seq_len=SEQ_LEN_PAIRS)
        notes.append(f"seq_len: {SEQ_LEN_PAIRS}")
    return train, notes


def _fit_to_positions(setting: TrainingSetup, given: TrainingOptions) -> tuple[TrainingSetup, list[str]]:
    """Limit a default sequence length to the positions of the model; note one that was given and is longer."""
    model, length = setting.model, setting.train.seq_len or 0
    most = model.positions if model.kind == "vision" else model.max_positions
    if most is None or length <= most:
        return setting, []
    if given.seq_len is not None:
        return setting, [f"seq_len: {length} as given, though the model has {most} positions"]
    return setting.with_train(seq_len=most), [f"seq_len: {most}, all positions that the model has"]


def _without_effect(
    given: Mapping[str, Any], stated: TrainingOptions, setting: TrainingSetup, name_of: Callable[[str], str]
) -> list[str]:
    """Return a line for each given value that has no effect on this setting."""
    optimizer, model = setting.train.optimizer, setting.model
    gpu = gpu_catalog.find_gpu(setting.gpu, setting.gpu_memory_gib)
    idle = {
        "images": (stated.images is not None and not model.tower, "the model takes no pictures"),
        "target_len": (
            stated.target_len is not None and not is_encoder_decoder(model),
            "the model is no encoder-decoder",
        ),
        "intra_gbps": (
            given.get("intra_gbps") is not None and setting.gpus == setting.nodes,
            "each node has one GPU",
        ),
        "fp8": (stated.fp8 and not (gpu and gpu.fp8_tflops), f"{setting.gpu or 'the GPU'} has no units for it"),
        "optimizer_in_bwd": (
            stated.optimizer_in_bwd and (setting.train.grad_accum or 1) > 1 and not leaves_micro_batch_open(given),
            "gradients are accumulated",
        ),
        "inter_gbps": (given.get("inter_gbps") is not None and setting.nodes == 1, "there is one node"),
        "optimizer_impl": (
            stated.optimizer_impl is not None and optimizer not in spec.STEPS_EITHER_WAY,
            f"{optimizer} has one implementation here",
        ),
    }
    return [f"{name_of(name)} has no effect: {why}" for name, (is_idle, why) in idle.items() if is_idle]


def _rate(setting: TrainingSetup, links: Links) -> list[str]:
    """Return a line with the arithmetic rate that times are estimated with."""
    if links.matmul_tflops:
        return [f"GPU rate: {links.matmul_tflops:g} TFLOP/s, as given"]
    gpu = gpu_catalog.find_gpu(setting.gpu, setting.gpu_memory_gib)
    guessed = "" if gpu else f", a guess: {f'{setting.gpu} is not known' if setting.gpu else 'no GPU is named'}"
    return [f"GPU rate: {gpu.tflops if gpu else gpu_catalog.TFLOPS:g} TFLOP/s in 16 bit{guessed}"]
