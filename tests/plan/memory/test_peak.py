"""Model states against the published formulas, and the peak with its parts."""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.plan.memory.activations import held_bytes_per_logit, logits_terms
from ddpwizard.app.plan.memory.block_tensors import block_activation_bytes, block_terms
from ddpwizard.app.plan.memory.computation import inner_width_bytes, residual_stream_bytes, target_tokens
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.gathered_weights import gathered_terms
from ddpwizard.app.plan.memory.model_states import all_parameters, model_states
from ddpwizard.app.plan.memory.peak import estimate_candidate, judge_fit
from ddpwizard.app.plan.memory.temporaries import autocast_terms, non_torch_terms, optimizer_step_terms
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.model.hf_config import model_from_config
from ddpwizard.app.plan.model.parameter_counts import attention_width, expert_params, trained_params
from ddpwizard.app.plan.model.parameters import EIGHT_BIT_STATE_BYTES
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.strategies.evaluate import largest_micro_batch
from ddpwizard.app.plan.types import Lora, Model, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.units import GIB, MIB

SEVEN = Model(params=7.5e9, layers=36, hidden=4096, heads=32, intermediate=16384, vocab=50257, mlp="gelu")
LLAMA_8B = Model(
    params=8.03e9, layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=128256, mlp="swiglu"
)
T5 = Model(
    name="t5-3b",
    params=2.851e9,
    layers=48,
    hidden=1024,
    heads=32,
    intermediate=16384,
    vocab=32128,
    tied=True,
    mlp="relu",
)
LLAMA = Model(params=6.738e9, layers=32, hidden=4096, heads=32, intermediate=11008, vocab=32000)


def setting(model: Model = LLAMA, strategy: Strategy | None = None, gpus: int = 8, **train: object) -> TrainingSetup:
    values = {"dtype": "bf16-mixed", "micro_batch": 1, "seq_len": 4096} | train
    return fill_defaults(
        TrainingSetup(
            model=model,
            train=msgspec.convert(values, TrainingOptions),
            gpus=gpus,
            strategy=strategy,
            gpu_memory_gib=79.1,
        )
    )[0]


def _copies(whole: TrainingSetup) -> float:
    return total_bytes(autocast_terms(whole))


class TestStates:
    """Section 3 of the ZeRO paper: 16 bytes per parameter, split further with each stage."""

    @pytest.mark.parametrize(
        ("stage", "ranks", "per_param"), [(0, 64, 16), (1, 64, 4 + 12 / 64), (2, 64, 2 + 14 / 64), (3, 64, 16 / 64)]
    )
    def test_states_of_each_zero_stage(self, stage: int, ranks: int, per_param: float) -> None:
        strategy = msgspec.convert({"kind": "deepspeed", "stage": stage}, Strategy)
        kept = model_states(setting(SEVEN, strategy, ranks, dtype="fp16-deepspeed"))
        assert kept.total == pytest.approx(SEVEN.params * per_param)

    def test_ddp_replicates_all_states(self) -> None:
        assert model_states(setting(strategy=Strategy(kind="ddp"))).total == pytest.approx(16 * LLAMA.params)

    def test_fsdp_shards_all_states(self) -> None:
        assert model_states(setting(strategy=Strategy(kind="fsdp2"))).total == pytest.approx(2 * LLAMA.params)

    def test_hybrid_sharding_shards_within_a_node(self) -> None:
        for strategy in (Strategy(kind="hsdp"), Strategy(kind="fsdp1", sharding="HYBRID_SHARD")):
            two_nodes = msgspec.structs.replace(setting(strategy=strategy, gpus=16), nodes=2)
            assert model_states(two_nodes).total == pytest.approx(2 * LLAMA.params)

    def test_offload_moves_states_to_the_host(self) -> None:
        kept = model_states(setting(strategy=Strategy(kind="fsdp2", cpu_offload=True)))
        assert kept.total == 0
        assert kept.host_bytes == pytest.approx(2 * LLAMA.params)

    def test_adapters_on_a_16_bit_base_are_fp32(self) -> None:
        kept = model_states(
            setting(strategy=Strategy(kind="single"), gpus=1, dtype="bf16", lora=Lora(r=8, target="q,v"))
        )
        adapters = 32 * 8 * (2 * 4096 * 2)
        assert kept.total == pytest.approx(2 * LLAMA.params + 16 * adapters)

    def test_only_adapters_have_gradients(self) -> None:
        kept = model_states(
            setting(strategy=Strategy(kind="single"), gpus=1, dtype="bf16-pure", lora=Lora(r=8, target="q,v"))
        )
        adapters = 32 * 8 * (2 * 4096 * 2)
        assert total_bytes(kept.grads) == pytest.approx(2 * adapters)
        assert total_bytes(kept.params) == pytest.approx(2 * (LLAMA.params + adapters))


