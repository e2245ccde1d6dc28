"""Tensor, pipeline, context and expert parallelism: shares of a rank by hand, and published figures."""

from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware import gpu_catalog
from ddpwizard.app.plan import script_changes, spec
from ddpwizard.app.plan.job_files.write import UnwritablePlanError, render_job_files
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.memory.peak import estimate_candidate, phase_terms
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.rank_share import check_split, data_parallel_ranks, rank_share
from ddpwizard.app.plan.strategies.search import split_layouts
from ddpwizard.app.plan.strategies.table import render_table
from ddpwizard.app.plan.timing import step_time
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.units import GIB
from helpers.planned import plan_candidates

H100 = gpu_catalog.GPUS["h100"]
LINKS = Links(370, 340)


def setting(name: str, gpus: int, nodes: int = 1, splits: dict[str, int] | None = None, **train: Any) -> TrainingSetup:
    values = {"dtype": "bf16-mixed", "micro_batch": 1, "seq_len": 4096, "act_ckpt": "full", "optimizer_impl": "fused"}
    strategy = Strategy(kind="fsdp2", reshard_after_forward=True, **(splits or {}))  # type: ignore[arg-type]
    asked = TrainingSetup(
        model=catalog.MODELS[name],
        train=TrainingOptions(**(values | train)),  # type: ignore[arg-type]
        gpus=gpus,
        nodes=nodes,
        gpu="H100",
        gpu_memory_gib=79.1,
        strategy=strategy,
    )
    return spec.fill_defaults(asked)[0]


class TestShareOfRank:
    def test_a_plain_setting_is_its_own_share(self) -> None:
        asked = setting("llama-3.1-8b", 8)
        assert rank_share(asked).setting is asked
        assert data_parallel_ranks(asked) == 8

    @pytest.mark.parametrize("splits", [{"tensor": 4}, {"pipeline": 4}, {"context": 4}, {"expert": 4}])
    def test_states_of_all_ranks_are_those_of_the_model(self, splits: dict[str, int]) -> None:
        """16 bytes for each weight over 16 ranks; each stage of a pipeline counts as the one with a table."""
        asked = setting("mixtral-8x7b" if "expert" in splits else "llama-3.1-8b", 16, 4, splits)
        held = model_states(rank_share(asked).setting).total * 16
        whole = 16 * asked.model.params
        tables = 16 * 128256 * 4096 * (splits.get("pipeline", 2) - 2)
        assert whole <= held * 1.0001 < (whole + tables) * 1.02

    def test_experts_of_one_row_each_are_even_over_more_ranks_than_experts(self) -> None:
        plain, split = (estimate_candidate(setting("mixtral-8x7b", 32, 4, each)) for each in ({}, {"expert": 8}))
        assert split.model_state_bytes_per_gpu < plain.model_state_bytes_per_gpu / 3

    def test_stages_of_a_pipeline_keep_as_many_micro_batches_as_there_are_stages(self) -> None:
        def kept(count: int) -> float:
            asked = setting("llama-3.1-8b", 8, 4, {"pipeline": 4}, grad_accum=count)
            return sum(each.bytes for each in phase_terms(asked)["loss"] if each.part == "activations")

        one = kept(2) - kept(1)
        assert one > 0
        assert (kept(4), kept(16)) == pytest.approx((kept(1) + 3 * one, kept(1) + 3 * one))


class TestTime:
    def test_pipeline_waits_less_with_more_micro_batches(self) -> None:
        def per_micro_batch(count: int) -> float:
            asked = setting("llama-3.1-8b", 16, 4, {"pipeline": 4}, grad_accum=count)
            return step_time.step_time(asked, H100, LINKS).step_s / count

        times = [per_micro_batch(count) for count in (1, 4, 16, 64)]
        assert times == sorted(times, reverse=True)
        assert times[0] > 3 * times[-1]

    def test_experts_in_a_loop_are_launched_one_by_one(self) -> None:
        """48 layers × 128 experts × 11 operations of 17.5 µs in a forward pass, before torch had a grouped product."""
        looped, grouped, recent = (
            step_time.step_time(setting("qwen3-30b-a3b", 8, 1, each, torch=version), H100, LINKS).compute_s
            for each, version in (({}, "2.8"), ({"expert": 8}, "2.8"), ({}, None))
        )
        assert recent == grouped
        assert looped - grouped > 48 * 128 * 11 * 17.5e-6

    def test_faster_links_help(self) -> None:
        for splits in ({"tensor": 8}, {"context": 8}, {"expert": 8}, {"tensor": 4, "pipeline": 4}):
            asked = setting("mixtral-8x7b", 32, 4, splits)
            slow, fast = (step_time.step_time(asked, H100, Links(100 * by, 100 * by)).step_s for by in (1, 4))
            assert fast < slow


