"""The LoRA adapters of a setup script, which PEFT creates."""

import re

import msgspec

from ..types import TrainingSetup

RANK_ALPHA = 8  # PEFT's default, independent of the rank
NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}  # as in Llama and similar models
ADAPT = '''\
def adapt(model: torch.nn.Module) -> torch.nn.Module:
    """Freeze the weights{width}, and train adapters{kept} next to the layers that ADAPTED names."""
    config = LoraConfig(r={rank}, lora_alpha={alpha}, target_modules=ADAPTED)
    return get_peft_model(model{cast}, config)
'''


def render_adapter_function(setting: TrainingSetup) -> str:
    """Return the function that adds the adapters.

    With "bf16" and "fp16" the frozen weights are in 16 bit, as in ``model_states.frozen_weight_bytes``, and PEFT keeps
    its adapters in float32; otherwise the rest of the script casts.
    """
    train = setting.train
    if not train.lora:
        return ""
    dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(train.dtype or "")
    return ADAPT.format(
        rank=train.lora.r,
        alpha=f"{train.lora.alpha or RANK_ALPHA:g}",
        width=" in 16 bit" if dtype else "",
        kept=" in float32" if dtype else "",
        cast=f".to(torch.{dtype})" if dtype else "",
    )


def render_target_modules(setting: TrainingSetup) -> str:
    """Return the constant that names the layers of the plan."""
    lora = setting.train.lora
    names: list[str] = re.findall(r"[\w.-]+", (lora and lora.target) or "q,v")
    if names in (["all"], ["all-linear"], ["all_linear"]):
        return '"all-linear"'
    return msgspec.json.encode([NAMES.get(name, name) for name in names]).decode().replace(",", ", ")
