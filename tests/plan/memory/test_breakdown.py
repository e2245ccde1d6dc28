"""The terms of a peak: each product gives its value, and together they are the breakdown."""

import math
import re

import msgspec
import pytest
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.memory.formula import UNITS, short_number
from ddpwizard.app.plan.memory.peak import peak_terms
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Lora, Model, PlanRow, TrainingOptions, TrainingSetup
from ddpwizard.app.text.units import gib_text
from helpers.planned import plan_candidates

LETTERS = {"B": 1e9, "M": 1e6} | UNITS
MODELS = ["llama-3.1-8b", "mixtral-8x7b", "t5-3b", "gpt2-xl", "bert-large", "vit-large"]
BY_NUMBERS = Model(name="by numbers", params=7e9)
TRAININGS = {
    "mixed": TrainingOptions(seq_len=4096, dtype="bf16-mixed", micro_batch=2),
    "fp32-accumulating": TrainingOptions(seq_len=512, dtype="fp32", grad_accum=4),
    "eager-attention": TrainingOptions(dtype="bf16-pure", attention="eager", dropout=0.1),
    "adafactor": TrainingOptions(optimizer="adafactor", loss="chunked"),
    "qlora": TrainingOptions(lora=Lora(r=16), quant="nf4", dtype="bf16"),
    "lora": TrainingOptions(lora=Lora(r=16, target="all-linear"), dtype="bf16", loss="fused-linear"),
    "compiled": TrainingOptions(optimizer_impl="fused", compile=True, loss="compiled"),
}
MACHINES = ((1, 1), (16, 2))


def rows(model: Model, train: TrainingOptions, gpus: int, nodes: int) -> list[PlanRow]:
    setting = TrainingSetup(model=model, train=train, gpus=gpus, nodes=nodes, gpu="H100", gpu_memory_gib=79.1)
    return plan_candidates(spec.fill_defaults(setting)[0], Links(370, 90))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", [*MODELS, "by numbers"])
def test_terms_add_up_to_the_breakdown(name: str, training: str) -> None:
    model = catalog.MODELS.get(name, BY_NUMBERS)
    if model is BY_NUMBERS and TRAININGS[training].lora:
        pytest.skip("adapters are counted from layers and hidden size")
    for gpus, nodes in MACHINES:
        for found, setting in rows(model, TRAININGS[training], gpus, nodes):
            made = peak_terms(setting, found)
            for part, size_bytes in msgspec.structs.asdict(found.breakdown).items():
                added = sum(term.bytes for term in made if term.part == part)
                assert added == pytest.approx(size_bytes, rel=1e-9), (part, found.strategy, found.recompute)


@pytest.mark.parametrize("training", TRAININGS)
def test_formula_text_multiplies_out(training: str) -> None:
    for found, setting in rows(catalog.MODELS["llama-3.1-8b"], TRAININGS[training], 8, 1):
        for term in peak_terms(setting, found):
            assert read(term.formula) == pytest.approx(term.bytes, rel=5e-3), term.formula


def read(formula: str) -> float:
    """The product of a formula as a person would compute it."""
    signs = [1, *(1 if sign == "×" else -1 for sign in re.findall(" ([×÷]) ", formula))]
    numbers = [_number(piece) for piece in re.split(" [×÷] ", formula)]
    return math.prod(value**sign for value, sign in zip(numbers, signs, strict=True))


def _number(piece: str) -> float:
    value, _, what = piece.partition(" ")
    return float(value.replace(",", "")) * LETTERS.get(what.partition(" ")[0], 1)


def test_sharded_weights_follow_the_zero_formula() -> None:
    row = next(
        row for row in rows(catalog.MODELS["llama-3.1-8b"], TRAININGS["mixed"], 8, 1) if row[0].strategy == "FSDP2"
    )
    params = next(term for term in peak_terms(row.setting, row.candidate) if term.part == "params")
    assert params.formula == "8.03 B weights × 4 bytes ÷ 8 ranks"
    assert gib_text(params.bytes, 2) == "3.74 GiB"


@pytest.mark.parametrize(
    ("value", "output"),
    [(8.03e9, "8.03 B"), (128256, "128,256"), (1.12, "1.12"), (25.2e6, "25.2 M"), (8, "8"), (1.23456e13, "12,346 B")],
)
def test_short_number_has_four_digits(value: float, output: str) -> None:
    assert short_number(value) == output
