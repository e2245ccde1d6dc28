"""Properties of the memory estimate for arbitrary settings."""

import json
import math
from typing import Any, get_args

import msgspec
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.memory import activations
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.model_states import model_states
from ddpwizard.app.plan.memory.peak import estimate_candidate
from ddpwizard.app.plan.types import Candidate, Dtype, Model, Strategy, TrainingOptions, TrainingSetup
from hypothesis import given
from hypothesis import strategies as st

MODELS: list[dict[str, Any]] = [
    {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336, "vocab": 128256, "params": 8e9},
    {"layers": 48, "hidden": 1600, "heads": 25, "vocab": 50257, "tied": True, "mlp": "gelu", "name": "gpt2-xl"}
    | {"params": 1.56e9},
    {"layers": 24, "hidden": 1024, "heads": 16, "intermediate": 4096, "mlp": "relu", "params": 3e8},
    {"layers": 48, "hidden": 1024, "heads": 32, "intermediate": 16384, "vocab": 32128, "name": "t5-3b", "tied": True}
    | {"mlp": "relu", "params": 2.85e9},
    {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 28672, "vocab": 32000, "params": 46.7e9}
    | {"experts": 8, "experts_per_token": 2, "active_params": 12.9e9},
    {"layers": 24, "hidden": 1024, "heads": 16, "kind": "vision", "mlp": "gelu", "note": "no LM head", "params": 3e8},
    {"params": 7e9},
]
maybe = st.none() | st.booleans()
lora = st.none() | st.fixed_dictionaries(
    {
        "r": st.sampled_from([1, 8, 64]),
        "target": st.sampled_from([None, "q,v", "all-linear", "c_attn", "gate_proj", "x"]),
    }
)
trains = st.fixed_dictionaries(
    {
        "dtype": st.none() | st.sampled_from(get_args(Dtype)),
        "optimizer": st.sampled_from([None, "adamw", "adam", "adamw-8bit", "adafactor", "muon", "sgd", "lion"]),
        "optimizer_impl": st.sampled_from([None, "fused", "foreach"]),
        "optimizer_state_dtype": st.sampled_from([None, "fp32", "bf16"]),
        "master_dtype": st.sampled_from([None, "fp32", "bf16"]),
        "optimizer_in_bwd": st.booleans(),
        "micro_batch": st.sampled_from([None, 1, 3, 64]),
        "seq_len": st.sampled_from([None, 1, 512, 32768]),
        "grad_accum": st.sampled_from([None, 1, 8]),
        "act_ckpt": st.sampled_from([None, "none", "full", "selective-op", "selective-layer"]),
        "act_offload": st.booleans(),
        "attention": st.sampled_from([None, "flash", "eager"]),
        "loss": st.sampled_from([None, "eager", "compiled", "chunked", "fused-linear"]),
        "compile": st.booleans(),
        "dropout": st.sampled_from([None, 0.0, 0.1]),
        "lora": lora,
        "quant": st.sampled_from([None, "nf4", "nf4-dq", "gptq-int4"]),
        "alloc": st.sampled_from([None, "expandable_segments"]),
        "packed": st.booleans(),
    }
)
layouts = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["single", "ddp", "zero-optimizer", "fsdp1", "fsdp2", "hsdp", "deepspeed"]),
        "sharding": st.sampled_from([None, "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]),
        "reshard_after_forward": maybe | st.just(4),
        "stage": st.sampled_from([None, 0, 1, 2, 3]),
        "offload_optimizer": st.sampled_from([None, "cpu", "nvme"]),
        "offload_param": st.sampled_from([None, "cpu", "nvme"]),
        "cpu_offload": st.booleans(),
        "overlap_comm": maybe,
        "gradient_as_bucket_view": st.booleans(),
    }
)
machines = st.sampled_from([(1, 1), (2, 1), (8, 1), (64, 8)])
questions = st.builds(
    lambda model, train, strategy, machine, memory: {
        "model": model,
        "train": train | ({} if train["lora"] else {"quant": None}),
        "strategy": strategy | ({"kind": "single"} if machine == (1, 1) and strategy["kind"] == "ddp" else {}),
        "gpus": machine[0],
        "nodes": machine[1],
        "gpu_memory_gib": memory,
    },
    st.sampled_from(MODELS),
    trains,
    layouts,
    machines,
    st.sampled_from([None, 15.8, 79.1]),
)


