"""Candidates and their order: the strategies tried, those that fit, explanations, and advice."""

import time
from typing import Any

import msgspec
import pytest
from ddpwizard.app.hardware import server_catalog
from ddpwizard.app.plan import plan_answer, spec
from ddpwizard.app.plan.memory.formula import Factor, term
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.memory.peak import estimate_candidate
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.strategies.evaluate import PlanContext, evaluate, largest_micro_batch
from ddpwizard.app.plan.strategies.explain import slowdown_text
from ddpwizard.app.plan.strategies.search import (
    context_of,
    layouts_to_try,
    planning_assumptions,
    replan_with_tracked,
)
from ddpwizard.app.plan.strategies.table import SHOWN, render_table, visible_candidates
from ddpwizard.app.plan.strategies.what_if import what_if_text
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Model, PlanRow, Strategy, TrainingOptions, TrainingSetup, WhatIfResult
from ddpwizard.app.text.units import GIB
from helpers.planned import plan_candidates
from hypothesis import given
from hypothesis import strategies as st

LINKS = Links(370, 90)
LLAMA = catalog.MODELS["llama-3.1-8b"]
LARGE = catalog.MODELS["llama-3.1-70b"]
LAYOUTS = st.sampled_from(layouts_to_try(8, 1))


def setting(
    model: Model = LLAMA, gpus: int = 8, nodes: int = 1, memory_gib: float = 79.1, gpu: str = "H100", **train: Any
) -> TrainingSetup:
    values = {"dtype": "bf16-mixed", "micro_batch": 1, "seq_len": 4096} | train
    asked = TrainingSetup(
        model=model, train=TrainingOptions(**values), gpus=gpus, nodes=nodes, gpu=gpu, gpu_memory_gib=memory_gib
    )
    return spec.fill_defaults(asked)[0]


def laid_out(asked: TrainingSetup, strategy: Strategy, **train: Any) -> TrainingSetup:
    if strategy.kind == "deepspeed":
        train["dtype"] = "bf16-deepspeed"
    changed = msgspec.structs.replace(asked.train, **train)
    return msgspec.structs.replace(asked, strategy=strategy, train=changed)


def names(rows: list[PlanRow]) -> list[str]:
    return [row.candidate.strategy for row in rows]


class TestCandidates:
    def test_resharding_within_a_node_needs_several_nodes(self) -> None:
        def sizes(gpus: int, nodes: int) -> list[int]:
            after = [each.reshard_after_forward for each in layouts_to_try(gpus, nodes)]
            return [each for each in after if not isinstance(each, bool) and each]

        assert sizes(16, 2) == [8]
        assert sizes(8, 2) == [4]
        assert sizes(8, 1) == []
        assert sizes(4, 4) == []  # one GPU for each node: nothing to gather from within
        assert "FSDP2 resharding to 8" in names(plan_candidates(setting(gpus=16, nodes=2), LINKS))

    def test_names_are_unique(self) -> None:
        rows = plan_candidates(setting(LARGE, memory_gib=23.6, gpus=16, nodes=2), LINKS, host_bytes=1e9)
        called = [(row.candidate.strategy, row.candidate.recompute) for row in rows]
        assert len(set(called)) == len(called)

    def test_drive_is_tried_if_nothing_else_fits(self) -> None:
        asked = setting(
            Model(params=3e10, layers=60, hidden=6144, heads=48, vocab=32000), memory_gib=23.6, seq_len=1024
        )
        with_host = plan_candidates(asked, LINKS, host_bytes=2e12)
        assert not any("NVMe" in name for name in names(with_host))
        assert planning_assumptions(with_host, LINKS, 2e12) == []
        without = plan_candidates(asked, LINKS, host_bytes=3e11)
        assert without[0].candidate.strategy.startswith("ZeRO-3 +")
        assert "NVMe" in without[0].candidate.strategy
        assert without[0].candidate.binds == "NVMe"
        assert without[0].candidate.host_bytes < with_host[0].candidate.host_bytes
        assert planning_assumptions(without, LINKS, 3e11) == ["NVMe on each node: 3 GB/s, one drive"]
        assert planning_assumptions(without, LINKS._replace(nvme_gbps=20), 3e11) == []

    def test_partial_recomputation_is_offered_if_it_makes_one_fit(self) -> None:
        sizes = range(20, 100, 4)
        parts = [
            row
            for size in sizes
            for row in plan_candidates(setting(memory_gib=size), LINKS)
            if row.candidate.recompute == "selective-op"
        ]
        assert parts
        for found, asked in parts:
            kept = msgspec.structs.replace(asked.train, act_ckpt="none")
            assert found.fits is True
            assert estimate_candidate(msgspec.structs.replace(asked, train=kept)).fits is not True

    def test_given_strategy_is_the_only_one(self) -> None:
        assert {row.candidate.recompute for row in plan_candidates(setting(), LINKS, recompute="full")} == {"full"}


