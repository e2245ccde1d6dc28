"""The order of strategies: verdict, files, time of a sample, moving parts; and the reason against each other one."""

import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.strategies.evaluate import (
    ABOUT_AS_FAST,
    MOST_SEQUENCES,
    PlanContext,
    choose_micro_batch,
    gpu_of,
)
from ddpwizard.app.plan.strategies.ranking import ALIKE, moving_parts, why_not
from ddpwizard.app.plan.strategies.search import context_of, layouts_to_try, rank_candidates
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.timing.step_time import step_time
from ddpwizard.app.plan.types import PlanRow, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.units import GIB
from helpers.planned import plan_candidates

LINKS = Links(370, 90)
PLACES = {True: 0, "tight": 1, False: 3}


def asked(name: str = "Llama-3.1-8B", gpus: int = 8, memory_gib: float = 79.1, **train: Any) -> TrainingSetup:
    model = catalog.find_known_model(name)
    assert model
    values = {"dtype": "bf16-mixed", "micro_batch": 1, "seq_len": 2048} | train
    setting = TrainingSetup(
        model=model,
        train=TrainingOptions(**values),
        gpus=gpus,
        nodes=spec.nodes_for(gpus),
        gpu="H100",
        gpu_memory_gib=memory_gib,
    )
    return spec.fill_defaults(setting)[0]


def sample_s(row: PlanRow) -> float:
    return 1 / (row.candidate.tokens_per_s or 1.0)


SETTINGS = [
    asked(),
    asked("gpt2"),
    asked("Llama-3.1-70B"),
    asked("Llama-3.1-70B", gpus=64),
    asked(memory_gib=39.4, seq_len=8192),
    asked("Qwen3-30B-A3B"),
    asked("bert-base", gpus=1),
    asked("Llama-3.1-405B"),
]


class TestOrder:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_each_rule_decides_what_the_rule_before_leaves_alike(self, setting: TrainingSetup) -> None:
        rows = plan_candidates(setting, LINKS)
        places = [PLACES[found.fits] if found.in_practice or not found.fits else 2 for found, _ in rows]
        assert places == sorted(places)
        for place in {0, 1, 2} & set(places):
            fitting = [row for row, at in zip(rows, places, strict=True) if at == place]
            splits = [row.setting.layout.splits_model for row in fitting]
            assert splits == sorted(splits)
            for needed in set(splits):
                group = [row for row in fitting if row.setting.layout.splits_model == needed]
                fastest = min(map(sample_s, group))
                alike = [row for row in group if sample_s(row) <= ALIKE * fastest]
                assert group[: len(alike)] == alike
                keys = [(len(moving_parts(row.setting)), sample_s(row)) for row in alike]
                assert keys == sorted(keys)
                assert all(sample_s(one) <= sample_s(two) for one, two in pairwise(group[len(alike) :]))

    def test_torch_alone_is_simpler_than_deepspeed(self) -> None:
        """Weights of 70 B parameters on 8 GPUs must be on the host: both are about as fast."""
        best, second = plan_candidates(asked("Llama-3.1-70B", seq_len=4096), LINKS)[:2]
        assert best.candidate.strategy == "FSDP2 + CPU offload"
        assert second.candidate.strategy.startswith("ZeRO-3 + ")

    @pytest.mark.parametrize("layout", [layout for layout in layouts_to_try(16, 2) if layout.kind != "single"])
    def test_every_strategy_has_more_parts_than_one_gpu(self, layout: Strategy) -> None:
        setting = asked(gpus=16).with_layout(**{name: getattr(layout, name) for name in layout.__struct_fields__})
        assert moving_parts(asked(gpus=1)) == []
        assert "a process group" in moving_parts(setting)
        recomputing = setting.with_train(act_ckpt="full")
        assert len(moving_parts(recomputing)) == len(moving_parts(setting)) + 1


