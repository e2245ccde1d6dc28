"""A config of a family that is not known: as which known one it may be counted, and its fields by their usual names."""

from .hf_counts import OF_CLASS_NAME
from .hf_fields import Config

LATENT = "deepseek_v3"  # the family with latent attention (arXiv 2405.04434)
# Of experts, by the name that Llama's kin have first; others as Ernie, Hunyuan, GLM and Kimi write them.
SAME = {
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk", "moe_k", "num_experts_per_token"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "first_k_dense_replace": ("moe_layer_start_index",),
}


def related_family(config: Config) -> str:
    """The known family whose class is named, or whose attention it has with experts; empty where there is none."""
    named = config.get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else ""
    of_class = OF_CLASS_NAME.get(first.partition("For")[0].removesuffix("Model").lower(), "")
    if not of_class and config.get("kv_lora_rank") and config.get("n_routed_experts"):
        return LATENT
    return of_class


def renamed_expert_fields(config: Config) -> dict[str, str]:
    """The fields of experts that have another name than the usual one, with that."""
    found: dict[str, str] = {}
    for usual, others in SAME.items():
        if config.get(usual) is None and (other := next((name for name in others if config.get(name)), None)):
            found[other] = usual
    return found
