"""Parameters of the parts of a transformer, counted from its shape."""

import re
from functools import lru_cache
from typing import NamedTuple

from ..tables import read_table
from ..types import BlockLayout, Lora, Model, TrainingOptions

ADAPTED = read_table("adapter_names.jsonc", dict[str, list[str]])


def kv_width(model: Model) -> float:
    """Return the elements of keys (or values) per token: key-value heads times head size."""
    hidden, heads = model.hidden or 0, model.heads or 1
    return (model.kv_heads or heads) * (model.head_dim or hidden / heads)


def parameter_count_text(params: float, billions: str = ".3g") -> str:
    """Format a number of parameters: ``8.03 B``, ``124 M``, ``90``."""
    if params < 0.1e6:
        return f"{params:,.0f}"
    return f"{params / 1e9:{billions}} B" if params >= 0.1e9 else f"{params / 1e6:.3g} M"


def has_gated_mlp(model: Model) -> bool:
    """Return whether the feed-forward part has a gate in addition to its input projection."""
    return model.mlp in (None, "swiglu", "geglu", "gated-gelu")


def is_encoder_decoder(model: Model) -> bool:
    """Return whether half of the layers are an encoder's (T5 and similar); decoder layers then have cross-attention."""
    if model.kind:
        return model.kind == "encoder-decoder"
    return model.name.lower().startswith(("t5", "mt5", "mt0", "flan-t5", "bart", "mbart", "ul2"))


FIRST_QWEN = "qwen-"  # the first generation, whose code comes with its weights
# By the start of a model's name, if no config gives its family: models with rotary embeddings whose queries, keys and
# values are one product, and models whose GELU transformers writes as five operations (``NewGELUActivation``).
JOINT = (FIRST_QWEN, "gpt-neox", "pythia", "falcon", "chatglm", "baichuan", "internlm2", "phi-3", "stablelm-base-alpha")
WRITTEN_OUT = ("gpt2", "distilgpt2", "gpt-j", "gpt-neo-", "codegen")


def upcasts_loss(model: Model) -> bool:
    """Return whether a model converts its logits to fp32 for its loss.

    Most models of transformers do (``loss/loss_utils.py``). T5, BART and the code of the first Qwen
    (``modeling_qwen.py``) do not.
    """
    is_first_qwen = not model.layout and model.name.lower().startswith(FIRST_QWEN)
    return not (is_first_qwen or is_encoder_decoder(model))


@lru_cache(maxsize=256)
def block_layout(model: Model) -> BlockLayout:
    """Return the block layout of its family, or of most models with such a feed-forward part."""
    if model.layout:
        return model.layout
    name, has_gate = model.name.lower(), has_gated_mlp(model)
    if is_encoder_decoder(model):
        written = model.mlp == "gated-gelu"  # T5 v1.1, mT5, mT0
        return BlockLayout(norm="layer" if model.mlp == "gelu" else "rms-t5", inner=3 * written, inner_fp32=written)
    written = name.startswith(WRITTEN_OUT)
    return BlockLayout(
        norm="rms" if has_gate else "layer",
        joint=name.startswith(JOINT),
        inner=3 * written,
        inner_fp32=written,
        wide_softmax=has_gate,
    )


def largest_matrix(model: Model) -> float:
    """Return the elements of the largest weight matrix of a block."""
    return float(model.hidden or 0) * max(model.intermediate or 0, model.hidden or 0)


def attention_width(model: Model) -> float:
    """Return the elements of all heads' queries per token.

    T5's heads need not divide its hidden size. Without a config they follow from the parameters left for attention
    (three attention parts per layer pair, of four matrices each).
    """
    hidden = float(model.hidden or 0)
    if model.head_dim:
        return float(model.head_dim * (model.heads or 1))
    if model.layout or not is_encoder_decoder(model) or not hidden:
        return hidden
    attention = block_params(model) - (3 if has_gated_mlp(model) else 2) * hidden * (model.intermediate or 0)
    return max(hidden, attention / (1.5 * 4 * hidden))