class TestPublished:
    @pytest.mark.parametrize(
        ("name", "gpus", "splits", "train", "rate"),
        [
            # torchtitan, asyncTP_llama3_h100_2025-06_torchtitan.md, without asynchronous TP
            ("llama-3.1-70b", 256, {"tensor": 8}, {"micro_batch": 16}, 597.3),
            ("llama-3.1-70b", 256, {"tensor": 8}, {"micro_batch": 16, "fp8": True}, 809.8),
            # torchtitan, llama3_h100_202412_torchtitan.md
            ("llama-3.1-8b", 8, {"context": 2}, {"seq_len": 65536, "fp8": True}, 2540),
            ("llama-3.1-8b", 8, {}, {"micro_batch": 2, "act_ckpt": "selective-op", "fp8": True}, 8532),
        ],
    )
    def test_tokens_per_second(
        self, name: str, gpus: int, splits: dict[str, int], train: dict[str, Any], rate: float
    ) -> None:
        """H100 with slower memory than usual."""
        asked = setting(name, gpus, max(1, gpus // 8), splits, **({"seq_len": 8192, "compile": True} | train))
        took = step_time.step_time(asked, H100._replace(memory_gbps=2400), LINKS)
        length = train.get("seq_len", 8192)
        planned = asked.train.micro_batch * length * data_parallel_ranks(asked) / gpus / took.step_s  # type: ignore[operator]
        assert planned == pytest.approx(rate, rel=0.25)

    @pytest.mark.parametrize("context", [2, 4, 8])
    def test_memory_of_split_sequences_stays_as_they_grow(self, context: int) -> None:
        """torchtitan reserves 84 GiB for 32,768 tokens per rank, whatever the number of ranks."""
        asked = setting("llama-3.1-8b", 8, 1, {"context": context}, seq_len=32768 * context, compile=True)
        assert estimate_candidate(asked).peak_allocated_bytes_per_gpu == pytest.approx(84 * GIB, rel=0.15)


class TestCandidates:
    def test_offered_where_they_apply(self) -> None:
        moe = split_layouts(setting("qwen3-30b-a3b", 16, 2))
        assert {each.expert for each in moe if each.expert} == {8, 16}
        assert not any(each.expert for each in split_layouts(setting("llama-3.1-8b", 16, 2)))
        assert any(each.context for each in split_layouts(setting("llama-3.1-8b", 8, seq_len=32768)))
        assert not split_layouts(setting("t5-large", 8))
        assert not split_layouts(setting("llama-3.1-8b", 1))

    def test_a_step_has_as_many_tokens_as_without_splitting(self) -> None:
        rows = plan_candidates(_unplanned("llama-3.1-8b"), LINKS)
        tokens = {round(row.candidate.tokens_per_s * row.candidate.step_seconds) for row in rows}  # type: ignore[operator]
        assert len(tokens) == 1
        assert any(row.setting.layout.tensor for row in rows)

    def test_plain_strategies_that_fit_come_first(self) -> None:
        rows = plan_candidates(_unplanned("llama-3.1-8b"), LINKS)
        fitting = [row.setting.layout.splits_model for row in rows if row.candidate.fits is True]
        assert fitting.index(True) > fitting.index(False)

    @pytest.mark.parametrize(
        ("name", "written"), [("llama-3.1-8b", {"tensor", "context"}), ("mixtral-8x7b", {"context", "expert"})]
    )
    def test_files_split_sequences_experts_and_layers_without_experts(self, name: str, written: set[str]) -> None:
        rows = [
            row for row in plan_candidates(_unplanned(name, seq_len=8192), LINKS) if row.setting.layout.splits_model
        ]
        for row in rows:
            (split,) = (each for each, size in row.setting.layout.splits.items() if size > 1)
            lacking = row.candidate.without_files
            assert bool(lacking) == (split not in written)
            assert ("no files yet for" in row.candidate.why_not) == bool(lacking) or not row.candidate.works
            if lacking:
                with pytest.raises(UnwritablePlanError) as refused:
                    render_job_files(row.setting, "train.py")
                assert "init_device_mesh" in refused.value.next_step
            else:
                assert render_job_files(row.setting, "train.py")
        shown = "\n".join(render_table(rows[0].setting, [row.candidate for row in rows], []))
        assert ("(split layers with experts)" in shown) == ("expert" in written)
        assert {"tensor", "context"} <= {
            each for row in rows for each, size in row.setting.layout.splits.items() if size > 1
        }

    @pytest.mark.parametrize(
        ("splits", "text"),
        [
            ({"tensor": 16}, "8 GPUs on a node"),
            ({"tensor": 3}, "GPUs"),
            ({"expert": 4}, "no experts"),
            ({"pipeline": 64}, "layers"),
        ],
    )
    def test_numbers_that_divide_nothing_are_refused(self, splits: dict[str, int], text: str) -> None:
        with pytest.raises(UserError, match=text):
            check_split(setting("llama-3.1-8b", 64, 8, splits))


def _unplanned(name: str, seq_len: int = 4096) -> TrainingSetup:
    asked = TrainingSetup(
        model=catalog.MODELS[name],
        train=TrainingOptions(micro_batch=1, seq_len=seq_len),
        gpus=8,
        gpu="H100",
        gpu_memory_gib=79.1,
    )
    return spec.fill_defaults(asked)[0]


@pytest.mark.parametrize(
    ("splits", "gpus", "mesh"),
    [
        ({"tensor": 8}, 16, '(2, 8), mesh_dim_names=("dp_shard", "tp")'),
        ({"tensor": 8, "pipeline": 2}, 16, '(2, 8), mesh_dim_names=("pp", "tp")'),
        ({"tensor": 4, "pipeline": 2}, 16, '(2, 2, 4), mesh_dim_names=("pp", "dp_shard", "tp")'),
        ({"context": 8}, 8, '(8,), mesh_dim_names=("cp",)'),
        ({"expert": 8}, 16, '(2, 8), mesh_dim_names=("dp_shard", "ep")'),
    ],
)
def test_mesh_has_all_ranks(splits: dict[str, int], gpus: int, mesh: str) -> None:
    asked = setting("mixtral-8x7b", gpus, gpus // 8, splits)
    assert script_changes.mesh_line(asked).endswith(f'("cuda", {mesh})')
    assert any(mesh in each for each in script_changes.required_changes(asked))
