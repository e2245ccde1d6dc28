"""A model's shape and number of parameters from its Hugging Face ``config.json``.

Exact for the families that ``hf_counts`` knows. Another family is counted as a Llama-like decoder; a note says so, and
names fields that were not used.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...errors import UserError
from ...system.files import read_regular_file
from ..tables import read_table
from ..types import Model
from . import families, hf_counts
from .families import FAMILIES, MOST, TEXT_OF, TOWER_OF, Config, family_of, first_nonzero, first_present

LIMIT_BYTES = 1_000_000
NEXT_STEP = "name a Hugging Face config.json"
SHOWN = 6
TEXT, VISION = ("text_config", "llm_config", "language_config"), "vision_config"
OF_NO_WEIGHT = re.compile("|".join(read_table("fields_of_no_weight.jsonc", list[str])))


class TrackedConfig(Mapping[str, Any]):
    """A config that records which of its fields were read."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return self._config[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def read_config(path: Path) -> tuple[Model, list[str]]:
    """Read the model of a ``config.json`` (or of a directory with one). Return it with the assumptions made.

    Raises:
        UserError: It cannot be read, is no config, or a field is no sensible number.
    """
    file = path / "config.json" if _is_directory(path) else path
    content = read_regular_file(file, LIMIT_BYTES, NEXT_STEP)
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON: {error}", NEXT_STEP) from error
    if not isinstance(config, dict):
        raise UserError(f"{file} does not contain a JSON object", NEXT_STEP)
    return model_from_config(config, name=str(config.get("_name_or_path") or file.absolute().parent.name)[:80])


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a parent may be unreadable; a null byte in the path
        return False


def model_from_config(config: Config, name: str = "") -> tuple[Model, list[str]]:
    """Return the model of a parsed config and the assumptions made; both parts of a vision-language model.

    Raises:
        UserError: A field is missing or no sensible number.
    """
    for inner in TEXT:
        part = config.get(inner)
        if isinstance(part, dict) and part:
            text, notes = fill_part_defaults({"tie_word_embeddings": config.get("tie_word_embeddings")} | part, inner)
            return _multi_part_model(config, text, inner, name, notes)
    if isinstance(config.get(VISION), dict):
        text = {field: value for field, value in config.items() if field != VISION}
        return _multi_part_model(config, text, "the text", name, [])
    family = str(config.get("model_type") or "")
    family = TEXT_OF.get(family, family)
    config, family, family_notes = _resolve_family(config, family)
    of_class = _of_class(config, family)
    stated = {field: value for field, value in config.items() if value is not None}
    seen = TrackedConfig(stated | of_class | {"model_type": family})
    try:
        model = _model(seen, name)
    except UserError as error:
        words = "".join(f" ({field} {value} is transformers' default)" for field, value in of_class.items())
        lead = f"model_type {family[:40]} is not known, and " if family else "no model_type is given, and "
        unknown = lead if family_notes else ""
        way = "give --params, --layers, --hidden …, or a function that builds it" if family_notes else error.next_step
        raise UserError(f"{unknown}{error.message}{words}", way) from error
    notes = family_notes
    if of_class:
        words = ", ".join(f"{field} {value}" for field, value in of_class.items())
        notes.append(f"{words}: not in the config, so transformers' default is used")
    if "quantization_config" in config:
        seen.asked.add("quantization_config")
        method = str((config.get("quantization_config") or {}).get("quant_method") or "")
        word = "gptq-int4" if method == "gptq" else "nf4"
        notes.append(f"quantization_config: ignored; --quant {word} keeps the base in 4 bit")
    left = sorted(
        field for field, value in config.items() if value and field not in seen.asked and not OF_NO_WEIGHT.search(field)
    )
    if left:
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        names = ", ".join(field[:40] for field in left[:SHOWN])
        notes.append(f"{names}{more}: unknown fields of the config, ignored")
    return model, notes


def _resolve_family(config: Config, family: str) -> tuple[Config, str, list[str]]:
    """Return a config, its family, and notes on an unknown family."""
    if family in FAMILIES:
        return config, family, []
    lead = f"{f'model_type {family[:40]}' if family else 'no model_type'}: counted as"
    if found := families.related_family(config):
        return config, found, [f"{lead} {found}, which is similar"]
    names = families.renamed_expert_fields(config)
    notes = [f"{lead} a Llama-like decoder, which may be inaccurate; a function that builds the model is exact"]
    usual = {field: value for field, value in config.items() if field not in names}
    return usual | {new: config[old] for old, new in names.items()}, family, notes


def fill_part_defaults(part: Config, where: str) -> tuple[Config, list[str]]:
    """Fill in the defaults of a part's config class, which transformers leaves out; ``where`` names the part."""
    usual = family_of(str(part.get("model_type") or "")).defaults
    missing = {field: value for field, value in usual.items() if part.get(field) is None}
    words = ", ".join(f"{field} {value}" for field, value in missing.items())
    inside = {field: value for field, value in part.items() if field not in (*TEXT, VISION)}
    return inside | missing, [f"{words}: not in {where}, so transformers' default is used"] if missing else []


def _of_class(config: Config, family: str) -> dict[str, int]:
    """Return sizes of attention that the config lacks and that do not follow from its other sizes."""
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    share = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    following = {"num_key_value_heads": heads, "head_dim": share}
    return {
        field: usual
        for field in following
        if (usual := getattr(family_of(family), field)) and field not in config and usual != following[field]
    }