@lru_cache(maxsize=64)
def block_params(model: Model) -> float:
    """Return the parameters of one transformer block, on average if blocks differ."""
    if not model.layers:
        return model.largest_layer or model.params
    tower = model.tower.params if model.tower else 0.0
    return max(0.0, model.params - tower - embedding_params(model)) / model.layers


@lru_cache(maxsize=64)
def expert_params(model: Model) -> float:
    """Return the parameters of all experts: a token leaves out those of the experts that it is not sent to."""
    experts, used = model.experts or 0, model.experts_per_token or 1
    if experts <= used:
        return 0.0
    if model.active_params:
        return min(model.params, (model.params - model.active_params) * experts / (experts - used))
    each = (3 if has_gated_mlp(model) else 2) * float(model.hidden or 0) * (model.intermediate or 0) / used
    return min(0.9 * model.params, each * experts * (model.layers or 0))


def expert_width(model: Model) -> int:
    """Return the inner columns of an expert, a multiple of 8; 0 if the shape of the model is not known."""
    rows = (model.expert_layers or model.layers or 0) * (model.experts or 0) * 3 * (model.hidden or 0)
    return 8 * round(expert_params(model) / rows / 8) if rows else 0


@lru_cache(maxsize=64)
def embedding_params(model: Model) -> float:
    """Return the parameters of the token embedding, and of the output head if it is not tied."""
    table = float(model.vocab or 0) * (model.hidden or 0)
    return min(model.params, table * (1 if model.tied else 2))


@lru_cache(maxsize=256)
def trained_params(model: Model, train: TrainingOptions) -> float:
    """Return the parameters that have a gradient: all but the frozen share, or those of adapters.

    An adapter has its rank times (inputs + outputs) of the layer (arXiv 2106.09685).
    """
    if train.lora:
        return train.lora.r * sum(adapter_widths(model, train.lora)) * (model.layers or 0)
    return model.params * (1 - (train.frozen or 0.0))


class LinearShape(NamedTuple):
    """A linear layer of a block: elements per token in and out, and its average number per block."""

    inputs: float
    outputs: float
    often: float = 1.0


@lru_cache(maxsize=64)
def adapter_widths(model: Model, lora: Lora) -> tuple[float, float]:
    """Return the elements per token that the adapters of a block take as input and return, over all linear layers."""
    layers = adapted_linears(model, lora)
    return sum(each.often * each.inputs for each in layers), sum(each.often * each.outputs for each in layers)


def adapted_linears(model: Model, lora: Lora) -> list[LinearShape]:
    """Return the linear layers of a block with adapters; without a known name PEFT's choice for Llama."""
    hidden, inner = float(model.hidden or 0), model.intermediate or 0
    keys, heads = kv_width(model), attention_width(model)
    often = 1.5 if is_encoder_decoder(model) else 1.0
    shapes = {
        "query": LinearShape(hidden, heads, often),
        "key": LinearShape(hidden, keys, often),
        "value": LinearShape(hidden, keys, often),
        "joint": LinearShape(hidden, heads + 2 * keys, often),
        "output": LinearShape(heads, hidden, often),
        "into": LinearShape(hidden, inner, 2 if has_gated_mlp(model) else 1),
        "gate": LinearShape(hidden, inner),
        "up": LinearShape(hidden, inner),
        "back": LinearShape(inner, hidden),
    }
    names = set(re.split(r"[^a-z0-9_]+", (lora.target or "").lower().replace("all-linear", "all")))
    if names & {"all", "all_linear"}:
        return [shapes[part] for part in ("query", "key", "value", "output", "into", "back")]
    own = {"w3": "up", "w2": "down"} if "w3" in names else {"w2": "up"}  # of Llama's code; of the first Qwen's
    names = {own.get(name, name) for name in names}
    found = [shape for part, shape in shapes.items() if names & set(ADAPTED[part])]
    return found or [shapes["query"], shapes["value"]]
