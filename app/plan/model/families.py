"""Families of transformers (5.23): what their modules have that a ``config.json`` does not say, as ``families.json``.

``tests/plan/model/test_hf_counts.py`` and ``tests/plan/memory/test_activations_by_family.py`` compare with its modules.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ...errors import UserError
from ..tables import read_table
from ..types import BlockLayout

Config = Mapping[str, Any]
MOST = 10_000_000  # largest value of a field


def first_present(config: Config, *names: str, default: int | None = None) -> int:
    """Return the first of these fields that is present.

    Raises:
        UserError: It is no positive whole number, or none is present and there is no default.
    """
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MOST:
                raise UserError(f"{name} is {repr(value)[:40]}", "give a positive whole number")
            return value
    if default is not None:
        return default
    raise UserError(f"the config has no {names[0]}", "name the config.json of a transformer")


def first_nonzero(config: Config, *names: str) -> int:
    """Return the first of these fields that is present and not 0, else 0.

    Raises:
        UserError: It is no positive whole number.
    """
    return next((first_present(config, name) for name in names if config.get(name)), 0)


def ungated_mlp(hidden: int, inner: int, bias: bool = True) -> int:
    """Count a feed-forward part without a gate."""
    return 2 * hidden * inner + (inner + hidden if bias else 0)


def ungated_block(hidden: int, inner: int, bias: bool = True) -> int:
    """Count attention of full width, a feed-forward part without a gate, and two norms with a bias."""
    return 4 * hidden * hidden + (4 * hidden if bias else 0) + ungated_mlp(hidden, inner, bias) + 4 * hidden


Switch = dict[str, bool]  # a field of the config and its default; "": always


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family. The defaults of fields are those of its config class."""

    block: str = ""  # class of the layer that its models repeat; several are separated by commas
    layout: BlockLayout = BlockLayout(wide_softmax=True)
    kind: Literal["decoder", "encoder", "encoder-decoder", "vision"] = "decoder"
    is_part: bool = False  # exists inside of other models only
    part_of: list[str] = []  # families whose text part, or vision part without a name, is of this one
    renamed: dict[str, str] = {}  # its own fields by their usual names
    tied: bool = False  # the output head is the embedding
    gated: bool = True  # the feed-forward part has a gate
    activation: str = ""  # if the config does not name it
    num_key_value_heads: int | None = None  # if it is not the number of heads
    head_dim: int | None = None  # if heads do not share the hidden size
    positions: int | None = None  # rows of its table of positions
    experts_per_token: int = 1
    defaults: dict[str, int] = {}  # sizes that configs leave out if the model is a part of another
    same_input: Switch = {}  # the norms of attention and of the feed-forward part have the same input
    same_norm: Switch = {}  # both parts use the output of one norm
    # Parameters of a decoder in addition to matrices and norms.
    count: str = "decoder"  # function of ``hf_counts``
    qkv_bias: Switch = msgspec.field(default_factory=lambda: {"attention_bias": False})
    out_bias: Switch | None = None  # of attention, if it is not that of queries, keys and values
    mlp_bias: Switch = msgspec.field(default_factory=lambda: {"mlp_bias": False})
    head_norms: Switch = {}  # norms of the queries and keys of each head
    joint_head_norms: Switch = {}  # such norms over all heads together
    position_rows: int | None = None  # rows of a table of positions beyond the positions
    embedding_norm: bool = False
    head_bias: bool = False
    is_sparse: bool = False  # all its models have experts
    has_sinks: bool = False  # attention sinks, and a router with a bias
    # Parameters of an encoder of texts or pictures.
    has_token_types: bool = True
    pooler: Literal["", "dense", "attention"] = ""
    patch_bias: bool = True
    extra_rows: int = 0  # of a table of positions and tokens, beyond the patches
    outer_norms: int = 1  # before and after the blocks
    scales_layers: bool = False


