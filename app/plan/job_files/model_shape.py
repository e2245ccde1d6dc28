"""The sizes of a project's model: those of the plan, and usual ones for what the plan does not know."""

from ..model.parameter_counts import is_encoder_decoder
from ..types import Model

WIDTH, HEAD_DIM, VOCAB = 2048, 128, 32000  # of a model that is known by its parameters only
BLOCK_WEIGHTS = 12  # per layer, times the square of the width
GATED = ("swiglu", "geglu", "gated-gelu")


def shape_tags(model: Model) -> set[str]:
    """Return the tags of the model's template."""
    tags = {"experts": bool(model.experts), "tied": model.tied, "gated": model.mlp in (None, *GATED)}
    return {name for name, is_held in tags.items() if is_held}


def shape_values(model: Model) -> dict[str, str]:
    """Return the values of the model's template."""
    hidden = model.hidden or WIDTH
    heads = model.heads or max(1, hidden // HEAD_DIM)
    values = {
        "VOCAB": model.vocab or VOCAB,
        "HIDDEN": hidden,
        "LAYERS": model.layers or max(1, round(model.params / (BLOCK_WEIGHTS * hidden**2))),
        "HEADS": heads,
        "KV_HEADS": model.kv_heads or heads,
        "HEAD_DIM": model.head_dim or hidden // heads,
        "INTERMEDIATE": model.intermediate or 4 * hidden,
        "EXPERTS": model.experts or 0,
        "EXPERTS_PER_TOKEN": model.experts_per_token or 1,
    }
    return {name: str(value) for name, value in values.items()} | {"STAND_IN": _stand_in(model)}


def _stand_in(model: Model) -> str:
    """Return which model of the plan the decoder replaces, or "" if it has the sizes of the plan's own."""
    if model.kind in ("encoder", "vision") or is_encoder_decoder(model):
        return f" It takes the place of the plan's {model.kind or 'encoder-decoder'}."
    return "" if model.layers and model.hidden else " Of the plan's model only the number of parameters is known."
