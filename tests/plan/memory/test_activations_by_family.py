"""Formulas of ``activations`` against bytes that autograd saves for blocks of all known families and for vision towers,
in a forward pass of transformers' own modules on the CPU.
"""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.plan.memory import activations
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.model import families, hf_config
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Strategy, TrainingOptions, TrainingSetup
from helpers.reference_figures import BOTH, SAVED, figures, run_script

ROWS, LENGTH, TARGET, SMALL = 2, 128, 32, 256
SIZES = {"hidden_size": SMALL, "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": LENGTH}
GATED = SIZES | {"intermediate_size": 704, "num_key_value_heads": 4}
WIDE = GATED | {"head_dim": 96}
PLAIN = SIZES | {"intermediate_size": 1024}
OF_GPT = {"n_embd": SMALL, "n_head": 4, "vocab_size": 64, "n_positions": LENGTH}
EXPERTS = {"moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2}
LATENT = GATED | {"kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64}
LATENT |= {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
LATENT |= {"first_k_dense_replace": 0, "n_group": 1, "topk_group": 1}
OF_T5 = {"d_model": SMALL, "d_ff": 1024, "d_kv": 64, "num_heads": 4, "vocab_size": 64}
OF_BART = {"d_model": SMALL, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 64}
PICTURE = {
    "hidden_size": SMALL,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "image_size": 112,
    "patch_size": 14,
}
CONFIGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "gemma", "olmo2", "stablelm", "cohere"), GATED),
    **dict.fromkeys(("qwen3", "gemma2", "gemma3_text"), WIDE),
    **dict.fromkeys(("phi3", "glm4"), GATED | {"pad_token_id": 0, "head_dim": 64}),
    "mixtral": GATED | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": GATED | EXPERTS | {"shared_expert_intermediate_size": 256},
    "qwen3_moe": WIDE | EXPERTS,
    "olmoe": GATED | {"num_experts": 8, "num_experts_per_tok": 2},
    "gpt_oss": WIDE | {"intermediate_size": 256, "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v2": LATENT | {"q_lora_rank": None, "head_dim": 32},
    "deepseek_v3": LATENT | {"q_lora_rank": 96},
    "gpt2": OF_GPT,
    "gptj": OF_GPT | {"rotary_dim": 32},
    **dict.fromkeys(("gpt_neox", "phi", "bert", "xlm-roberta", "electra"), PLAIN),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), PLAIN | {"max_position_embeddings": LENGTH + 2}),
    "starcoder2": PLAIN | {"num_key_value_heads": 4},
    "opt": SIZES | {"ffn_dim": 1024, "word_embed_proj_dim": SMALL},
    "bloom": {"hidden_size": SMALL, "n_head": 4, "vocab_size": 64},
    "falcon": SIZES,
    "distilbert": {"dim": SMALL, "n_heads": 4, "hidden_dim": 1024, "vocab_size": 64},
    "t5": OF_T5,
    **dict.fromkeys(("mt5", "umt5"), OF_T5 | {"d_ff": 704, "feed_forward_proj": "gated-gelu"}),
    "bart": OF_BART | {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    **dict.fromkeys(("vit", "clip_vision_model", "siglip_vision_model"), PICTURE),
    "dinov2": PICTURE | {"mlp_ratio": 4},
}
DROPPING = {"bert, dropout": "bert", "t5, dropout": "t5", "mt5, dropout": "mt5", "gpt2, dropout": "gpt2"}
# On a CPU these have no fused attention: T5's places are learned, the others' values or keys are of another size.
ON_CPU_EAGER = ("t5", "mt5", "umt5", "deepseek_v2", "deepseek_v3", "falcon", "gemma2", "gpt_oss", "gptj", "bloom")
OF_DROPOUT = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "resid_pdrop",
    "embd_pdrop",
    "dropout",
)
OF_DROPOUT += ("dropout_rate", "attention_dropout", "hidden_dropout")
DROPOUT = """
def masked(x, p=0.5, training=True, inplace=False):
    "Dropout whose mask has one byte an element, as on a GPU."
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x
torch.nn.functional.dropout = masked
torch.nn.Dropout.forward = lambda self, x: masked(x, self.p, self.training)
"""
FAMILIES = """
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers",
          "num_decoder_layers")

def kept(case, layers):
    config = AutoConfig.for_model(**case["config"])
    for name in LAYERS:
        if hasattr(config, name):
            setattr(config, name, layers)
    for name in ("layer_types", "mlp_layer_types"):
        if getattr(config, name, None):
            setattr(config, name, (list(getattr(config, name))[-1:] * layers))
    config.use_cache, config._attn_implementation = False, case["attention"]
    model = AutoModel.from_config(config, dtype=torch.bfloat16).train()
    rows, length, target = case["sizes"]
    if "image_size" in case["config"]:
        side = config.image_size
        return saved_bytes(model, pixel_values=torch.ones(rows, 3, side, side, dtype=torch.bfloat16))
    ids = torch.zeros(rows, length, dtype=torch.long)
    more = {"decoder_input_ids": ids[:, :target]} if case["pair"] else {}
    return saved_bytes(model, input_ids=ids, **more)

json.dump({name: kept(case, 3) - kept(case, 2) for name, case in json.load(sys.stdin).items()}, sys.stdout)
"""


