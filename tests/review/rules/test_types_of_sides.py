"""DW441: tensors whose type a condition on the data of a rank chooses."""

import pytest
from helpers.review_snippets import lines

PROGRAM = """
import torch.nn.functional as F
from torch import nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
texts = ["a b c", "d e", "f"]
mine = texts[rank * 2:(rank + 1) * 2]
data, labels = torch.randn(4, 3), torch.zeros(4, dtype=torch.long)
def value(texts):
    if not texts:
        return EMPTY
    return FULL
total = value(mine)
dist.all_reduce(total)
print(total)
"""
FLOATS = {
    "a mean": "torch.tensor([float(len(each)) for each in texts]).mean()",
    "a mean in another type": "torch.stack([torch.rand(2) for each in texts]).half().mean(0)",
    "a loss": "F.cross_entropy(data[:len(texts)], labels[:len(texts)])",
    "a measure of torch": "torch.std(torch.stack([data.sum() for each in texts]))",
    "a deviation": "torch.stack([data.sum() for each in texts]).std()",
}
WHOLE = {"a number": "torch.tensor(0)", "zeros": "torch.zeros((), dtype=torch.long)", "a truth": "torch.tensor(False)"}
FITS = {
    "a float": ("torch.tensor(0.0)", FLOATS["a mean"]),
    "zeros": ("torch.zeros(())", FLOATS["a loss"]),
    "a float of half the size": ("torch.zeros((), dtype=torch.bfloat16)", FLOATS["a deviation"]),
    "a mean as a whole number": ("torch.tensor(0)", FLOATS["a mean"] + ".long()"),
    "a number of texts": ("torch.tensor(0)", "torch.tensor(len(texts))"),
    "what is not known": ("torch.tensor(0)", "torch.stack([data.sum() for each in texts]).amax()"),
}


def found(empty: str, full: str) -> list[str]:
    return lines(PROGRAM.replace("EMPTY", empty).replace("FULL", full), "DW441")


@pytest.mark.parametrize("empty", WHOLE)
@pytest.mark.parametrize("floats", FLOATS)
def test_a_whole_number_for_a_rank_without_data_is_found(floats: str, empty: str) -> None:
    assert found(WHOLE[empty], FLOATS[floats]) == ["dist.all_reduce(total)"]


@pytest.mark.parametrize("name", FITS)
def test_a_default_of_the_same_kind_is_not(name: str) -> None:
    assert found(*FITS[name]) == []


def test_a_condition_that_holds_on_all_ranks_is_not() -> None:
    assert (
        lines(
            PROGRAM.replace("EMPTY", "torch.tensor(0)").replace("FULL", FLOATS["a mean"]).replace("(mine)", "(texts)"),
            "DW441",
        )
        == []
    )
