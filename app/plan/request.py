"""What is asked of the planner, put together from the options of the command line or from a specification."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from ..hardware import gpu_catalog
from ..hardware.machine import Machine
from . import model_source, spec, train_options
from .machine import resolve
from .model.parameter_counts import is_encoder_decoder
from .timing.communication import Links
from .types import Checkpointing, Model, TrainingOptions, TrainingSetup

SEQ_LEN_PAIRS = 512  # of encoder-decoders, as T5 was trained (arXiv 1910.10683)
# What a specification says itself.
IN_SPEC = (
    *("model", "config", "checkpoint", *model_source.SHAPE, "gpus", "nodes", "gpu", "gpu_memory", "machine", "box"),
    *(*train_options.AS_THEY_ARE, "lora", "lora_target", "frozen", "global_batch"),
)


class PlanRequest(NamedTuple):
    """A complete setting and what its plan depends on besides. ``recompute``: the only activation checkpointing to try,
    None for all; ``factory`` and ``config``: what builds the module itself, empty where nothing does."""

    setting: TrainingSetup
    links: Links
    assumed: list[str]
    host_bytes: float | None = None
    nvme_bytes: float | None = None
    recompute: Checkpointing | None = None
    factory: str = ""
    config: str = ""
    directory: Path = Path()


def request_from_options(
    given: Mapping[str, Any],
    python: Callable[[], str],
    look: Callable[[], Machine],
    tell: Callable[[str], None],
) -> PlanRequest:
    """The question of the options. ``look`` sees the box that is here.

    Raises:
        UserError: An option makes no sense, or does not go with another.
        CouldNotLook: The user's own code did not answer.
    """
    found = model_source.resolve_model(given, python, tell)
    place = resolve.resolve_machine(given, look)
    train, of_batch = train_options.train_from_options(given, found.model, place.gpus, found.frozen)
    train, of_kind = _usual(train, found.model, place.gpu)
    setting = TrainingSetup(
        model=found.model,
        train=train,
        gpus=place.gpus,
        nodes=place.nodes,
        gpu=place.gpu,
        gpu_memory_gib=place.gpu_memory_gib,
    )
    spec.check_setting(setting)
    whole, defaults = spec.fill_defaults(setting)
    whole, of_length = _positions(whole, train)
    if of_length:
        defaults = [line for line in defaults if not line.startswith("seq_len:")]
    assumed = [
        *found.told,
        *place.notes,
        *of_batch,
        *of_kind,
        *_told(defaults, train.act_ckpt),
        *of_length,
        *_without_effect(given, whole),
        *_rate(whole, place.links),
    ]
    return PlanRequest(
        whole,
        place.links,
        assumed,
        place.host_bytes,
        place.nvme_bytes,
        train.act_ckpt,
        found.factory,
        found.config,
        found.directory,
    )


def request_from_spec(text: bytes, given: Mapping[str, Any]) -> PlanRequest:
    """The question of a specification; beside it only links and the host's memory are said as options.

    Raises:
        UserError: It is none, or an option says what belongs into it.
    """
    beside = [name for name in IN_SPEC if train_options.was_given(given, name)]
    if beside:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in beside)
        raise UserError(f"{names} beside --spec", "say it in the specification")
    setting = spec.parse_spec(text)
    told = [f"that {name} means nothing: it is no key of a specification" for name in spec.unknown_keys(text)]
    place = resolve.machine_of_spec(setting, given)
    act_ckpt = setting.train.act_ckpt
    if setting.gpu and setting.gpu_memory_gib is None:
        setting = msgspec.structs.replace(setting, gpu_memory_gib=resolve.resolve_gpu_name(setting.gpu).memory_gib)
    whole, defaults = spec.fill_defaults(setting)
    recompute = act_ckpt if setting.strategy is None else None
    if setting.strategy is None:
        defaults = _told(defaults, act_ckpt)
    assumed = [*told, *place.notes, *defaults, *_rate(whole, place.links)]
    return PlanRequest(whole, place.links, assumed, place.host_bytes, recompute=recompute)


def _usual(train: TrainingOptions, model: Model, gpu: str | None) -> tuple[TrainingOptions, list[str]]:
    """What a person means who says nothing of it, where the default of a specification, which is that of published
    measurements, is another; a line for each."""
    told: list[str] = []
    if train.dtype is None and not gpu_catalog.has_bf16(gpu):
        train = msgspec.structs.replace(train, dtype="fp16")
        told.append(f"dtype: fp16, as {gpu} has no units for bf16")
    elif (train.dtype or "").startswith("bf16") and not gpu_catalog.has_bf16(gpu):
        told.append(f"rate of bf16: that of fp16, though {gpu} has no units for bf16 and is slower")
    if train.seq_len is None and is_encoder_decoder(model):
        train = msgspec.structs.replace(train, seq_len=SEQ_LEN_PAIRS)
        told.append(f"seq_len: {SEQ_LEN_PAIRS}")
    return train, told


def _positions(setting: TrainingSetup, given: TrainingOptions) -> tuple[TrainingSetup, list[str]]:
    """A complete setting whose sequences are no longer than the model is made for, unless that was said."""
    model, length = setting.model, setting.train.seq_len or 0
    most = model.positions if model.kind == "vision" else model.max_positions
    if most is None or length <= most:
        return setting, []
    if given.seq_len is not None:
        return setting, [f"that {length} tokens can be trained, though the model has {most} positions"]
    train = msgspec.structs.replace(setting.train, seq_len=most)
    return msgspec.structs.replace(setting, train=train), [f"seq_len: {most}, all positions that the model has"]


def _without_effect(given: Mapping[str, Any], setting: TrainingSetup) -> list[str]:
    """Options that were said and change nothing here."""
    optimizer, model = setting.train.optimizer, setting.model
    idle = {
        "--images": (given.get("images") is not None and not model.tower, "the model sees no pictures"),
        "--target-len": (
            given.get("target_len") is not None and not is_encoder_decoder(model),
            "the model has no decoder beside an encoder",
        ),
        "--intra-gbps": (
            given.get("intra_gbps") is not None and setting.gpus == setting.nodes,
            "each node has one GPU",
        ),
        "--inter-gbps": (given.get("inter_gbps") is not None and setting.nodes == 1, "there is one node"),
        "--optimizer-impl": (
            given.get("optimizer_impl") is not None and optimizer not in spec.STEPS_EITHER_WAY,
            f"{optimizer} steps in one way here",
        ),
    }
    return [f"that {option} changes nothing: {why}" for option, (is_idle, why) in idle.items() if is_idle]


def _told(defaults: list[str], act_ckpt: str | None) -> list[str]:
    """Without a word on checkpointing several are tried, so none is assumed."""
    return defaults if act_ckpt else [line for line in defaults if not line.startswith("act_ckpt:")]


def _rate(setting: TrainingSetup, links: Links) -> list[str]:
    """The rate that times are estimated with."""
    if links.matmul_tflops:
        return [f"GPU rate: {links.matmul_tflops:g} TFLOP/s, as given"]
    gpu = gpu_catalog.find_gpu(setting.gpu, setting.gpu_memory_gib)
    guessed = "" if gpu else f", a guess: {f'{setting.gpu} is not known' if setting.gpu else 'no GPU is named'}"
    return [f"GPU rate: {gpu.tflops if gpu else gpu_catalog.TFLOPS:g} TFLOP/s in 16 bit{guessed}"]
