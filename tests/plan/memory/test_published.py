"""Published runs against their plans: peaks of allocated, reserved and device memory, out-of-memory errors, and rates.

``references/published.json`` has a row for each run, with its source: mixtures of experts, expert and context
parallelism, 32,768 tokens and more, loops of transformers under FSDP, adapters on 4-bit weights, paged optimizers,
offloading, and versions of torch before 2.9. Runs of AutoGPTQ under FSDP have no figure of the device: it includes
loading, for which each rank has the whole model on its GPU. ``tokens_per_s_per_gpu`` is left out of runs whose
published rate includes the start of the job.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.hardware import gpu_catalog, server_catalog
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.machine import default_links
from ddpwizard.app.plan.model import catalog
from ddpwizard.app.plan.strategies.evaluate import PlanContext, evaluate
from ddpwizard.app.plan.types import Candidate, TrainingSetup

Row = dict[str, Any]
ROWS: list[Row] = json.loads((Path(__file__).parents[1] / "references" / "published.json").read_text())
# Runs of which the source leaves out what the peak depends on, one at the limit of its GPU whose fused kernels for
# adapters save less than PEFT's, and one whose loop has no autocast, so that attention in fp32 keeps its scores.
UNEXPLAINED = {
    "automodel-qwen3-30b-ep8",
    "v5-qwen3-30b-fsdp2",
    "lightning-fsdp-offload",
    "fms-liger-llama8b-nf4-g1-b32",
    "peft-qwen25-1.5b-qlora-1k-kept",
}
NEAR = {"fms-llama70-nf4-g2-b4-oom", "fms-2025-llama70-nf4-g2-b4-oom"}  # in GPTQ the same run left 0.8 GiB
FIELDS = ("model", "train", "strategy", "gpus", "nodes", "gpu", "gpu_memory_gib")


def planned(row: Row) -> tuple[TrainingSetup, Candidate]:
    given = {name: row[name] for name in FIELDS if name in row}
    model = catalog.MODELS[given["model"]] if isinstance(given["model"], str) else None
    asked = spec.parse_spec(json.dumps(given | ({"model": {"params": 1}} if model else {})).encode())
    gpu = gpu_catalog.get_gpu(row["gpu"])
    whole = msgspec.structs.replace(
        asked, model=model or asked.model, gpu_memory_gib=row.get("gpu_memory_gib", gpu.memory_gib)
    )
    setting = spec.fill_defaults(whole)[0]
    network = server_catalog.assume_network(setting.gpu, setting.gpu_memory_gib, setting.gpus // setting.nodes)
    links = default_links(setting.gpu, setting.gpu_memory_gib)._replace(inter_gbps=network.gbps)
    return setting, evaluate(setting, PlanContext(links))


def errors() -> dict[str, float]:
    """The relative error of each peak; one whose kind the source does not name is compared with the nearer one."""
    found: dict[str, float] = {}
    for row in ROWS:
        candidate = planned(row)[1]
        allocated, reserved = candidate.peak_allocated_bytes_per_gpu, candidate.peak_reserved_bytes_per_gpu
        for kind, want in row["peaks"].items():
            have = {
                "allocated": allocated,
                "reserved": reserved,
                "device": candidate.device_used_bytes_per_gpu,
                "unstated": min((allocated, reserved), key=lambda value: abs(value - want)),
            }[kind]
            found[f"{row['id']} {kind}"] = have / want - 1
    return {name: error for name, error in found.items() if name.split()[0] not in UNEXPLAINED}


def is_fused(name: str) -> bool:
    """Return whether a run had fused kernels for norms and adapters, which the planner does not count."""
    return name.startswith("fms-liger-")


def test_rows_have_a_source_and_the_missing_kinds() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS) > 50
    assert all(row["source"].startswith("https://") for row in ROWS)
    kinds = {key for row in ROWS for key in (*row["strategy"], *row["train"])}
    assert {"expert", "context", "tensor", "cpu_offload", "quant", "lora", "torch", "fp8", "compile"} <= kinds
    assert any(row["train"].get("optimizer") == "paged-adamw-8bit" for row in ROWS)


def test_memory_matches() -> None:
    found = errors()
    found = {name: error for name, error in found.items() if not is_fused(name)}
    sizes = [abs(error) for error in found.values()]
    assert statistics.median(sizes) < 0.065
    assert sum(size <= 0.15 for size in sizes) >= 0.85 * len(sizes), sorted(found.items(), key=lambda each: each[1])
    assert sum(error < -0.10 for error in found.values()) <= 0.05 * len(found)


def test_bands_hold() -> None:
    """The band is one of the reserved peak; other figures are compared with as much below or above it."""
    held: list[bool] = []
    for row in ROWS:
        found = planned(row)[1]
        reserved, device = found.peak_reserved_bytes_per_gpu, found.device_used_bytes_per_gpu
        share = found.peak_allocated_bytes_per_gpu / reserved
        ranges = {
            "allocated": (found.band.low * share, found.band.high * share),
            "reserved": (found.band.low, found.band.high),
            "device": (found.band.low + device - reserved, found.band.high + device - reserved),
            "unstated": (found.band.low * share, found.band.high),
        }
        held += [ranges[kind][0] <= want <= ranges[kind][1] for kind, want in row["peaks"].items()]
    assert sum(held) >= 0.95 * len(held)


def test_fused_kernels_need_less() -> None:
    found = {name: error for name, error in errors().items() if is_fused(name)}
    assert len(found) > 30
    assert min(found.values()) > 0
    assert max(error for name, error in found.items() if "allocated" in name) < 0.15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_what_ran_is_not_refused_and_what_ran_out_of_memory_is(row: Row) -> None:
    if row["id"] in UNEXPLAINED:
        pytest.skip("its source leaves out what the peak depends on")
    fits = planned(row)[1].fits
    if row["id"] in NEAR:
        assert fits == "tight"
    else:
        assert (fits is not False) == row.get("fits", True)


def test_rates_match() -> None:
    ratios: list[float] = []
    for row in ROWS:
        if row["id"] not in UNEXPLAINED and "tokens_per_s_per_gpu" in row:
            setting, candidate = planned(row)
            ratios.append((candidate.tokens_per_s or 0) / setting.gpus / row["tokens_per_s_per_gpu"])
    assert 0.9 < statistics.median(ratios) < 1.1
    assert sum(0.75 <= ratio <= 1.25 for ratio in ratios) >= 0.8 * len(ratios), sorted(ratios)
