"""Training options: the batch arithmetic, adapters, frozen parts."""

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.model.parameter_counts import trained_params
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.train_options import parse_share, train_from_values
from ddpwizard.app.plan.types import Lora, Model, TrainingSetup

MODEL = Model(params=8e9, layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=128256)


@pytest.mark.parametrize(
    ("given", "micro_batch", "grad_accum"),
    [
        ({"global_batch": 512}, 1, 32),
        ({"global_batch": 512, "micro_batch": 4}, 4, 8),
        ({"global_batch": 512, "grad_accum": 16}, 2, 16),
        ({"global_batch": 512, "micro_batch": 4, "grad_accum": 8}, 4, 8),
        ({"micro_batch": 3}, 3, None),
    ],
)
def test_global_batch_sets_accumulation_or_micro_batch(
    given: dict[str, int], micro_batch: int, grad_accum: int | None
) -> None:
    found, _ = train_from_values(given, MODEL, 16)
    assert (found.micro_batch, found.grad_accum) == (micro_batch, grad_accum)


@pytest.mark.parametrize(
    ("given", "message", "next_step"),
    [
        (
            {"global_batch": 500, "micro_batch": 4, "grad_accum": 8},
            "4 per GPU × 8 accumulated × 16 GPUs = 512, not 500",
            "leave out --grad-accum",
        ),
        ({"global_batch": 500}, "no multiple of 1 per GPU × 16 GPUs = 16", "take 496 or 512"),
        ({"global_batch": 8}, "no multiple of 1 per GPU × 16 GPUs = 16", "take 16"),
        ({"global_batch": 100, "grad_accum": 5}, "no multiple of 5 accumulated × 16 GPUs = 80", "take 80 or 160"),
        ({"global_batch": -8}, "--global-batch is -8", "give sequences"),
        ({"global_batch": 64, "micro_batch": 0}, "train.micro_batch is 0", "give a positive number"),
    ],
)
def test_batch_that_does_not_multiply_out_is_refused(given: dict[str, int], message: str, next_step: str) -> None:
    with pytest.raises(UserError) as refusal:
        train_from_values(given, MODEL, 16)
    assert message in refusal.value.message
    assert next_step in refusal.value.next_step


def test_options_are_taken_as_they_are() -> None:
    given = {"dtype": "bf16-pure", "optimizer": "lion", "compile": True, "loss": "chunked", "attention": "eager"}
    given |= {"act_ckpt": "selective-op", "alloc": "expandable_segments", "optimizer_impl": "fused", "lora": 8}
    given |= {"lora_target": "all-linear", "quant": "nf4", "seq_len": 512, "frozen": None}
    found, notes = train_from_values(given, MODEL, 8)
    assert (found.dtype, found.optimizer, found.compile, found.loss) == ("bf16-pure", "lion", True, "chunked")
    assert (found.act_ckpt, found.alloc, found.optimizer_impl) == ("selective-op", "expandable_segments", "fused")
    assert (found.lora, found.quant, notes) == (Lora(r=8, target="all-linear"), "nf4", [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"quant": "nf4"}, "weights in nf4 cannot be trained"),
        ({"lora_target": "q,v"}, "--lora-target without --lora"),
        ({"lora": 8, "frozen": "0.5"}, "--frozen and --lora exclude each other"),
        ({"frozen": "1"}, "--frozen is 1"),
        ({"frozen": "1.5"}, "give 1.5% for a share"),
        ({"frozen": "50"}, "give 50% for a share"),
        ({"frozen": "-0.1"}, "--frozen is -0.1"),
        ({"frozen": "9B"}, "--frozen is 9B"),
        ({"frozen": "half"}, "--frozen is half"),
        ({"frozen": "nan"}, "--frozen is nan"),
    ],
)
def test_contradicting_options_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train_from_values(given, MODEL, 8)


@pytest.mark.parametrize(("text", "share"), [("0.75", 0.75), ("75%", 0.75), ("6B", 0.75), ("0", 0.0)])
def test_share_is_parsed(text: str, share: float) -> None:
    assert parse_share(text, 8e9) == share


def test_frozen_weights_have_no_gradient_and_no_state() -> None:
    found, _ = train_from_values({"frozen": "0.75", "dtype": "bf16-mixed"}, MODEL, 1)
    assert trained_params(MODEL, found) == 2e9
    kept = model_states(fill_defaults(TrainingSetup(model=MODEL, train=found, gpus=1))[0])
    sizes = [total_bytes(terms) for terms in (kept.params, kept.grads, kept.optimizer)]
    assert sizes == pytest.approx([4 * 8e9, 4 * 2e9, 8 * 2e9])


def test_frozen_option_overrides_the_model() -> None:
    assert train_from_values({}, MODEL, 1, frozen=0.25)[0].frozen == 0.25
    assert train_from_values({"frozen": "0.5"}, MODEL, 1, frozen=0.25)[0].frozen == 0.5
