"""Vision towers of vision-language models: their family, their sizes by usual names, and their tokens per image."""

import math

from .families import Config, first_nonzero, first_present
from .hf_counts import patch_count

# Family of a vision part that names none: by the family of the whole model, or as older configs had it.
OF_WHOLE = {"qwen2_vl": "qwen2_vl_vision", "qwen2_5_vl": "qwen2_5_vl_vision", "qwen3_vl": "qwen3_vl_vision"}
OF_WHOLE |= {"mllama": "mllama_vision_model", "idefics2": "idefics2_vision", "idefics3": "idefics3_vision"}
OF_WHOLE |= {"smolvlm": "smolvlm_vision", "mistral3": "pixtral", "gemma3": "siglip_vision_model"}
OF_WHOLE |= {"paligemma": "siglip_vision_model", "llava": "clip_vision_model", "llava_next": "clip_vision_model"}
QWEN = ("qwen2_vl_vision", "qwen2_5_vl_vision", "qwen3_vl_vision")  # configs without the image size
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
    """Return a tower's tokens per image; Llama's takes four tiles, each padded to a multiple of eight."""
    seen = patch_count(config)
    if family == "mllama_vision_model":
        return first_present(config, "max_num_tiles", default=4) * math.ceil((seen + 1) / 8) * 8
    return seen + (family in ("vit", "dinov2", "clip_vision_model"))
