"""Peaks of transformers' models in training, by torch's trackers: full widths, few layers, many strategies."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from ddpwizard.app.plan import exact_memory
from ddpwizard.app.plan.memory.peak import estimate_candidate
from ddpwizard.app.plan.model import catalog, hf_config
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import PlanRow, Strategy, TrainingOptions, TrainingSetup

SHARDED, KEPT = {"kind": "fsdp2", "reshard_after_forward": True}, {"kind": "fsdp2", "reshard_after_forward": False}
SINGLE, DDP, HYBRID = {"kind": "single"}, {"kind": "ddp"}, {"kind": "hsdp", "shard_size": 8}
FOUR = {"num_hidden_layers": 4}


class TrackedCase(NamedTuple):
    """A model of the catalog with fewer layers, its strategy, ranks, and how it is trained."""

    model: str
    strategy: dict[str, Any]
    gpus: int
    train: dict[str, Any]
    config: dict[str, Any] = FOUR


CASES = {
    "Llama-3.1-8B, FSDP2": TrackedCase("Llama-3.1-8B", SHARDED, 8, {"seq_len": 4096}),
    "Llama-3.1-8B, FSDP2, recomputed, 32k": TrackedCase(
        "Llama-3.1-8B", SHARDED, 8, {"seq_len": 32768, "act_ckpt": "full"}
    ),
    "Llama-3.1-8B, FSDP2, 192 ranks": TrackedCase("Llama-3.1-8B", SHARDED, 192, {"seq_len": 2048}),
    "Llama-3.1-8B, kept": TrackedCase("Llama-3.1-8B", KEPT, 8, {"seq_len": 2048}),
    "Llama-3.1-8B, hybrid": TrackedCase("Llama-3.1-8B", HYBRID, 32, {"seq_len": 2048}),
    "Llama-3.2-1B, DDP": TrackedCase("Llama-3.2-1B", DDP, 8, {"seq_len": 2048}),
    "Llama-3.2-1B, single, fp32": TrackedCase("Llama-3.2-1B", SINGLE, 1, {"seq_len": 1024, "dtype": "fp32"}),
    "Mixtral-8x7B, 8 ranks": TrackedCase("Mixtral-8x7B", SHARDED, 8, {"seq_len": 2048}),
    "Mixtral-8x7B, 32 ranks": TrackedCase("Mixtral-8x7B", SHARDED, 32, {"seq_len": 2048}),
    "Mixtral-8x7B, 32 ranks, recomputed": TrackedCase(
        "Mixtral-8x7B", SHARDED, 32, {"seq_len": 4096, "act_ckpt": "full"}
    ),
    "Mixtral-8x7B, 32 ranks, kept": TrackedCase("Mixtral-8x7B", KEPT, 32, {"seq_len": 2048}),
    "Mixtral-8x7B, 32 ranks, by columns": TrackedCase(
        "Mixtral-8x7B", SHARDED | {"experts_by_columns": True}, 32, {"seq_len": 2048}
    ),
    "gpt-oss-20b, 64 ranks": TrackedCase("gpt-oss-20b", SHARDED, 64, {"seq_len": 1024, "attention": "eager"}),
    "Qwen3-30B-A3B, 16 ranks": TrackedCase("Qwen3-30B-A3B", SHARDED, 16, {"seq_len": 2048, "act_ckpt": "full"}),
    "Qwen3-30B-A3B, 256 ranks": TrackedCase("Qwen3-30B-A3B", SHARDED, 256, {"seq_len": 2048}),
    "Qwen2.5-7B, FSDP2": TrackedCase("Qwen2.5-7B", SHARDED, 8, {"seq_len": 4096, "act_ckpt": "full"}),
    "Qwen2.5-7B, pure": TrackedCase("Qwen2.5-7B", SHARDED, 4, {"seq_len": 2048, "dtype": "bf16-pure"}),
    "Mistral-7B, single": TrackedCase("Mistral-7B", SINGLE, 1, {"seq_len": 2048, "dtype": "bf16-pure"}),
    "Gemma-7B, FSDP2": TrackedCase("Gemma-7B", SHARDED, 8, {"seq_len": 2048, "micro_batch": 2}),
    "Phi-3-mini, DDP": TrackedCase("Phi-3-mini", DDP, 8, {"seq_len": 2048, "act_ckpt": "full"}),
    "Qwen3-8B, FSDP2": TrackedCase("Qwen3-8B", SHARDED, 16, {"seq_len": 4096}),
    "gpt2-xl, DDP": TrackedCase("gpt2-xl", DDP, 4, {"seq_len": 1024}, {"n_layer": 4}),
    "DeepSeek-V3, 64 ranks": TrackedCase(
        "DeepSeek-V3", SHARDED, 64, {"seq_len": 1024}, {"num_hidden_layers": 5, "first_k_dense_replace": 1}
    ),
}


def case_setting(case: TrackedCase) -> TrainingSetup:
    """Return the complete setting of a case."""
    model, _ = hf_config.model_from_config(catalog.CONFIGS[case.model] | case.config, case.model)
    train = msgspec.convert({"dtype": "bf16-mixed", "micro_batch": 1, "act_ckpt": "none"} | case.train, TrainingOptions)
    strategy = msgspec.convert(case.strategy, Strategy)
    return fill_defaults(TrainingSetup(model=model, train=train, gpus=case.gpus, strategy=strategy))[0]


def track(case: TrackedCase) -> dict[str, Any]:
    """Return the highest memory of each phase, part by part, or the problem."""
    setting = case_setting(case)
    config = json.dumps(catalog.CONFIGS[case.model] | case.config)
    source = exact_memory.ModuleSource(python=sys.executable, directory=Path.cwd(), config=config)
    row = PlanRow(
        msgspec.structs.replace(estimate_candidate(setting), recompute=setting.train.act_ckpt or "none"), setting
    )
    found = asyncio.run(exact_memory.track_candidate(row, source))
    return {"problem": found.problem} if found.problem else dict(found.tracked_phase_peaks_bytes)