class TestHostMemory:
    """Eight ranks that each build 70 B parameters in fp32 need 2.1 TiB of one host."""

    def test_sharded_models_are_built_on_the_meta_device(self) -> None:
        small, large = (plan_candidates(setting(LARGE, seq_len=512), LINKS, host) for host in (1e12, 4e12))
        for rows, meta in ((small, True), (large, None)):
            sharded = [row for row in rows if row.setting.layout.shards_weights]
            assert {row.setting.layout.meta_init for row in sharded} == {meta}
        assert any("built on the meta device" in row.candidate.why for row in small)

    def test_a_whole_model_for_each_rank_does_not_fit(self) -> None:
        asked = laid_out(setting(memory_gib=200.0, seq_len=512), Strategy(kind="ddp"))
        fits = [plan_candidates(asked, LINKS, host)[0].candidate for host in (1e11, 1e12)]
        assert [each.fits for each in fits] == [False, True]
        assert "of host memory are missing to build the model (8 ranks need 30 each)" in fits[0].why


class TestTracked:
    def test_tracked_memory_decides_verdict_and_order(self) -> None:
        rows = plan_candidates(setting(), LINKS)
        best = rows[0].candidate
        too_much = {"loss": (term("activations", "as tracked", Factor(90 * GIB, "MiB")),)}
        changed = replan_with_tracked(rows, {0: too_much}, context_of(rows[0].setting, LINKS, None))  # type: ignore[dict-item]
        assert changed[0].candidate.full_name == rows[1].candidate.full_name
        assert changed[0].candidate.why_not == ""
        tracked = next(row.candidate for row in changed if row.candidate.full_name == best.full_name)
        assert (best.fits, tracked.fits, tracked.is_tracked) == (True, False, True)
        assert tracked.why.startswith("as tracked, does not fit")