FAMILIES = read_table("families.json", dict[str, Family])
# Families of the language models and of the vision towers inside of others.
TEXT_OF = {whole: name for name, family in FAMILIES.items() if family.kind != "vision" for whole in family.part_of}
TOWER_OF = {whole: name for name, family in FAMILIES.items() if family.kind == "vision" for whole in family.part_of}
# By the name that transformers' classes begin with, in lower case: ``qwen3moe`` for ``Qwen3MoeConfig``.
OF_CLASS_NAME = {name.replace("_", ""): name for name, family in FAMILIES.items() if not family.is_part}
LLAMA_LIKE = Family()
LATENT = "deepseek_v3"  # the family with latent attention (arXiv 2405.04434)
# Fields of experts, by the name that Llama-like models use first; other names as in Ernie, Hunyuan, GLM and Kimi.
SAME = {
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk", "moe_k", "num_experts_per_token"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "first_k_dense_replace": ("moe_layer_start_index",),
}
# Activation functions in elementary operations (``activations.py`` of transformers): tensors that they save in addition
# to their input.
ACTIVATIONS = ("feed_forward_proj", "activation_function", "hidden_act", "hidden_activation", "activation")
WRITTEN_OUT = {"gelu_new": 3, "quick_gelu": 1}


def family_of(name: str) -> Family:
    """Return a family; an unknown one is Llama-like."""
    return FAMILIES.get(name, LLAMA_LIKE)


def is_on(config: Config, switch: Switch) -> bool:
    """Return whether a config has what a field of it switches on."""
    return any(config.get(field, default) for field, default in switch.items())


def is_tied(config: Config, name: str) -> bool:
    """Return whether the output head is the token embedding."""
    return bool(config.get("tie_word_embeddings", family_of(name).tied))


def family_layout(config: Config, name: str) -> BlockLayout:
    """Return the layout of a family with the changes of its config."""
    family = family_of(name)
    named = str(next((config[field] for field in ACTIVATIONS if config.get(field)), family.activation))
    written = WRITTEN_OUT.get("gelu_new" if named == "gated-gelu" else named.removeprefix("gated-"), 0)
    more: dict[str, Any] = {
        "inner": family.layout.inner + written,
        "inner_fp32": written == WRITTEN_OUT["gelu_new"],
        "normed_heads": is_on(config, family.head_norms) or is_on(config, family.joint_head_norms),
    }
    if is_on(config, family.same_input):
        more["norms"] = 1
    if is_on(config, family.same_norm):
        more |= {"norms": 1, "products": 1}
    if name == "falcon" and config.get("new_decoder_architecture"):
        more["products"] = 1 if config.get("num_ln_in_parallel_attn") == 1 else 2
    elif name == "falcon":
        more["math_groups"] = bool(config.get("multi_query", True))
    if latent := first_nonzero(config, "kv_lora_rank"):
        share = first_nonzero(config, "v_head_dim") / (latent_head_size(config) or 1)
        more |= {"latent": latent + first_nonzero(config, "q_lora_rank"), "value_share": share}
    return msgspec.structs.replace(family.layout, **more)


def latent_head_size(config: Config) -> int:
    """Return the size of a head's queries and keys under latent attention (arXiv 2405.04434), or 0 without it."""
    has_latent = bool(config.get("kv_lora_rank"))
    return has_latent * (first_nonzero(config, "qk_nope_head_dim") + first_nonzero(config, "qk_rope_head_dim"))


def related_family(config: Config) -> str:
    """Return the known family whose class is named, or that has the same attention with experts, or ""."""
    named = config.get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else ""
    of_class = OF_CLASS_NAME.get(first.partition("For")[0].removesuffix("Model").lower(), "")
    return of_class or (LATENT if config.get("kv_lora_rank") and config.get("n_routed_experts") else "")


def renamed_expert_fields(config: Config) -> dict[str, str]:
    """Map fields of experts with unusual names to the usual ones."""
    return {
        other: usual
        for usual, others in SAME.items()
        if config.get(usual) is None and (other := next((name for name in others if config.get(name)), None))
    }