def _family(name: str) -> str:
    return DROPPING.get(name, name)


def _is_eager(name: str) -> bool:
    return name in DROPPING or name in ON_CPU_EAGER


def _case(name: str) -> dict[str, Any]:
    family = _family(name)
    config = {"model_type": family} | CONFIGS[family]
    if name not in DROPPING:
        config |= dict.fromkeys(OF_DROPOUT, 0.0)
    attention, pair = "eager" if _is_eager(name) else "sdpa", families.FAMILIES[family].kind == "encoder-decoder"
    return {"config": config, "attention": attention, "pair": pair, "sizes": [ROWS, LENGTH, TARGET]}


@pytest.fixture(scope="module", params=BOTH)
def kept(request: pytest.FixtureRequest) -> dict[str, int]:
    cases = {name: _case(name) for name in (*CONFIGS, *DROPPING)}
    return figures("saved_by_family", request.param, lambda: run_script(SAVED + DROPOUT + FAMILIES, cases))


def test_every_family_has_a_case() -> None:
    assert set(CONFIGS) == {name for name, family in families.FAMILIES.items() if not family.is_part}


@pytest.mark.parametrize("name", [*CONFIGS, *DROPPING])
def test_saved_bytes_of_each_family_match_transformers(name: str, kept: dict[str, int]) -> None:
    family = _family(name)
    layers = dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 3)
    layers |= dict.fromkeys(("encoder_layers", "decoder_layers"), 3)
    model, _ = hf_config.model_from_config(layers | {"model_type": family} | CONFIGS[family])
    train = TrainingOptions(
        dtype="bf16-pure",
        micro_batch=ROWS,
        seq_len=model.positions or LENGTH,
        target_len=TARGET,
        dropout=0.1 if name in DROPPING else 0.0,
        attention="eager" if _is_eager(name) else "flash",
    )
    setting = fill_defaults(TrainingSetup(model=model, train=train, gpus=1, strategy=Strategy(kind="single")))[0]
    one = total_bytes(activations.stored_terms(setting)) / 3  # of a pair, a layer of each
    assert one == pytest.approx(kept[name], rel=0.05)


TEXT = {"model_type": "llama", **GATED, "num_hidden_layers": 4, "vocab_size": 300, "pad_token_id": 0}
QWEN = {"depth": 8, "num_heads": 4, "hidden_size": SMALL, "patch_size": 14, "intermediate_size": 704}
TOWERS: dict[str, dict[str, Any]] = {
    "clip_vision_model": PICTURE | {"num_hidden_layers": 8},
    "siglip_vision_model": PICTURE | {"num_hidden_layers": 8, "vision_use_head": False},
    "pixtral": PICTURE | {"num_hidden_layers": 8, "intermediate_size": 704, "head_dim": 64},
    "idefics2_vision": PICTURE | {"num_hidden_layers": 8},
    "idefics3_vision": PICTURE | {"num_hidden_layers": 8},
    "mllama_vision_model": PICTURE
    | {"attention_heads": 4, "num_hidden_layers": 10, "num_global_layers": 2, "intermediate_layers_indices": [1]},
    "qwen2_vl_vision": {"depth": 8, "num_heads": 4, "embed_dim": SMALL, "hidden_size": 64, "patch_size": 14},
    "qwen2_5_vl_vision": QWEN | {"out_hidden_size": 64, "fullatt_block_indexes": [7]},
    "qwen3_vl_vision": QWEN | {"out_hidden_size": 64, "deepstack_visual_indexes": [], "num_position_embeddings": 256},
}
PICTURES = """
import importlib
from transformers import CONFIG_MAPPING
CLASSES = {
    "clip_vision_model": "clip.CLIPVisionModel", "siglip_vision_model": "siglip.SiglipVisionModel",
    "pixtral": "pixtral.PixtralVisionModel", "idefics2_vision": "idefics2.Idefics2VisionTransformer",
    "idefics3_vision": "idefics3.Idefics3VisionTransformer", "mllama_vision_model": "mllama.MllamaVisionModel",
    "qwen2_vl_vision": "qwen2_vl.Qwen2VisionTransformerPretrainedModel",
    "qwen2_5_vl_vision": "qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel",
    "qwen3_vl_vision": "qwen3_vl.Qwen3VLVisionModel",
}

def inputs(family, config):
    if family.startswith("qwen"):
        patches = torch.ones(32 * 32, 3 * 2 * config.patch_size**2)
        return {"hidden_states": patches, "grid_thw": torch.tensor([[1, 32, 32]])}
    side = config.image_size
    if family.startswith("mllama"):
        of_tiles = {"aspect_ratio_ids": torch.tensor([[4]]), "aspect_ratio_mask": torch.ones(1, 1, 4, dtype=torch.long)}
        return {"pixel_values": torch.ones(1, 1, 4, 3, side, side)} | of_tiles
    across = side // config.patch_size
    mask = {"patch_attention_mask": torch.ones(1, across, across, dtype=torch.bool)}
    return {"pixel_values": torch.ones(1, 3, side, side)} | (mask if family.startswith("idefics") else {})

notes = {}
for family, given in json.load(sys.stdin).items():
    module, name = CLASSES[family].split(".")
    found = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    config = CONFIG_MAPPING[family](**given)
    config._attn_implementation = "sdpa"
    model = getattr(found, name)(config).train()
    notes[family] = [sum(p.numel() for p in model.parameters()), saved_bytes(model, **inputs(family, config))]
json.dump(notes, sys.stdout)
"""


