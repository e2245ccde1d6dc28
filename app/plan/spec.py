"""Specification of a plan as JSON: parse it, check it, and fill in defaults, with a line for each."""

import math
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from ..errors import UserError
from .memory.computation import lengths_vary
from .model.parameter_counts import block_layout, is_encoder_decoder, parameter_count_text
from .types import Lora, Model, Strategy, TrainingOptions, TrainingSetup

LIMIT_BYTES = 1_000_000
MIXED = {"bf16": "bf16-mixed", "fp16": "fp16-mixed"}
# Numbers that may be 0, or are checked by themselves.
ZERO_OR_CHECKED = ("images", "frozen", "dropout", "stage", "expert_layers", "reshard_after_forward")
# Default sequence lengths: long texts for decoders, short pairs of texts for T5 and similar models.
SEQ_LEN, SEQ_LEN_PAIRS, SEQ_LEN_ENCODER = 2048, 64, 512
RANK = 16  # default rank of adapters on a quantized base
MOST = 1_000_000  # GPUs, and nodes
BLOCK_WEIGHTS = 12  # of a layer, times the square of its width: four of attention, eight of the feed-forward part
FAR = 5.0  # ratio of the weights to those expected from layers and width: beyond it one looks mistyped
COUNTED, MOST_COUNTED = ("micro_batch", "seq_len", "grad_accum"), 10_000_000
STEPS_EITHER_WAY = ("adamw", "adam")  # optimizers with a foreach and a fused implementation
PER_NODE = 8  # GPUs of a common server
WHOLE = re.compile(r"([+-]?)([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(k?)", re.ASCII)
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
DROPOUT_PAIRS = 0.1  # of T5's config; transformers' T5 had no fused attention before 5.0


def parse_spec(text: bytes) -> TrainingSetup:
    """Parse a specification.

    Raises:
        UserError: It is invalid; the message names the field.
    """
    if len(text) > LIMIT_BYTES:
        raise UserError(f"the specification has {len(text)} bytes", "name a file with one JSON object of a few lines")
    try:
        setting = msgspec.convert(_stated(msgspec.json.decode(text)), type=TrainingSetup)
    except (msgspec.DecodeError, RecursionError) as error:
        taken = _taken(str(error))
        next_step = f"it is one of {', '.join(taken)}" if taken else "docs/plan.md has its keys"
        raise UserError(f"the specification is invalid: {error}", next_step) from error
    check_setting(setting)
    return setting


