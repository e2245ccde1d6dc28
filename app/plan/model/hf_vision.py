"""Vision towers of vision-language models: their parameters, and their number of patches per image.

Parameters are those of transformers' modules (5.23), including what merges the patches of Qwen's towers into the text.
"""

import math
from collections.abc import Callable

from . import hf_encoders
from .hf_fields import Config, first_nonzero, first_present, ungated_block, ungated_mlp

# Family of a vision part that names none: by the family of the whole model, or as older configs had it.
OF_WHOLE = {"qwen2_vl": "qwen2_vl_vision", "qwen2_5_vl": "qwen2_5_vl_vision", "qwen3_vl": "qwen3_vl_vision"}
OF_WHOLE |= {"mllama": "mllama_vision_model", "idefics2": "idefics2_vision", "idefics3": "idefics3_vision"}
OF_WHOLE |= {"smolvlm": "smolvlm_vision", "mistral3": "pixtral", "gemma3": "siglip_vision_model"}
OF_WHOLE |= {"paligemma": "siglip_vision_model", "llava": "clip_vision_model", "llava_next": "clip_vision_model"}
QWEN = ("qwen2_vl_vision", "qwen2_5_vl_vision", "qwen3_vl_vision")
# Side of an image in pixels, for towers that take images of any size.
ANY_SIZE = 448


def vision_family(vision: Config, whole_family: str) -> str:
    """Return the family of a vision part."""
    family = str(vision.get("model_type") or whole_family)
    return OF_WHOLE.get(family, family)


def with_common_names(config: Config, family: str) -> Config:
    """Return a tower's config with the field names that most families use for its sizes."""
    found = dict(config)
    if family in QWEN:
        of_old = family == "qwen2_vl_vision"
        hidden = first_present(config, "embed_dim", default=1280) if of_old else first_present(config, "hidden_size")
        found |= {"out_hidden_size": first_present(config, "hidden_size" if of_old else "out_hidden_size")}
        found |= {"hidden_size": hidden, "num_hidden_layers": first_present(config, "depth")}
        found |= {"num_attention_heads": first_present(config, "num_heads")}
        found |= {"image_size": ANY_SIZE}
        if of_old:
            found["intermediate_size"] = int(hidden * (config.get("mlp_ratio") or 4))
    if family == "mllama_vision_model":
        layers = first_present(config, "num_hidden_layers") + first_nonzero(config, "num_global_layers")
        found |= {"num_hidden_layers": layers, "num_attention_heads": first_present(config, "attention_heads")}
    return found


def tokens_per_image(config: Config, family: str) -> int:
    """Return a tower's tokens per image: one per patch, and one for the whole image if the tower has one.

    Llama's tower takes up to four tiles, each padded to a multiple of eight (``MllamaVisionModel``).
    """
    seen = hf_encoders.patch_count(config)
    if family == "mllama_vision_model":
        return first_present(config, "max_num_tiles", default=4) * math.ceil((seen + 1) / 8) * 8
    return seen + (family in ("vit", "dinov2", "clip_vision_model"))


def has_variable_size(family: str) -> bool:
    """Return whether the config of a family does not contain the image size."""
    return family in QWEN


def _qwen(config: Config) -> int:
    hidden, inner = first_present(config, "hidden_size"), first_present(config, "intermediate_size")
    family, out = str(config.get("model_type")), first_present(config, "out_hidden_size")
    has_gate, biased = family == "qwen2_5_vl_vision", family == "qwen3_vl_vision"
    feed_forward = 3 * hidden * inner + 2 * inner + hidden if has_gate else ungated_mlp(hidden, inner)
    norm = hidden if has_gate else 2 * hidden
    block = 4 * hidden * hidden + 4 * hidden + feed_forward + 2 * norm
    four = first_present(config, "spatial_merge_size", default=2) ** 2 * hidden
    merging = four * four + four + four * out + out
    patch = first_present(config, "patch_size") ** 2 * first_present(config, "temporal_patch_size", default=2) * 3
    merged = merging + norm
    if biased:
        deep = config.get("deepstack_visual_indexes")
        merged += (len(deep) if isinstance(deep, list) else 3) * (merging + 2 * four)
        merged += first_present(config, "num_position_embeddings", default=2304) * hidden + hidden
    return first_present(config, "num_hidden_layers") * block + patch * hidden + merged


def _mllama(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size")) - 4 * hidden
    tiles, seen = first_present(config, "max_num_tiles", default=4), hf_encoders.patch_count(config) + 1
    ratios = config.get("supported_aspect_ratios")
    kinds = (len(ratios) if isinstance(ratios, list) else 8) + 1
    places = 1 + seen * hidden + kinds * tiles * seen * hidden + 2 * (1 + kinds * tiles * hidden)
    gates = 2 * first_nonzero(config, "num_global_layers")
    return layers * block + gates + hidden + _patch(config) + places + 4 * hidden


def _idefics(config: Config) -> int:
    hidden, layers = first_present(config, "hidden_size"), first_present(config, "num_hidden_layers")
    block = ungated_block(hidden, first_present(config, "intermediate_size"))
    return _patch(config) + hidden + hf_encoders.patch_count(config) * hidden + layers * block + 2 * hidden


def _pixtral(config: Config) -> int:
    hidden, inner = first_present(config, "hidden_size"), first_present(config, "intermediate_size")
    block = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    return _patch(config) + hidden + first_present(config, "num_hidden_layers") * block


def _patch(config: Config) -> int:
    return (
        first_present(config, "num_channels", default=3)
        * first_present(config, "patch_size") ** 2
        * first_present(config, "hidden_size")
    )


COUNTS: dict[str, Callable[[Config], int]] = {
    **dict.fromkeys(QWEN, _qwen),
    **dict.fromkeys(("idefics2_vision", "idefics3_vision", "smolvlm_vision"), _idefics),
    "mllama_vision_model": _mllama,
    "pixtral": _pixtral,
}
# Defaults of a tower's config class, for configs that leave them out.
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
OF_QWEN = ("depth", "num_heads", "patch_size", "hidden_size")
IDEFICS = {"intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32}
DEFAULTS: dict[str, dict[str, int]] = {
    "pixtral": dict(zip((*SIZES, "patch_size", "image_size"), (1024, 4096, 24, 16, 16, 1024), strict=True)),
    "qwen2_vl_vision": dict(zip(OF_QWEN, (32, 16, 14, 3584), strict=True)) | {"embed_dim": 1280},
    "qwen2_5_vl_vision": dict(zip(OF_QWEN, (32, 16, 14, 3584), strict=True))
    | {"intermediate_size": 3420, "out_hidden_size": 3584},
    "qwen3_vl_vision": dict(zip(OF_QWEN, (27, 16, 16, 1152), strict=True))
    | {"intermediate_size": 4304, "out_hidden_size": 3584},
    "mllama_vision_model": {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32}
    | {"num_global_layers": 8, "attention_heads": 16, "image_size": 448, "patch_size": 14},
    "idefics2_vision": IDEFICS | {"hidden_size": 768, "num_attention_heads": 12},
    "idefics3_vision": IDEFICS | {"hidden_size": 1152, "num_attention_heads": 16},
    "smolvlm_vision": IDEFICS | {"hidden_size": 1152, "num_attention_heads": 16},
}