class TestFits:
    @given(LAYOUTS, st.sampled_from(["none", "full"]), st.floats(6, 300), st.integers(128, 8192))
    def test_largest_micro_batch_fits_and_one_more_does_not(
        self, strategy: Strategy, act_ckpt: str, memory_gib: float, seq_len: int
    ) -> None:
        asked = laid_out(setting(memory_gib=memory_gib, seq_len=seq_len), strategy, act_ckpt=act_ckpt)
        most = largest_micro_batch(asked)

        def fits(count: int) -> bool:
            train = msgspec.structs.replace(asked.train, micro_batch=count)
            return estimate_candidate(msgspec.structs.replace(asked, train=train)).fits is True

        assert most == 0 or fits(most)
        assert most == 512 or not fits(most + 1)

    @given(st.sampled_from(layouts_to_try(16, 2)), st.integers(1, 6))
    def test_more_gpus_never_raise_sharded_states(self, strategy: Strategy, doublings: int) -> None:
        def held(gpus: int) -> float:
            return model_states(laid_out(setting(gpus=gpus, nodes=max(1, gpus // 8)), strategy)).total

        counts = [2 ** (4 + step) for step in range(doublings + 1)]
        sizes = [held(count) for count in counts]
        assert sizes == sorted(sizes, reverse=True)

    @given(st.sampled_from([1, 2, 3]), st.sampled_from(["none", "full"]), st.integers(1, 8))
    def test_offloaded_optimizer_never_needs_more_gpu_memory(self, stage: int, act_ckpt: str, batch: int) -> None:
        peaks = [
            estimate_candidate(
                laid_out(
                    setting(),
                    Strategy(kind="deepspeed", stage=stage, offload_optimizer=place),  # type: ignore[arg-type]
                    act_ckpt=act_ckpt,
                    micro_batch=batch,
                )
            ).peak_allocated_bytes_per_gpu
            for place in (None, "cpu", "nvme")
        ]
        assert peaks[1] <= peaks[0]
        assert peaks[2] == peaks[1]


class TestOrder:
    def test_dominated_candidate_has_a_better_one(self) -> None:
        rows = plan_candidates(setting(), LINKS)
        for row in rows:
            worse = row.candidate
            if not worse.dominated_by:
                continue
            name, _, again = worse.dominated_by.partition(", recomputing")
            recompute = "none" if not (_ := worse.dominated_by.count(", recomputing")) else None
            better = [
                other.candidate
                for other in rows
                if other.candidate.strategy == name and (recompute is None) == (other.candidate.recompute != "none")
            ]
            assert any(
                (other.step_seconds or 0) <= (worse.step_seconds or 0)
                and other.peak_allocated_bytes_per_gpu <= worse.peak_allocated_bytes_per_gpu
                and other.host_bytes <= worse.host_bytes
                for other in better
            ), again

    def test_what_needs_a_plan_for_the_modules_hides_nothing_that_has_files(self) -> None:
        """Expert parallelism is faster here and needs less memory than FSDP2 alone, but has no files."""
        rows = plan_candidates(setting(catalog.MODELS["qwen3-30b-a3b"], gpus=16, nodes=2), LINKS)
        split = {row.candidate.full_name for row in rows if row.setting.layout.splits_model}
        assert any(row.candidate.dominated_by in split for row in rows if row.setting.layout.splits_model)
        alone = [row.candidate for row in rows if not row.setting.layout.splits_model]
        assert not any(each.dominated_by in split for each in alone)
        assert any(each.strategy == "FSDP2" and not each.dominated_by for each in alone)

    def test_tokens_and_share_of_the_peak_agree_with_the_time(self) -> None:
        for found, asked in plan_candidates(setting(micro_batch=2, grad_accum=4), LINKS):
            assert found.step_seconds
            assert found.tokens_per_s == pytest.approx(2 * 4 * 8 * 4096 / found.step_seconds)
            assert 0 < (found.mfu or 0) < 1
            assert (found.slower_than_ideal or 0) >= -1e-9 or asked.layout.offload_optimizer

    def test_slow_links_are_the_bottleneck(self) -> None:
        for rate, binds in ((1.0, "link"), (5000.0, "arithmetic")):
            rows = plan_candidates(setting(), Links(rate, rate))
            best = next(row.candidate for row in rows if row.candidate.strategy == "FSDP2")
            assert best.binds == binds
        assert slowdown_text(0.41) == "41% over compute time"
        assert slowdown_text(4.4) == "5.4 times the compute time"

    def test_memory_is_the_bottleneck_if_a_larger_micro_batch_is_faster(self) -> None:
        held = [
            row
            for size in range(20, 100, 4)
            for row in plan_candidates(setting(memory_gib=size, seq_len=512), Links(5000, 5000))
            if row.candidate.binds == "GPU memory" and row.candidate.fits is True
        ]
        assert held
        for found, asked in held:
            assert "no room for twice the micro-batch" in found.why
            train = msgspec.structs.replace(asked.train, micro_batch=2)
            then = evaluate(msgspec.structs.replace(asked, train=train), PlanContext(Links(5000, 5000)))
            assert then.fits is not True
            assert (then.tokens_per_s or 0) > 1.05 * (found.tokens_per_s or 0)


class TestChanges:
    """The stated effect of a change agrees with the model."""

    @pytest.mark.parametrize("memory_gib", [8.0, 40.0, 79.1, 300.0])
    def test_change_agrees_with_a_plan_that_has_it(self, memory_gib: float) -> None:
        asked_of = 0
        for found, asked in plan_candidates(setting(memory_gib=memory_gib, micro_batch=2), LINKS):
            for change in found.changes:
                trains = {
                    "recompute activations": {"act_ckpt": "full"},
                    "recompute some activations": {"act_ckpt": "selective-op"},
                    "the loss in chunks": {"loss": "chunked"},
                    "keep activations": {"act_ckpt": "none"},
                    "an 8-bit optimizer": {"optimizer": "adamw-8bit"},
                    f"micro-batch {found.largest_micro_batch}": {"micro_batch": found.largest_micro_batch},
                }
                if change.change not in trains:
                    continue
                asked_of += 1
                train = msgspec.structs.replace(asked.train, **trains[change.change])  # type: ignore[arg-type]
                then = evaluate(msgspec.structs.replace(asked, train=train), PlanContext(LINKS))
                less = then.device_used_bytes_per_gpu - found.device_used_bytes_per_gpu
                assert change.gpu_bytes == pytest.approx(less)
                assert change.fits == then.fits
                assert change.tokens_per_s == pytest.approx(then.tokens_per_s)
        assert asked_of > 10

    def test_change_is_described_in_numbers(self) -> None:
        best = plan_candidates(setting(), LINKS)[0].candidate
        assert "45% of the peak is activations" in best.lever
        assert "GiB" in best.lever
        assert "% of a step" in best.lever
        short = plan_candidates(setting(memory_gib=20.0, gpus=4), LINKS, host_bytes=1e9)[0].candidate
        assert short.fits is False
        assert "then it" in short.lever or "not enough" in short.lever

    def test_faster_link_is_offered_if_the_link_is_slow(self) -> None:
        best = plan_candidates(setting(gpus=16, nodes=2), Links(370, 20))[0].candidate
        assert best.binds == "link"
        twice = next(each for each in best.changes if each.change == "twice the link bandwidth")
        assert (twice.step_seconds or 0) < 0
        assert "twice the link bandwidth: -" in best.lever

    def test_larger_micro_batch_is_offered_if_it_fits(self) -> None:
        best = plan_candidates(setting(memory_gib=300.0, seq_len=512), LINKS)[0].candidate
        assert "times the tokens per second" in best.lever
        best = plan_candidates(setting(memory_gib=79.1, seq_len=2048), LINKS)[0].candidate
        larger = next(each for each in best.changes if each.change.startswith("micro-batch"))
        assert "% more tokens per second" in what_if_text(larger, best)

    def test_large_differences_are_ratios_and_small_ones_are_left_out(self) -> None:
        now = plan_candidates(setting(), LINKS)[0].candidate
        rate = now.tokens_per_s
        slow = WhatIfResult(
            change="x", gpu_bytes=0, fits=True, step_seconds=2270 * now.step_seconds, tokens_per_s=rate / 2271
        )
        assert what_if_text(slow, now) == "x: 2,300 times the step"
        quick = WhatIfResult(change="x", gpu_bytes=0, fits=True, step_seconds=0.0, tokens_per_s=51.8 * rate)
        assert what_if_text(quick, now) == "x: 51.8 times the tokens per second"
        nothing = WhatIfResult(
            change="twice the link bandwidth",
            gpu_bytes=0,
            fits=True,
            step_seconds=-0.004 * now.step_seconds,
            tokens_per_s=rate / 0.996,
        )
        assert what_if_text(nothing, now) == "twice the link bandwidth"


class TestTable:
    def test_dominated_candidates_are_left_out_of_the_table(self) -> None:
        candidates = [row.candidate for row in plan_candidates(setting(), LINKS)]
        listed = visible_candidates(candidates)
        assert listed[0] == candidates[0]
        assert len(listed) <= SHOWN < len(candidates)
        assert not any(each.dominated_by for each in listed[1:])

    def test_table_is_narrow_and_has_tokens_per_second(self) -> None:
        rows = plan_candidates(setting(gpus=64, nodes=8), LINKS)
        lines = render_table(rows[0].setting, [row.candidate for row in rows], [])
        columns = [line for line in lines if line[2:3] in "✓~✗"]
        assert len(columns) >= 5
        assert max(len(line) for line in columns) <= 90
        assert any("tokens/s" in line and "slower" in line for line in lines)


def test_plan_is_fast() -> None:
    asked = setting(LARGE, gpus=64, nodes=8)
    plan_candidates(asked, LINKS)
    began = time.thread_time()
    plan_candidates(asked, LINKS)
    assert time.thread_time() - began < 0.5  # 11 ms on an idle machine; make bench holds the bar of 50


def test_a_small_model_is_usable_although_its_steps_mostly_wait() -> None:
    best = plan_candidates(setting(Model(params=90), memory_gib=39.4, seq_len=16), LINKS)[0].candidate
    assert best.fits is not False
    assert best.slower_than_ideal and best.slower_than_ideal > 100
    assert best.in_practice
    assert best.why.endswith("; fewer GPUs may be as fast")


def test_missing_host_memory_is_given_in_numbers() -> None:
    rows = plan_candidates(setting(LARGE, memory_gib=79.1), LINKS, host_bytes=500e9)
    short = [row.candidate for row in rows if row.candidate.binds == "host memory" and row.candidate.fits is False]
    assert short
    assert all("GiB of host memory are missing (8 ranks need" in each.why for each in short)
    assert all("16 GPUs: -" in each.lever for each in short)
    assert any("the optimizer on NVMe: -" in each.lever for each in short)


class TestHost:
    """A host whose memory is not given has that of a common machine of its kind."""

    def test_assumed_host_memory_limits_and_is_noted(self) -> None:
        largest = catalog.find_known_model("DeepSeek-V3")
        assert largest
        rows = plan_candidates(setting(largest, seq_len=2048), LINKS)
        assert not any(row.candidate.fits is not False and row.candidate.in_practice for row in rows)
        best = rows[0].candidate
        assert best.why.startswith("too slow: ")
        assert plan_answer.wants_more(rows[0])
        host = server_catalog.assume_host("H100", 79.1, 8)
        assert host
        for row in rows:
            if row.candidate.fits is not False:
                assert row.candidate.host_bytes * 8 <= host.bytes
        notes = planning_assumptions(rows, LINKS)
        assert notes[0] == "host memory: 1,863 GiB on each node, as in dgx-h100; --host-memory overrides it"
        lines = render_table(rows[0].setting, [row.candidate for row in rows], notes)
        assert lines[2].startswith("What fits is too slow. Closest: ZeRO-3 + NVMe offload, ")

    def test_named_strategy_has_no_assumed_host_memory(self) -> None:
        asked = msgspec.structs.replace(
            setting(LARGE, act_ckpt="full"),
            strategy=Strategy(kind="deepspeed", stage=3, offload_optimizer="cpu", offload_param="cpu"),
        )
        rows = plan_candidates(asked, LINKS)
        assert rows[0].candidate.fits is True
        assert planning_assumptions(rows, LINKS) == []
        assert plan_candidates(asked, LINKS, host_bytes=64e9)[0].candidate.fits is False

    def test_impractical_strategies_come_after_tight_ones(self) -> None:
        for size in range(20, 100, 4):
            rows = plan_candidates(setting(memory_gib=size), Links(370, 90, nvme_gbps=0.01), host_bytes=2e11)
            places = [
                3 if each.fits is False else 2 if not each.in_practice else 1 if each.fits == "tight" else 0
                for each, _ in rows
            ]
            assert places == sorted(places)


def test_lines_of_the_table_are_short() -> None:
    for memory_gib, gpus, nodes in ((23.6, 2, 1), (79.1, 8, 1), (79.1, 64, 8), (39.4, 4, 1)):
        for name in ("Llama-3.1-405B", "Llama-3.1-8B", "gpt2", "DeepSeek-V3"):
            model = catalog.find_known_model(name)
            assert model
            rows = plan_candidates(setting(model, memory_gib=memory_gib, gpus=gpus, nodes=nodes), LINKS)
            lines = render_table(setting(model), [row.candidate for row in rows], [])
            head = next(at for at, line in enumerate(lines) if "strategy" in line)
            assert max(len(line) for line in lines[head : head + 13]) <= 80