class TestReasons:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_every_other_strategy_has_a_reason_in_figures(self, setting: TrainingSetup) -> None:
        best, *others = plan_candidates(setting, LINKS)
        assert best.candidate.why_not == ""
        for row in others:
            reason = row.candidate.why_not
            assert re.search(r"\d|as fast|too much for the host", reason), (row.candidate.full_name, reason)

    def test_memory_that_is_saved_but_free_anyway_is_called_so(self) -> None:
        best, *others = plan_candidates(asked(), LINKS)
        for row in others:
            spared = best.candidate.device_used_bytes_per_gpu - row.candidate.device_used_bytes_per_gpu
            if row.candidate.fits is True and spared > GIB:
                assert "you do not need" in row.candidate.why_not

    def test_slower_by_the_share_of_the_time(self) -> None:
        best, *others = plan_candidates(asked(), LINKS)
        slower = next(row for row in others if 1.05 < sample_s(row) / sample_s(best) < 1.9)
        share = sample_s(slower) / sample_s(best) - 1
        assert slower.candidate.why_not.startswith(f"{share:.0%} slower here")

    @pytest.mark.parametrize(
        ("step_s", "reason"),
        [
            (0.25, "4.0 × as fast here"),
            (0.8, "25% faster here"),
            (1.25, "25% slower here"),
            (4, "takes 4.0 × as long"),
        ],
    )
    def test_ratios_of_times_have_one_wording(self, step_s: float, reason: str) -> None:
        best = plan_candidates(asked(), LINKS)[0]
        rate = best.candidate.tokens_per_s / step_s
        other = best._replace(candidate=msgspec.structs.replace(best.candidate, tokens_per_s=rate))
        assert why_not(other, best) == reason

    def test_what_does_not_fit_has_its_shortage(self) -> None:
        rows = plan_candidates(asked("Llama-3.1-70B", gpus=16), LINKS)
        over = next(row for row in rows if row.candidate.fits is False)
        assert "GiB too much" in over.candidate.why_not

    def test_what_is_faster_or_as_fast_names_what_it_adds(self) -> None:
        best, *others = plan_candidates(asked("gpt2", seq_len=1024), LINKS)
        for row in others:
            if row.candidate.fits is True and sample_s(row) < sample_s(best):
                assert "adds " in row.candidate.why_not or "plan for your modules" in row.candidate.why_not

    def test_a_strategy_that_only_just_fits_has_its_spare(self) -> None:
        row = next(
            row
            for memory_gib in range(20, 90, 2)
            for row in plan_candidates(asked(memory_gib=memory_gib), LINKS)[1:]
            if row.candidate.fits == "tight"
        )
        assert re.search(r"only just fits \([\d.]+ .iB to spare\)", why_not(row, plan_candidates(asked(), LINKS)[0]))


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "vit-base"])
def test_a_small_model_that_fits_is_replicated(name: str) -> None:
    assert plan_candidates(asked(name, seq_len=None), LINKS)[0].candidate.strategy == "DDP"


class TestMicroBatch:
    """A batch of a step that is given without its division."""

    @pytest.mark.parametrize("name", ["bert-base", "Llama-3.1-8B", "gpt2"])
    def test_it_is_the_smallest_that_is_about_as_fast_as_any_that_fits(self, name: str) -> None:
        setting = asked(name, seq_len=512, grad_accum=128)
        rows = rank_candidates(setting, context_of(setting, LINKS, None), chooses_micro_batch=True)
        for found, chosen in rows:
            ranks = chosen.gpus // (chosen.layout.splits["tensor"] * chosen.layout.splits["context"])
            assert found.micro_batch * found.grad_accum * ranks == 128 * 8
            assert (found.micro_batch, found.grad_accum) == (chosen.train.micro_batch, chosen.train.grad_accum)
        best = rows[0]
        assert best.candidate.micro_batch >= 4
        assert best.candidate.fits is True
        for size in (2**power for power in range(8)):
            other = best.setting.with_train(micro_batch=size, grad_accum=128 // size)
            found = choose_micro_batch(other, PlanContext(LINKS))
            assert (found.train.micro_batch, found.train.grad_accum) == (
                best.candidate.micro_batch,
                best.candidate.grad_accum,
            )

    def test_a_smaller_one_is_slower(self) -> None:
        setting = asked("bert-base", seq_len=512, grad_accum=128)
        best = rank_candidates(setting, context_of(setting, LINKS, None), chooses_micro_batch=True)[0]

        def seconds(size: int) -> float:
            way = best.setting.with_train(micro_batch=size, grad_accum=128 // size)
            return step_time(way, gpu_of(way), LINKS).step_s

        assert seconds(best.candidate.micro_batch // 2) > ABOUT_AS_FAST * min(seconds(2**power) for power in range(8))

    def test_what_does_not_fit_with_one_sequence_keeps_one(self) -> None:
        setting = asked("Llama-3.1-405B", grad_accum=64)
        rows = rank_candidates(setting, context_of(setting, LINKS, None), chooses_micro_batch=True)
        room = (setting.gpu_memory_gib or 0) * GIB
        too_large = [row.candidate for row in rows if row.candidate.device_used_bytes_per_gpu > room]
        assert {each.micro_batch for each in too_large} == {1}

    def test_without_memory_the_division_stays(self) -> None:
        setting = msgspec.structs.replace(asked("bert-base", grad_accum=2 * MOST_SEQUENCES), gpu_memory_gib=None)
        assert choose_micro_batch(setting, PlanContext(LINKS)) == setting