@pytest.fixture(scope="module", params=BOTH)
def towers(request: pytest.FixtureRequest) -> dict[str, list[int]]:
    return figures("saved_by_tower", request.param, lambda: run_script(SAVED + DROPOUT + PICTURES, TOWERS))


def _seeing(config: dict[str, Any], images: int = 1) -> tuple[TrainingSetup, list[str]]:
    model, notes = hf_config.model_from_config(config)
    train = TrainingOptions(dtype="fp32", micro_batch=1, seq_len=LENGTH, images=images)
    setting, assumed = fill_defaults(TrainingSetup(model=model, train=train, gpus=1, strategy=Strategy(kind="single")))
    return setting, [*notes, *assumed]


def _of_pictures(setting: TrainingSetup) -> float:
    without = msgspec.structs.replace(setting, train=msgspec.structs.replace(setting.train, images=0))
    return total_bytes(activations.stored_terms(setting)) - total_bytes(activations.stored_terms(without))


@pytest.mark.parametrize("family", TOWERS)
def test_saved_bytes_of_each_vision_tower_match_transformers(family: str, towers: dict[str, list[int]]) -> None:
    """With both its ends, which are not counted: of eight layers they are a few per cent."""
    setting, _ = _seeing({"vision_config": {"model_type": family} | TOWERS[family], "text_config": TEXT})
    params, kept = towers[family]
    assert setting.model.tower
    assert setting.model.tower.params == params
    assert _of_pictures(setting) == pytest.approx(kept, rel=0.1)


def test_images_per_sample_default_to_one() -> None:
    config = {"vision_config": {"model_type": "clip_vision_model"} | TOWERS["clip_vision_model"], "text_config": TEXT}
    one, three = _seeing(config)[0], _seeing(config, images=3)[0]
    assert _of_pictures(three) == pytest.approx(3 * _of_pictures(one))
    _, notes = fill_defaults(TrainingSetup(model=one.model, gpus=1))
    assert "images: 1" in notes


def test_every_vision_tower_has_a_case() -> None:
    parts = {name for name, family in families.FAMILIES.items() if family.is_part}
    assert parts <= set(TOWERS)
    assert families.TOWER_OF["smolvlm"] == families.TOWER_OF["smolvlm_vision"] == "idefics3_vision"


LLAVA = """
given = json.load(sys.stdin)
config = AutoConfig.for_model("llava", **given, image_token_index=299)
config.text_config.use_cache = False
config.vision_config._attn_implementation = config.text_config._attn_implementation = "sdpa"
model = AutoModel.from_config(config, dtype=torch.float32).train()
ids = torch.full((1, 128), 299)
ids[:, 64:] = 1
json.dump(saved_bytes(model, input_ids=ids, pixel_values=torch.ones(1, 3, 112, 112)), sys.stdout)
"""


@pytest.mark.parametrize("source", BOTH)
def test_saved_bytes_of_text_and_vision_tower_add_up(source: str) -> None:
    vision = {"model_type": "clip_vision_model"} | TOWERS["clip_vision_model"]
    config = {"vision_config": vision, "text_config": TEXT}
    given = config | {"vision_feature_layer": -1}
    kept = figures("saved_by_llava", source, lambda: run_script(SAVED + DROPOUT + LLAVA, given))
    assert total_bytes(activations.stored_terms(_seeing(config)[0])) == pytest.approx(kept, rel=0.1)