def asked(question: dict[str, Any]) -> TrainingSetup:
    return spec.fill_defaults(spec.parse_spec(json.dumps(question).encode()))[0]


def changed(setting: TrainingSetup, **train: Any) -> TrainingSetup:
    return msgspec.structs.replace(setting, train=msgspec.structs.replace(setting.train, **train))


def peak(setting: TrainingSetup) -> float:
    return estimate_candidate(setting).peak_allocated_bytes_per_gpu


@given(questions)
def test_every_setting_has_a_finite_estimate(question: dict[str, Any]) -> None:
    found: Candidate = estimate_candidate(asked(question))
    figures = [
        found.peak_allocated_bytes_per_gpu,
        found.peak_reserved_bytes_per_gpu,
        found.device_used_bytes_per_gpu,
        found.band.low,
        found.band.high,
    ]
    parts = msgspec.structs.asdict(found.breakdown)
    assert all(math.isfinite(each) and each > 0 for each in figures)
    assert all(math.isfinite(each) and each >= 0 for each in parts.values())
    assert figures[:3] == sorted(figures[:3])
    assert found.band.low <= found.peak_reserved_bytes_per_gpu <= found.band.high * 1.0001
    assert math.isclose(sum(parts.values()), found.device_used_bytes_per_gpu, rel_tol=1e-6)


@given(questions)
def test_larger_settings_never_need_less(question: dict[str, Any]) -> None:
    setting = asked(question)
    train, model = setting.train, setting.model
    more = [
        changed(setting, micro_batch=2 * (train.micro_batch or 1)),
        changed(setting, seq_len=2 * (train.seq_len or 1)),
        msgspec.structs.replace(setting, model=_larger(model)),
    ]
    now = peak(setting)
    assert all(peak(each) >= now for each in more)


def _larger(model: Model) -> Model:
    layers, active = model.layers and 2 * model.layers, model.active_params and 2 * model.active_params
    return msgspec.structs.replace(model, params=2 * model.params, active_params=active, layers=layers)


@given(questions)
def test_more_gpus_never_increase_states_per_gpu(question: dict[str, Any]) -> None:
    setting = asked(question)
    doubled = msgspec.structs.replace(setting, gpus=2 * setting.gpus, nodes=2 * setting.nodes)
    now, then = model_states(setting), model_states(doubled)
    assert then.total <= now.total * 1.0001


@given(questions)
def test_more_checkpointing_saves_less(question: dict[str, Any]) -> None:
    setting = asked(question)
    kept = {
        mode: total_bytes(activations.stored_terms(changed(setting, act_ckpt=mode, act_offload=False)))
        for mode in ("full", "selective-op", "selective-layer", "none")
    }
    for mode in ("selective-op", "selective-layer"):
        assert kept["full"] <= kept[mode] <= kept["none"]


@given(questions)
def test_fused_attention_and_loss_never_need_more(question: dict[str, Any]) -> None:
    setting = asked(question)
    assert peak(changed(setting, attention="flash")) <= peak(changed(setting, attention="eager"))
    long = changed(
        setting, micro_batch=64, seq_len=4096
    )  # so that the loss is large compared with the gradient of the head
    losses = [peak(changed(long, loss=each)) for each in ("fused-linear", "chunked", "eager")]
    assert losses[0] <= losses[2]
    assert losses[1] <= losses[2]


def test_null_fields_are_as_missing_fields() -> None:
    stated: dict[str, Any] = {"model": {"params": 7e9}, "train": {}, "strategy": {"kind": "ddp"}, "gpus": 8}
    nulls: dict[str, Any] = stated | {name: None for name in TrainingSetup.__struct_fields__ if name not in stated}
    for part, kind in (("model", Model), ("train", TrainingOptions), ("strategy", Strategy)):
        nulls[part] = dict.fromkeys(kind.__struct_fields__) | stated[part]
    nulls["train"]["lora"] = {"r": None, "alpha": None, "target": None}
    stated["train"] = {"lora": {}}
    assert asked(nulls) == asked(stated)