def _multi_part_model(config: Config, text: Config, inner: str, name: str, notes: list[str]) -> tuple[Model, list[str]]:
    """Return a model of several parts: its language model, and a vision tower of a known family."""
    model, more = model_from_config({field: value for field, value in text.items() if value is not None}, name)
    vision = config.get(VISION)
    if not isinstance(vision, dict):
        return model, [f"{inner}: only this part is counted", *notes, *more]
    family = str(vision.get("model_type") or config.get("model_type") or "")
    family = TOWER_OF.get(family, family)
    if family not in FAMILIES or FAMILIES[family].kind != "vision":
        named = family[:40] or "no model_type"
        return model, [f"vision_config ({named}): not known, so it is not counted", *notes, *more]
    vision, vision_notes = fill_part_defaults(vision | {"model_type": family}, VISION)
    stated = {field: value for field, value in vision.items() if value is not None}
    tower = _model(with_common_names(stated, family), family)
    active = model.active_params + tower.params if model.active_params else None
    both = msgspec.structs.replace(model, params=model.params + tower.params, active_params=active, tower=tower)
    pixels = f" of {ANY_SIZE} × {ANY_SIZE} pixels" if family in QWEN else ""
    patches = f"an image{pixels} has {tower.positions:,} patches"
    note = f"vision tower: {tower.params / 1e6:.0f} M parameters; {patches}; its projection to the text is not counted"
    return both, [note, *notes, *vision_notes, *more]


def _model(config: Config, name: str) -> Model:
    named = str(config.get("model_type") or "")
    family, sizes = family_of(named), hf_counts.transformer_sizes(config, named)
    hidden, layers, heads, keys, head = sizes
    pair, vision = family.kind == "encoder-decoder", family.kind == "vision"
    decoders = first_present(config, "num_decoder_layers", "decoder_layers", default=layers) if pair else None
    if decoders:
        layers += decoders
    elif "head_dim" not in config and hidden % heads:
        raise UserError(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}", "correct the config")
    if heads % keys:
        raise UserError(
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {keys}", "correct the config"
        )
    layout = families.family_layout(config, named)
    found = hf_counts.count_parameters(config, named, layout)
    experts, used = hf_counts.expert_counts(config, family)
    head = families.latent_head_size(config) or head
    return Model(
        name=name or named,
        params=float(found.params),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=keys,
        intermediate=_inner(config, hidden, named, used),
        vocab=first_present(config, "vocab_size", default=0) or None,
        tied=not vision and families.is_tied(config, named),
        mlp=_mlp(config, named),
        note="no LM head" if family.kind in ("vision", "encoder") else "",
        kind=family.kind,
        head_dim=head if head * heads != hidden else None,
        experts=experts or None,
        experts_per_token=used or None,
        expert_layers=hf_counts.sparse_layers(config, layers) if experts else None,
        active_params=float(found.active) if found.active != found.params else None,
        positions=tokens_per_image(config, named) if vision else None,
        max_positions=None if vision else _max_positions(config, named),
        block=family.block,
        layout=layout,
        decoder_layers=decoders,
    )


def _max_positions(config: Config, family: str) -> int | None:
    """Return the tokens of the longest sequence; RoBERTa's table of positions begins at the third row."""
    if family_of(family).count == "t5":
        return None
    names = ("n_positions", "max_position_embeddings", "n_ctx")
    found = next((config[name] for name in names if name in config), family_of(family).positions)
    if isinstance(found, bool) or not isinstance(found, int) or not 2 < found < MOST:
        return None
    return found - 2 if family in ("roberta", "xlm-roberta", "camembert") else found


def _inner(config: Config, hidden: int, family: str, experts: int) -> int:
    """Return the width of the feed-forward part that a token passes through."""
    if family == "dinov2":
        return hf_counts.dinov2_inner_width(config, hidden)
    if not experts:
        return hf_counts.inner_width(config, hidden)
    each = hf_counts.inner_width(config, hidden, "moe_intermediate_size")
    shared = first_nonzero(config, "shared_expert_intermediate_size")
    return each * experts + (shared or each * first_nonzero(config, "n_shared_experts"))


def _mlp(config: Config, name: str) -> Literal["swiglu", "gated-gelu", "gelu", "relu"]:
    family = family_of(name)
    if family.count == "t5":
        return "gated-gelu" if hf_counts.has_gated_t5_mlp(config, family) else "relu"
    if family.gated or (name == "dinov2" and config.get("use_swiglu_ffn")):
        return "swiglu"
    usual = "relu" if name == "opt" else "gelu"
    return "relu" if config.get("activation_function", config.get("hidden_act", usual)) == "relu" else "gelu"


QWEN = ("qwen2_vl_vision", "qwen2_5_vl_vision", "qwen3_vl_vision")  # configs without the image size
# Side of an image in pixels, for towers that take images of any size.
ANY_SIZE = 448


def with_common_names(config: Config, family: str) -> Config:
    """Return a tower's config with the field names that most families use for its sizes."""
    found = dict(config)
    found |= {usual: first_present(config, own) for usual, own in family_of(family).renamed.items()}
    if family in QWEN:
        found["image_size"] = ANY_SIZE
    if family == "qwen2_vl_vision":
        found["intermediate_size"] = int(found["hidden_size"] * (config.get("mlp_ratio") or 4))
    if family == "mllama_vision_model":
        found["num_hidden_layers"] += first_nonzero(config, "num_global_layers")
    return found


def tokens_per_image(config: Config, family: str) -> int:
    """Return a tower's tokens per image; Llama's takes four tiles, each padded to a multiple of eight."""
    seen = hf_counts.patch_count(config)
    if family == "mllama_vision_model":
        return first_present(config, "max_num_tiles", default=4) * math.ceil((seen + 1) / 8) * 8
    return seen + (family in ("vit", "dinov2", "clip_vision_model"))
