"""A config of an unknown family: the known family to count it as, and its fields by their usual names."""

from .hf_counts import OF_CLASS_NAME
from .hf_fields import Config

LATENT = "deepseek_v3"  # the family with latent attention (arXiv 2405.04434)
# Fields of experts, by the name that Llama-like models use first; other names as in Ernie, Hunyuan, GLM and Kimi.
SAME = {
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_topk", "moe_k", "num_experts_per_token"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "first_k_dense_replace": ("moe_layer_start_index",),
}


def related_family(config: Config) -> str:
    """Return the known family whose class is named, or that has the same attention with experts, or ""."""
    named = config.get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else ""
    of_class = OF_CLASS_NAME.get(first.partition("For")[0].removesuffix("Model").lower(), "")
    if not of_class and config.get("kv_lora_rank") and config.get("n_routed_experts"):
        return LATENT
    return of_class


def renamed_expert_fields(config: Config) -> dict[str, str]:
    """Map fields of experts with unusual names to the usual ones."""
    found: dict[str, str] = {}
    for usual, others in SAME.items():
        if config.get(usual) is None and (other := next((name for name in others if config.get(name)), None)):
            found[other] = usual
    return found
