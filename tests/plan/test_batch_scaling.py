"""The effective batch and the learning rate on another number of GPUs."""

import json
import math

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.batch_scaling import describe_scaling, keep_global_batch, scale_batch
from ddpwizard.app.plan.job_files.manifest import render_manifest
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Model, TrainingOptions, TrainingSetup


def setting(gpus: int, micro_batch: int = 2, grad_accum: int = 8, optimizer: str = "adamw") -> TrainingSetup:
    train = TrainingOptions(micro_batch=micro_batch, grad_accum=grad_accum, optimizer=optimizer)  # type: ignore[arg-type]
    return fill_defaults(TrainingSetup(model=Model(params=1e9), train=train, gpus=gpus))[0]


class TestKeepingTheBatch:
    @pytest.mark.parametrize(
        ("gpus", "micro_batch", "grad_accum", "reference", "expected"),
        [
            (8, 2, 8, 4, (2, 4, 64)),  # twice the GPUs: half the accumulation
            (2, 2, 8, 4, (2, 16, 64)),  # half of them: twice
            (16, 2, 1, 8, (1, 1, 16)),  # accumulation cannot be halved: the micro-batch is
            (3, 4, 6, 2, (4, 4, 48)),
            (16, 8, 1, 12, (6, 1, 96)),
            (5, 4, 2, 4, (3, 2, 30)),  # does not divide: the nearest
            (64, 1, 1, 8, (1, 1, 64)),  # cannot be kept
            (7, 16, 1, 8, (9, 2, 126)),
        ],
    )
    def test_batch_is_kept_by_accumulation_first(
        self, gpus: int, micro_batch: int, grad_accum: int, reference: int, expected: tuple[int, int, int]
    ) -> None:
        found = scale_batch(setting(gpus, micro_batch, grad_accum), reference)
        assert (found.keep_micro_batch, found.keep_grad_accum, found.kept_batch) == expected
        assert found.keep_micro_batch <= micro_batch

    def test_setting_takes_the_kept_batch(self) -> None:
        asked = setting(8)
        kept, found, notes = keep_global_batch(asked, scale_batch(asked, 4, lr=1e-3))
        assert (kept.train.micro_batch, kept.train.grad_accum) == (2, 4)
        assert not scale_batch(kept, 8).changes
        assert (found.changes, found.scaled_lr, found.reference_batch) == (False, 1e-3, 64)
        assert notes == "batch: 2 × 4 × 8 GPUs = 64, as on 4 GPUs"
        assert describe_scaling(found) == [
            "Batch of a step: 2 × 8 × 4 GPUs = 64 sequences before, 2 × 4 × 8 GPUs = 64 now; "
            "the learning rate does not change."
        ]

    def test_batch_that_cannot_be_kept(self) -> None:
        asked = setting(5, 4, 2)
        _, found, notes = keep_global_batch(asked, scale_batch(asked, 4))
        assert (found.batch, found.changes) == (30, True)
        assert notes == "batch: 3 × 2 × 5 GPUs = 30, closest to the 32 on 4 GPUs"
        assert "It is therefore another experiment" in describe_scaling(found)[-1]

    @pytest.mark.parametrize(("reference", "before"), [(8, "1 × 16 × 8 GPUs = 128"), (3, "128")])
    def test_global_batch_is_that_of_both_runs(self, reference: int, before: str) -> None:
        found = scale_batch(setting(16, 1, 8), reference, 1e-3, global_batch=128)
        assert (found.reference_batch, found.batch, found.scaled_lr) == (128, 128, 1e-3)
        now = "1 × 8 × 16 GPUs = 128 now"
        assert describe_scaling(found) == [
            f"Batch of a step: {before} sequences before, {now}; the learning rate does not change."
        ]


class TestLearningRate:
    def test_adam_uses_the_square_root_rule(self) -> None:
        found = scale_batch(setting(16), 4, lr=3e-4)
        assert (found.rule, found.linear_factor, found.sqrt_factor) == ("square root", 4, 2)
        assert found.scaled_lr == pytest.approx(6e-4)
        assert 0 < found.warm_up_share < 0.1

    def test_sgd_uses_the_linear_rule(self) -> None:
        found = scale_batch(setting(16, optimizer="sgd"), 4, lr=0.1)
        assert (found.rule, found.scaled_lr) == ("linear", pytest.approx(0.4))

    def test_a_smaller_batch_needs_no_warm_up(self) -> None:
        found = scale_batch(setting(1), 4, lr=1e-3)
        assert (found.scaled_lr, found.warm_up_share) == (pytest.approx(5e-4), 0.0)

    @pytest.mark.parametrize("lr", [0.0, -1.0, math.nan, math.inf])
    def test_invalid_learning_rate_is_refused(self, lr: float) -> None:
        with pytest.raises(UserError, match="--lr"):
            scale_batch(setting(2), 4, lr)

    @pytest.mark.parametrize("gpus", [0, -8, 10**12])
    def test_invalid_reference_gpus_are_refused(self, gpus: int) -> None:
        with pytest.raises(UserError, match="--reference-gpus"):
            scale_batch(setting(2), gpus)


class TestInWords:
    def test_description_of_a_changed_batch(self) -> None:
        text = "\n".join(describe_scaling(scale_batch(setting(16), 4, lr=3e-4)))
        for words in ("= 64 sequences before", "with 16 GPUs 256", "accumulation 2", "0.0006", "arXiv", "another exp"):
            assert words in text

    def test_description_of_a_kept_batch(self) -> None:
        assert len(describe_scaling(scale_batch(setting(4), 4))) == 1


class TestManifest:
    def test_json_has_the_reference_run(self) -> None:
        asked = setting(16)
        found = scale_batch(asked, 4, lr=3e-4)
        plain = json.loads(render_manifest(asked, found))
        assert plain["learning_rate"] == pytest.approx(6e-4)
        assert plain["reference"] == {
            "world_size": 4,
            "effective_batch": 64,
            "learning_rate": 3e-4,
            "same_experiment": False,
        }
        kept = json.loads(render_manifest(*keep_global_batch(asked, found)[:2]))
        assert (kept["learning_rate"], kept["reference"]["same_experiment"]) == (3e-4, True)
        assert kept["warm_up_share"] == 0

    def test_json_without_a_reference_run(self) -> None:
        assert "reference" not in json.loads(render_manifest(setting(4)))
