"""The LoRA adapters of a plan's set-up code, which PEFT makes."""

import re

from ..types import TrainingSetup

RANK_ALPHA = 8  # PEFT's default, whatever the rank
EXAMPLE = '["out"]'  # the layers of the example model that stand for those of a plan
NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}  # short for what Llama and its like call them
ADAPT = '''\
def adapt(model: torch.nn.Module) -> torch.nn.Module:
    """Freeze the weights{width}, and train adapters{kept} beside the layers that ADAPTED names."""
    config = LoraConfig(r={rank}, lora_alpha={alpha}, target_modules=ADAPTED)
    return get_peft_model(model{cast}, config)
'''


def render_adapter_function(setting: TrainingSetup) -> str:
    """The function that puts the adapters in. With "bf16" and "fp16" the frozen weights are in 16 bit, as in
    ``states.frozen_bytes``, and PEFT keeps its adapters in float32; otherwise the rest of the script casts."""
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
    """The constant that names the layers: the plan's where the example has them too, otherwise beside the example's."""
    lora = setting.train.lora
    names: list[str] = re.findall(r"[\w.-]+", (lora and lora.target) or "q,v")
    if names in (["all"], ["all-linear"], ["all_linear"]):
        return '"all-linear"'
    wanted = ", ".join(NAMES.get(name, name) for name in names)
    return f"{EXAMPLE}  # of the example; of the plan: {wanted[:60]}"