class TestPeak:
    def test_breakdown_adds_up_to_the_peak(self) -> None:
        found = estimate_candidate(setting(strategy=Strategy(kind="fsdp2")))
        parts = msgspec.structs.asdict(found.breakdown)
        assert sum(parts.values()) == pytest.approx(found.device_used_bytes_per_gpu)
        assert sum(parts.values()) - parts["gaps"] - parts["context"] == pytest.approx(
            found.peak_allocated_bytes_per_gpu
        )
        assert found.band.low <= found.peak_reserved_bytes_per_gpu <= found.band.high
        assert found.device_used_bytes_per_gpu > found.peak_reserved_bytes_per_gpu

    def test_checkpointing_reduces_activations(self) -> None:
        all_kept, recomputed = (
            estimate_candidate(setting(strategy=Strategy(kind="fsdp2"), act_ckpt=mode)) for mode in ("none", "full")
        )
        assert recomputed.peak_allocated_bytes_per_gpu < all_kept.peak_allocated_bytes_per_gpu / 2

    def test_fused_loss_removes_the_logits(self) -> None:
        long = {"strategy": Strategy(kind="fsdp2"), "act_ckpt": "full", "seq_len": 32768}
        eager, fused = (estimate_candidate(setting(LLAMA_8B, **long, loss=loss)) for loss in ("eager", "fused-linear"))  # type: ignore[arg-type]
        assert (eager.peak_phase, fused.peak_phase) == ("loss", "backward")
        assert eager.breakdown.loss > 32768 * 128256 * 8
        assert fused.peak_allocated_bytes_per_gpu < eager.peak_allocated_bytes_per_gpu

    def test_ddp_buckets_are_counted(self) -> None:
        copied, viewed = (
            estimate_candidate(
                setting(strategy=Strategy(kind="ddp", gradient_as_bucket_view=view), loss="fused-linear", seq_len=64)
            )
            for view in (False, True)
        )
        assert {copied.peak_phase, viewed.peak_phase} == {"step"}
        difference = copied.peak_allocated_bytes_per_gpu - viewed.peak_allocated_bytes_per_gpu
        assert difference == pytest.approx(4 * LLAMA.params)

    def test_gradient_bucket_views_exist_in_the_forward_pass(self) -> None:
        """zero_grad does not free them (torch 2.13: the same memory at the loss with gradient_as_bucket_view as
        without it, from the third step on)."""
        copied, viewed = (
            estimate_candidate(setting(strategy=Strategy(kind="ddp", gradient_as_bucket_view=view), seq_len=32768))
            for view in (False, True)
        )
        assert {copied.peak_phase, viewed.peak_phase} == {"loss"}
        assert viewed.peak_allocated_bytes_per_gpu == pytest.approx(copied.peak_allocated_bytes_per_gpu, rel=0.001)
        assert viewed.breakdown.grads == 4 * LLAMA.params == copied.breakdown.buffers - viewed.breakdown.buffers

    def test_offloading_never_needs_more_gpu_memory(self) -> None:
        kept, offloaded = (
            estimate_candidate(
                setting(LLAMA_8B, strategy=Strategy(kind="deepspeed", stage=3, offload_param=to, offload_optimizer=to))
            )
            for to in (None, "cpu")
        )
        assert offloaded.device_used_bytes_per_gpu < kept.device_used_bytes_per_gpu

    def test_the_residual_stream_is_fp32_under_autocast(self) -> None:
        single = Strategy(kind="single")
        mixed, pure = (
            estimate_candidate(setting(strategy=single, gpus=1, dtype=dtype, act_ckpt="full", optimizer="sgd"))
            for dtype in ("bf16-mixed", "bf16-pure")
        )
        assert mixed.breakdown.activations == 2 * pure.breakdown.activations

    def test_autocast_keeps_16_bit_copies_of_unsharded_weights(self) -> None:
        whole, sharded = (setting(strategy=Strategy(kind=kind)) for kind in ("ddp", "fsdp2"))  # type: ignore[arg-type]
        assert (_copies(whole), _copies(sharded)) == (2 * LLAMA.params, 0)

    @pytest.mark.parametrize("more", [{"quant": "nf4"}, {"act_ckpt": "full"}])
    def test_autocast_keeps_no_copies_of_quantised_or_recomputed_weights(self, more: dict[str, str]) -> None:
        rank = {"strategy": Strategy(kind="single"), "gpus": 1, "dtype": "fp16-mixed", "lora": Lora(r=8)}
        kept, without = setting(**rank), setting(**rank, **more)  # type: ignore[arg-type]
        assert _copies(kept) == 2 * LLAMA.params
        assert _copies(without) == 2 * trained_params(LLAMA, without.train)

    def test_a_16_bit_master_copy_needs_no_fp32_gradients(self) -> None:
        stage = Strategy(kind="deepspeed", stage=3)
        masters: tuple[dict[str, object], ...] = ({}, {"master_dtype": "bf16", "optimizer_state_dtype": "bf16"})
        usual, low = (
            estimate_candidate(setting(SEVEN, stage, 4, dtype="bf16-deepspeed", seq_len=512, act_ckpt="full", **master))
            for master in masters
        )
        assert low.model_state_bytes_per_gpu == pytest.approx(10 / 16 * usual.model_state_bytes_per_gpu)
        assert usual.breakdown.temporaries > low.breakdown.temporaries

    @pytest.mark.parametrize(("stage", "buckets"), [(2, 2), (3, 1)])
    def test_buckets_of_deepspeed_have_their_size_for_adapters_too(self, stage: Any, buckets: int) -> None:
        small, usual = (
            estimate_candidate(
                setting(
                    strategy=Strategy(kind="deepspeed", stage=stage, reduce_bucket_size=size),
                    dtype="bf16",
                    lora=Lora(r=8),
                )
            )
            for size in (1e6, None)
        )
        assert usual.breakdown.buffers - small.breakdown.buffers == pytest.approx(buckets * 2 * (5e8 - 1e6))

    def test_gathered_modules_of_deepspeed_are_matrices(self) -> None:
        """A block of Llama 2 70B has 856 million elements, its largest matrix, the embedding, 262 million."""
        model = catalog.MODELS["llama-2-70b"]
        found = gathered_terms(setting(model, Strategy(kind="deepspeed", stage=3), dtype="bf16-deepspeed"))
        gathered = next(each for each in found if each.what == "gathered modules")
        assert gathered.bytes == pytest.approx(2 * (1e9 + 32000 * 8192), rel=0.01)

    def test_step_of_deepspeed_copies_gradients_flat_and_in_fp32(self) -> None:
        """Its modules are sharded by then, so that the step of a small batch is the peak (published: 31.4 GiB)."""
        model = msgspec.structs.replace(SEVEN, params=6.86e9, layers=32)
        stage = Strategy(kind="deepspeed", stage=3, reduce_bucket_size=1e6)
        found = estimate_candidate(setting(model, stage, 4, dtype="bf16-deepspeed", seq_len=512, act_ckpt="full"))
        assert found.peak_phase == "step"
        assert found.peak_allocated_bytes_per_gpu == pytest.approx(31.38 * GIB, rel=0.02)

    def test_t5_has_wide_heads(self) -> None:
        assert attention_width(T5) == pytest.approx(128 * 32, rel=0.01)
        assert attention_width(LLAMA) == LLAMA.hidden

    def test_offloaded_parameters_are_gathered_unless_recomputed(self) -> None:
        away = Strategy(kind="deepspeed", stage=3, offload_optimizer="cpu", offload_param="cpu")
        kept, again = (
            estimate_candidate(setting(strategy=away, gpus=1, dtype="bf16-deepspeed", seq_len=64, act_ckpt=mode))
            for mode in ("none", "full")
        )
        assert kept.breakdown.buffers - again.breakdown.buffers > LLAMA.params

    def test_quantised_weight_in_use_is_unpacked(self) -> None:
        lora = {"strategy": Strategy(kind="single"), "gpus": 1, "act_ckpt": "full", "seq_len": 64, "lora": Lora(r=8)}
        plain, quantised = (
            estimate_candidate(setting(dtype="bf16", quant=quant, **lora))  # type: ignore[arg-type]
            for quant in (None, "gptq-int4")
        )
        assert quantised.breakdown.params < plain.breakdown.params / 3
        assert quantised.breakdown.temporaries > plain.breakdown.temporaries + 2 * 4096 * 11008

    @pytest.mark.parametrize(
        ("gib", "gpus", "train"),
        [
            (82.4, 8, {"micro_batch": 2, "seq_len": 8192, "act_ckpt": "selective-op", "keeps_logits": False}),
            (
                77.0,
                8,
                {"micro_batch": 2, "seq_len": 8192, "act_ckpt": "selective-op", "compile": True, "keeps_logits": False},
            ),
            (67.0, 128, {"micro_batch": 2, "seq_len": 8192, "act_ckpt": "selective-op", "keeps_logits": False}),
            (83.9, 8, {"micro_batch": 1, "seq_len": 32768, "act_ckpt": "full", "keeps_logits": False}),
        ],
    )
    def test_reserved_memory_matches_torchtitan(self, gib: float, gpus: int, train: dict[str, object]) -> None:
        """docs/performance.md of torchtitan (2024): Llama-3.1-8B with FSDP2 on H100 of 96 GB."""
        whole = setting(LLAMA_8B, Strategy(kind="fsdp2"), gpus, **train)
        found = estimate_candidate(msgspec.structs.replace(whole, gpu_memory_gib=95.0))
        assert found.peak_reserved_bytes_per_gpu / GIB == pytest.approx(gib, rel=0.1)

    @pytest.mark.parametrize(
        ("change", "grows"),
        [({}, True), ({"packed": True}, False), ({"data": "fixed"}, False), ({"alloc": "expandable_segments"}, False)],
    )
    def test_varying_lengths_fragment_memory(self, change: dict[str, object], grows: bool) -> None:
        lora = {"strategy": Strategy(kind="single"), "gpus": 1, "dtype": "bf16", "act_ckpt": "full", "lora": Lora(r=8)}
        found = estimate_candidate(setting(micro_batch=4, **lora, **change))  # type: ignore[arg-type]
        gaps = found.peak_reserved_bytes_per_gpu - found.peak_allocated_bytes_per_gpu
        assert (gaps > found.breakdown.loss) == grows

    @pytest.mark.parametrize("lora", [None, Lora(r=8)])
    def test_single_sequences_fragment_memory_if_their_lengths_vary(self, lora: Lora | None) -> None:
        """A script may pad a single sequence to the full length, so only the request can tell."""
        given = {"act_ckpt": "full", "lora": lora, "dtype": "bf16-pure", "optimizer": "sgd"}
        unstated, fixed, varying = (
            estimate_candidate(
                msgspec.structs.replace(
                    setting(LLAMA_8B, Strategy(kind="single"), 1, data=data, **given), gpu_memory_gib=None
                )
            )
            for data in (None, "fixed length", "variable length")
        )
        assert unstated.peak_reserved_bytes_per_gpu == fixed.peak_reserved_bytes_per_gpu
        more = varying.peak_reserved_bytes_per_gpu - fixed.peak_reserved_bytes_per_gpu
        assert more > varying.breakdown.loss == fixed.breakdown.loss > 0

    def test_reserved_memory_is_limited_by_the_gpu(self) -> None:
        lora = {"strategy": Strategy(kind="single"), "gpus": 1, "dtype": "bf16", "act_ckpt": "full", "lora": Lora(r=8)}
        found = estimate_candidate(setting(LLAMA_8B, micro_batch=5, **lora))  # type: ignore[arg-type]
        assert found.device_used_bytes_per_gpu <= 79.1 * GIB < found.band.high
        assert found.fits == "tight"

    def test_frozen_layers_save_inputs_only_with_4_bit_or_stage_3(self) -> None:
        one = {"gpus": 1, "dtype": "bf16", "lora": Lora(r=8)}
        plain = block_activation_bytes(setting(strategy=Strategy(kind="single"), **one))  # type: ignore[arg-type]
        inputs = 4096 * (2 * 4096 + 11008) * 2
        in_4_bit = {"strategy": Strategy(kind="single"), "quant": "nf4", "upcast_frozen": False}
        quantised = block_activation_bytes(setting(**in_4_bit, **one))  # type: ignore[arg-type]
        third = block_activation_bytes(setting(strategy=Strategy(kind="deepspeed", stage=3), **one))  # type: ignore[arg-type]
        assert (quantised - plain, third - plain) == (inputs, inputs)

    @pytest.mark.parametrize(
        ("layout", "changes", "width"),
        [
            (Strategy(kind="single"), {}, 4),
            (Strategy(kind="ddp"), {"dtype": "fp16"}, 4),
            (Strategy(kind="single"), {"quant": "gptq-int4"}, 2),
            (Strategy(kind="single"), {"dtype": "bf16-pure"}, 2),
            (Strategy(kind="single"), {"upcast_frozen": False}, 2),
            (Strategy(kind="fsdp2"), {}, 2),
            (Strategy(kind="fsdp2"), {"upcast_frozen": True}, 4),
            (Strategy(kind="deepspeed", stage=2), {}, 2),
        ],
    )
    def test_weights_that_are_not_in_4_bit_are_in_fp32_as_peft_casts_them(
        self, layout: Strategy, changes: dict[str, Any], width: int
    ) -> None:
        train = {"dtype": "bf16", "lora": Lora(r=8), "quant": "nf4"} | changes
        whole = setting(LLAMA_8B, layout, 1, **train)
        tables = [each for each, _ in all_parameters(whole) if each.role in ("table", "head", "vector")]
        assert {each.frozen for each in tables} == {width}
        assert residual_stream_bytes(whole) == inner_width_bytes(whole) == width
        assert held_bytes_per_logit(whole) == width

    def test_compiled_block_recomputes_norms_and_gates(self) -> None:
        single = {"strategy": Strategy(kind="single"), "gpus": 1, "dtype": "bf16-pure"}
        eager, compiled = (block_activation_bytes(setting(compile=compiled, **single)) for compiled in (False, True))  # type: ignore[arg-type]
        assert eager == 4096 * 2 * (12 * 4096 + 4 * 11008)
        assert compiled == 4096 * 2 * (8 * 4096 + 3 * 11008)

    def test_gpt2_gelu_saves_elementary_operations(self) -> None:
        written, fused = (
            block_activation_bytes(
                setting(
                    Model(name=name, params=1.56e9, layers=48, hidden=1600, heads=25, mlp="gelu"), dtype="bf16-pure"
                )
            )
            for name in ("gpt2-xl", "mine")
        )
        assert written - fused == 4096 * 3 * 4 * 1600 * 2

    def test_fsdp1_adapters_in_a_flat_parameter(self) -> None:
        """litgpt's resource tables: Llama-2 7B with LoRA over 2 GPUs needs 22.2 GB, one micro-batch of it in a step."""
        flat = Strategy(kind="fsdp1", sharding="FULL_SHARD")
        rank = {"strategy": flat, "gpus": 2, "dtype": "bf16-pure", "lora": Lora(r=8)}
        once, accumulating = (total_bytes(model_states(setting(grad_accum=count, **rank)).grads) for count in (1, 8))  # type: ignore[arg-type]
        assert once == pytest.approx(LLAMA.params, rel=0.01)
        assert accumulating == pytest.approx(2 * LLAMA.params, rel=0.01)

    def test_muon_leaves_embedding_and_head_to_adamw(self) -> None:
        muon, adam = (
            total_bytes(model_states(setting(LLAMA_8B, Strategy(kind="single"), 1, optimizer=name)).optimizer)
            for name in ("muon", "adamw")
        )
        assert adam - muon == pytest.approx(4 * (LLAMA_8B.params - 2 * 128256 * 4096))

    def test_last_block_and_root_are_gathered_at_the_loss(self) -> None:
        whole = setting(LLAMA_8B, Strategy(kind="fsdp2"), seq_len=16384, act_ckpt="full")
        found = estimate_candidate(whole)
        root = 2 * 128256 * 4096
        assert found.peak_phase == "loss"
        assert found.breakdown.buffers == pytest.approx(2 * (root + (LLAMA_8B.params - root) / 32))

    def test_experts_are_uneven_with_more_ranks_than_experts(self) -> None:
        """Eight experts in one tensor over 32 ranks: a rank has one of them or none, and buffers 32 shares of one."""
        mixtral = catalog.MODELS["mixtral-8x7b"]
        by_rows, by_columns = (
            estimate_candidate(setting(mixtral, Strategy(kind="fsdp2", experts_by_columns=split), 32, seq_len=2048))
            for split in (False, True)
        )
        experts = expert_params(mixtral)
        assert by_rows.model_state_bytes_per_gpu - by_columns.model_state_bytes_per_gpu == pytest.approx(
            16 * experts * (1 / 8 - 1 / 32), rel=0.001
        )
        assert by_rows.peak_allocated_bytes_per_gpu / GIB == pytest.approx(131, rel=0.01)
        assert by_columns.peak_allocated_bytes_per_gpu < by_rows.peak_allocated_bytes_per_gpu / 2

    def test_embedding_and_head_as_units_of_their_own(self) -> None:
        together, apart = (
            estimate_candidate(
                setting(LLAMA_8B, Strategy(kind="fsdp2", own_table_units=own), seq_len=16384, act_ckpt="full")
            )
            for own in (False, True)
        )
        assert together.breakdown.buffers - apart.breakdown.buffers == pytest.approx(2 * 128256 * 4096)

    def test_a_loop_holds_its_logits(self) -> None:
        held, deleted = (
            estimate_candidate(setting(LLAMA_8B, Strategy(kind="fsdp2"), seq_len=32768, keeps_logits=keeps))
            for keeps in (True, False)
        )
        assert held.breakdown.loss - deleted.breakdown.loss == 2 * 32768 * 128256

    @pytest.mark.parametrize(
        ("name", "kind", "dtype", "width"),
        [
            ("t5-3b", "encoder-decoder", "bf16-deepspeed", 2),
            ("t5-3b", "encoder-decoder", "bf16-pure", 2),
            ("t5-3b", "encoder-decoder", "bf16-mixed", 4),  # autocast
            ("t5-3b", "encoder-decoder", "fp32", 4),
            ("Qwen-7B", None, "bf16-deepspeed", 2),
            ("Qwen-7B", None, "bf16-mixed", 4),
            ("Qwen2.5-7B", None, "bf16-deepspeed", 4),
            ("Llama-2-7B", None, "bf16-pure", 4),
        ],
    )
    def test_the_loss_of_some_models_is_in_16_bit(self, name: str, kind: object, dtype: str, width: int) -> None:
        model = msgspec.structs.replace(LLAMA, name=name, kind=kind)
        whole = setting(model, Strategy(kind="single"), 1, dtype=dtype, keeps_logits=False)
        assert logits_terms(whole)[0].bytes == 3 * width * target_tokens(whole) * 32000

    def test_paged_states_are_on_the_host_where_the_gpu_is_full(self) -> None:
        kept = model_states(setting(LLAMA_8B, Strategy(kind="single"), 1, optimizer="paged-adamw-8bit"))
        on_gpu = model_states(setting(LLAMA_8B, Strategy(kind="single"), 1, optimizer="adamw-8bit"))
        assert total_bytes(kept.optimizer) < 0.001 * kept.host_bytes
        assert kept.host_bytes == pytest.approx(total_bytes(on_gpu.optimizer), rel=0.001)

    def test_ranks_that_share_the_vocabulary_copy_their_logits_once_more(self) -> None:
        split = Strategy(kind="fsdp2", reshard_after_forward=True, tensor=8)
        found = estimate_candidate(setting(LLAMA_8B, split, seq_len=32768, act_ckpt="full", keeps_logits=False))
        assert found.breakdown.loss == pytest.approx(32768 * 128256 / 8 * 4 * 4)

    @pytest.mark.parametrize(
        ("config", "keeps"),
        [({}, True), ({"multi_query": False}, False), ({"new_decoder_architecture": True, "num_kv_heads": 8}, False)],
    )
    def test_falcon_with_one_key_head_keeps_its_scores(self, config: dict[str, Any], keeps: bool) -> None:
        """It is computed in fp32 operations, which save a softmax for each head: 74 GiB on an H200."""
        sizes = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 65024}
        model, _ = model_from_config({"model_type": "falcon", **sizes, **config})
        asked = setting(model, Strategy(kind="single"), 1, seq_len=2048, dtype="bf16-pure", attention="flash")
        scores = sum(each.bytes for each in block_terms(asked) if each.what == "attention scores")
        assert scores == (32 * 2048 * 2048 * 4 if keeps else 0)

    @pytest.mark.parametrize(
        ("train", "expanded"),
        [
            ({}, False),
            ({"torch": "2.4"}, True),  # before enable_gqa
            ({"data": "variable length"}, True),  # a mask for the padding
            ({"micro_batch": 2, "data": "fixed length"}, False),
        ],
    )
    def test_fused_attention_takes_fewer_keys_than_heads(self, train: dict[str, Any], expanded: bool) -> None:
        """8 of 32 heads have keys and values: of 4 tensors of the hidden size 2.5 are left."""
        asked = setting(LLAMA_8B, Strategy(kind="single"), 1, seq_len=4096, **train)
        (saved,) = (each for each in block_terms(asked) if each.what.startswith("queries"))
        tokens = 4096 * (train.get("micro_batch") or 1)
        assert saved.bytes == pytest.approx(tokens * 4096 * 2 * (4 if expanded else 2.5))

    def test_a_loop_over_experts_has_the_gradients_of_one(self) -> None:
        mixtral = catalog.MODELS["mixtral-8x7b"]
        grouped, looped = (
            estimate_candidate(setting(mixtral, Strategy(kind="fsdp2"), act_ckpt="full", seq_len=32768, torch=version))
            for version in (None, "2.8")
        )
        inner = 2 * 14336 * 2  # of both experts of a token, for both factors of the gate
        assert grouped.breakdown.temporaries - looped.breakdown.temporaries == pytest.approx(32768 * inner * 2 * 7 / 8)

    def test_eight_bit_states_of_embeddings_are_fp32(self) -> None:
        kept = model_states(setting(LLAMA_8B, Strategy(kind="single"), 1, optimizer="adamw-8bit"))
        table = 128256 * 4096
        expected = 8 * table + EIGHT_BIT_STATE_BYTES * (LLAMA_8B.params - table)
        assert total_bytes(kept.optimizer) == pytest.approx(expected, rel=0.001)

    def test_offloaded_optimizer_of_deepspeed_has_fp32_gradients_on_the_host(self) -> None:
        away = Strategy(kind="deepspeed", stage=2, offload_optimizer="cpu")
        kept = model_states(setting(SEVEN, away, 8, dtype="bf16-deepspeed"))
        assert kept.host_bytes == pytest.approx((12 + 4) * SEVEN.params / 8)

    def test_optimizer_step_peak_matches_lightning(self) -> None:
        """docs of Lightning 2.1 (``model_parallel/fsdp.rst``): 1.009 B parameters in fp32 with Adam on 2 GPUs, short
        sequences, so that the step is the peak; MiB of ``torch.cuda.max_memory_allocated``."""
        demo = Model(params=1.009e9, layers=64, hidden=1024, heads=64, intermediate=4096, vocab=33278, mlp="relu")
        published = {"DDP": 23125, "NO_SHARD": 19296, "FULL_SHARD": 9627}
        for name, mib in published.items():
            strategy = Strategy(kind="ddp") if name == "DDP" else Strategy(kind="fsdp1", sharding=name)  # type: ignore[arg-type]
            found = estimate_candidate(setting(demo, strategy, 2, dtype="fp32", optimizer="adam", seq_len=35))
            assert found.peak_allocated_bytes_per_gpu / MIB == pytest.approx(mib, rel=0.01)

    @pytest.mark.parametrize(("used", "message"), [(50, True), (77, "tight"), (90, False)])
    def test_fit_with_and_without_spare_memory(self, used: float, message: object) -> None:
        assert judge_fit(80.0, used * GIB, used * GIB, GIB) == message
        assert judge_fit(None, used * GIB, used * GIB, GIB) is None
        assert judge_fit(80.0, 50 * GIB, 85 * GIB, GIB) == "tight"

    def test_largest_micro_batch_fits_and_one_more_does_not(self) -> None:
        whole = setting(strategy=Strategy(kind="fsdp2"), act_ckpt="full")
        most = largest_micro_batch(whole)
        at, over = (
            estimate_candidate(
                msgspec.structs.replace(whole, train=msgspec.structs.replace(whole.train, micro_batch=count))
            ).fits
            for count in (most, most + 1)
        )
        assert most >= 1
        assert at is True
        assert over is not True


def test_torch_1_loops_over_parameters_and_loads_all_kernels() -> None:
    def of(version: str | None) -> tuple[float, float]:
        whole = setting(strategy=Strategy(kind="single"), gpus=1, torch=version, dtype="fp32")
        return total_bytes(optimizer_step_terms(whole)), total_bytes(non_torch_terms(whole))

    assert of("1.10")[0] < 0.1 * of("2.4")[0]
    assert of("2.4") == of(None)
    assert of("1.10")[1] - of("1.13")[1] == pytest.approx(0.3 * GIB)


def test_adapters_without_dropout_save_no_other_tensors_on_a_4_bit_base() -> None:
    def saved(quant: str | None, dropout: float | None) -> float:
        lora = {"r": 8, "target": "all-linear", "dropout": dropout}
        return total_bytes(block_terms(setting(gpus=1, dtype="bf16", lora=lora, quant=quant)))

    masks = 4096 * (6 * 4096 + 11008)
    assert saved("nf4", None) - saved("nf4", 0) == 3 * masks
    assert saved(None, None) - saved(None, 0) == masks
