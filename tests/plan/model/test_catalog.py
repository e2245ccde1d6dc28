"""Well-known models: sizes from their shapes against those published with their weights."""

import pytest
from ddpwizard.app.plan.model import catalog

# Parameters as huggingface.co's model pages and the makers' reports have them; to the digit where they do.
PUBLISHED = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.3-70B": 70_553_706_496,
    "Mistral-7B": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_620_634_112,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-0.6B": 0.6e9,
    "Qwen3-1.7B": 1.72e9,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Gemma-2B": 2_506_172_416,
    "Gemma-7B": 8_537_680_896,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-2-27B": 27_227_128_320,
    "Phi-3-mini": 3_821_079_552,
    "Phi-3-medium": 13_960_238_080,
    "Phi-4": 14_659_507_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "DeepSeek-V3": 671e9,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "vit-base": 86_389_248,
    "vit-large": 304_351_232,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
}
QWEN = {name: count for name, count in PUBLISHED.items() if name.startswith("Qwen2.5-")}
PUBLISHED |= {name.replace("2.5", "2.5-Coder"): count for name, count in QWEN.items()}
PUBLISHED |= {name.replace("2.5", "2"): count for name, count in QWEN.items()}
PUBLISHED |= {"Phi-3.5-mini": 3_821_079_552, "DeepSeek-R1": 671e9}
PUBLISHED |= {"flan-t5-xl": 2_849_757_184, "flan-t5-xxl": 11_135_332_352}
# What a token passes through, as the makers round it (model cards; DeepSeek-V3: arXiv 2412.19437, section 1).
ACTIVE = {
    "Mixtral-8x7B": 12.9e9,
    "Mixtral-8x22B": 39e9,
    "Qwen3-30B-A3B": 3.3e9,
    "Qwen3-235B-A22B": 22e9,
    "DeepSeek-V3": 37e9,
}


@pytest.mark.parametrize("name", catalog.CONFIGS)
def test_parameters_match_published_counts(name: str) -> None:
    found = catalog.MODELS[name.lower()]
    exact = isinstance(PUBLISHED[name], int)
    assert found.params == PUBLISHED[name] if exact else found.params == pytest.approx(PUBLISHED[name], rel=0.01)
    assert found.layers and found.hidden and found.heads and found.intermediate


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_match_published_counts(name: str) -> None:
    assert catalog.MODELS[name.lower()].active_params == pytest.approx(ACTIVE[name], rel=0.03)


@pytest.mark.parametrize(
    "name",
    [
        "Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B",
        " llama-3.1-8b ",
        "LLAMA-3.1-8B_custom",
    ],
)
def test_model_is_found_by_its_name(name: str) -> None:
    found = catalog.find_known_model(name)
    assert found is not None
    assert found.params == 8_030_261_248


@pytest.mark.parametrize(
    "name", ["abacus-9000", "", "gpt20", "llama-3.1-8bit", "my-gpt2", "DeepSeek-R1-Distill-Llama-8B"]
)
def test_unknown_model_name_is_not_found(name: str) -> None:
    assert catalog.find_known_model(name) is None


def test_longest_matching_name_wins() -> None:
    found = catalog.find_known_model("openai-community/gpt2-xl")
    assert found is not None and found.layers == 48


def test_closest_names_of_an_unknown_model() -> None:
    assert catalog.closest_models("meta-llama/Lama-3.1-8b")[0] == "Llama-3.1-8B"
    assert catalog.closest_models("qwen25-72B")[0] == "Qwen2.5-72B"
    assert catalog.closest_models("x" * 10_000) == catalog.FAMOUS