def _taken(problem: str) -> list[str]:
    """Return the valid words of the field that a message of msgspec names; [] if it takes no words."""
    kind: Any = TrainingSetup
    found = re.search(r"`\$\.([\w.]+)`$", problem)
    for name in found[1].split(".") if found else ():
        hints = get_type_hints(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else {}
        kind = hints.get(name)
        if type(None) in get_args(kind):
            kind = next(each for each in get_args(kind) if each is not type(None))
    return [str(word) for word in get_args(kind) if isinstance(word, str | int)]


def _stated(value: Any) -> Any:
    """Return a value without fields that are null, which count as not given, and with 8.0 as 8."""
    if isinstance(value, dict):
        return {name: _stated(each) for name, each in value.items() if each is not None}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unknown_keys(text: bytes) -> list[str]:
    """Return the keys of a specification that have no meaning; they are ignored."""
    plain = msgspec.json.decode(text)
    parts: dict[str, tuple[Any, type[msgspec.Struct]]] = {"": (plain, TrainingSetup)}
    for name, kind in (("model", Model), ("train", TrainingOptions), ("strategy", Strategy)):
        parts[f"{name}."] = (plain.get(name), kind)
    parts["train.lora."] = ((plain.get("train") or {}).get("lora"), Lora)
    return [
        f"{where}{name}"[:80]
        for where, (part, kind) in parts.items()
        for name in part or {}
        if name not in kind.__struct_fields__
    ]


def parse_count(text: str) -> float:
    """Parse a count such as ``7e9``, ``7B`` or ``350m``.

    Raises:
        ValueError: It is no number.
    """
    plain = text.strip().lower()
    value = float(plain[:-1]) * UNITS[plain[-1]] if plain[-1:] in UNITS else float(plain)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def parse_whole_number(text: str) -> int:
    """Parse a whole number with an optional sign: ``4096``, ``4,096`` or ``4k`` (of 1,024).

    Raises:
        ValueError: It is none, or has thousands of digits.
    """
    found = WHOLE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(text)
    return int(found[1] + found[2].replace(",", "")) * (1024 if found[3] else 1)


def nodes_for(gpus: int, per_node: int = PER_NODE) -> int:
    """Return the fewest nodes of equal size that hold the GPUs; 1 if the number makes no sense."""
    if not 0 < gpus <= MOST:
        return 1
    return next(nodes for nodes in range(-(-gpus // per_node), gpus + 1) if gpus % nodes == 0)


def check_setting(setting: TrainingSetup) -> None:
    """Check the numbers of a setting.

    Raises:
        UserError: A number is not positive, or the heads do not divide the hidden size.
    """
    for name, value in _numbers(setting):
        if not 0 < value < 1e16:
            raise UserError(f"{name} is {value:g}", "give a positive number of a sensible size")
    model = setting.model
    divides = not (model.hidden and model.heads and model.hidden % model.heads)
    if not (divides or model.head_dim or is_encoder_decoder(model)):
        raise UserError(f"hidden ({model.hidden}) is no multiple of heads ({model.heads})", "correct one of them")
    if model.heads and model.kv_heads and model.heads % model.kv_heads:
        raise UserError(f"heads ({model.heads}) is no multiple of kv_heads ({model.kv_heads})", "correct one of them")
    if setting.train.images is not None and not 0 <= setting.train.images <= MOST:
        raise UserError(
            f"train.images is {setting.train.images}", "give the pictures of a sequence, 0 where it has none"
        )
    if setting.train.frozen is not None and not 0 <= setting.train.frozen < 1:
        nothing = ": nothing would be trained" if setting.train.frozen == 1 else ""
        next_step = "give the share that is not trained, such as 0.9, or adapters: --lora 16"
        raise UserError(f"train.frozen is {setting.train.frozen:g}{nothing}", next_step)
    counts = [(f"train.{name}", getattr(setting.train, name), MOST_COUNTED) for name in COUNTED]
    for name, count, most in (*counts, ("gpus", setting.gpus, MOST), ("nodes", setting.nodes, MOST)):
        if (count or 0) > most:
            raise UserError(f"{name} is {count:,}", f"give at most {most:,}")
    if setting.gpus % setting.nodes:
        raise UserError(
            f"gpus ({setting.gpus}) is no multiple of nodes ({setting.nodes})", "give the total number of GPUs"
        )


def fill_defaults(setting: TrainingSetup) -> tuple[TrainingSetup, list[str]]:
    """Fill in the defaults of everything that is not given, and return a line for each."""
    assumed: list[str] = []
    train = _train(setting, assumed)
    if train.lora and not (setting.model.layers and setting.model.hidden):
        assumed.append("adapters: not counted either, as layers and hidden are not given")
    return msgspec.structs.replace(setting, model=_model(setting.model, assumed), train=train), assumed


def _train(setting: TrainingSetup, assumed: list[str]) -> TrainingOptions:
    train, model = setting.train, setting.model

    def default(name: str, value: Any) -> Any:
        if (given := getattr(train, name)) is not None:
            return given
        assumed.append(f"{name}: {value}")
        return value

    if train.quant and not (train.lora or train.frozen):
        train = msgspec.structs.replace(train, lora=Lora(r=RANK, target="all-linear"))
        assumed.append(f"lora: rank {RANK} on all linear layers, as weights in {train.quant} cannot be trained")
    seq_len = model.positions or (SEQ_LEN_PAIRS if is_encoder_decoder(model) else SEQ_LEN)
    seq_len = SEQ_LEN_ENCODER if model.kind == "encoder" else seq_len
    # torch's default; if strategies are compared, that of the written files, as DeepSpeed's is fused.
    compared = setting.strategy is None and (train.optimizer or "adamw") in STEPS_EITHER_WAY
    values: dict[str, Any] = {
        "dtype": _dtype(default("dtype", "bf16"), train, setting.strategy or Strategy(kind="ddp")),
        "optimizer": default("optimizer", "adamw"),
        "optimizer_impl": train.optimizer_impl or ("fused" if compared else "foreach"),
        "micro_batch": default("micro_batch", 1),
        "seq_len": default("seq_len", seq_len),
        "grad_accum": train.grad_accum or 1,
        "act_ckpt": default("act_ckpt", "none"),
        "images": default("images", 1) if model.tower else None,
        "attention": train.attention or _attention(model, assumed),
        "loss": train.loss or "eager",
        "dropout": train.dropout if train.dropout is not None else DROPOUT_PAIRS if is_encoder_decoder(model) else 0.0,
    }
    whole = msgspec.structs.replace(train, **values)
    if lengths_vary(whole):
        assumed.append(
            "batches: of sequences of different length, which leaves gaps; with --packed all have the same length"
        )
    return whole


def _attention(model: Model, assumed: list[str]) -> Literal["flash", "eager"]:
    if is_encoder_decoder(model):
        return "eager"
    if not block_layout(model).fused:
        assumed.append("attention: eager, as transformers has no other implementation for it")
        return "eager"
    return "flash"


def _dtype(dtype: str, train: TrainingOptions, strategy: Strategy) -> str:
    """Return what ``bf16`` alone means for a framework; LoRA adapters are trained in fp32 on a 16-bit base."""
    if dtype not in MIXED:
        return dtype
    if strategy.kind == "deepspeed":
        return f"{dtype}-deepspeed"
    return dtype if train.lora else MIXED[dtype]


def _model(model: Model, assumed: list[str]) -> Model:
    if not (model.layers and model.hidden):
        assumed.append("layers and hidden: not given, so activations and the loss are not counted")
    elif not model.vocab and model.kind != "vision":
        assumed.append("vocab: not given, so the logits of the loss are not counted")
    blocks = BLOCK_WEIGHTS * (model.layers or 0) * (model.hidden or 0) ** 2
    if blocks and not model.experts and not model.note and not 1 / FAR < model.params / blocks < FAR:
        assumed.append(
            f"params: {parameter_count_text(model.params)} as given, though {model.layers} layers of "
            f"width {model.hidden} have "
            f"some {parameter_count_text(blocks)}: check that none of them is mistyped"
        )
    if model.layers and model.hidden and not model.intermediate:
        assumed.append(f"intermediate: {4 * model.hidden}")
        return msgspec.structs.replace(model, intermediate=4 * model.hidden)
    return model


def _numbers(setting: TrainingSetup) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a setting that have to be positive, by the names of a specification."""
    train, lora = ("train.", setting.train), ("train.lora.", setting.train.lora)
    for where, struct in (("model.", setting.model), train, lora, ("strategy.", setting.strategy), ("", setting)):
        for name in struct.__struct_fields__ if struct else ():
            value = getattr(struct, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in ZERO_OR_CHECKED:
                yield where + name, value
