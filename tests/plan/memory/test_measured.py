"""Runs on one H200 that this project measured, against their plans: peaks of allocated and reserved memory, step times.

``references/measured_h200.json`` has the configurations, what was measured, and with ``blind`` what was planned before
the run. Rows with a ``note`` differ from what the planner counts, as the note says.
"""

import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from ddpwizard.app.hardware import gpu_catalog
from ddpwizard.app.plan import spec
from ddpwizard.app.plan.machine import default_links
from ddpwizard.app.plan.model import hf_config
from ddpwizard.app.plan.strategies.evaluate import PlanContext, evaluate
from ddpwizard.app.plan.types import Candidate, Strategy, TrainingOptions, TrainingSetup

Row = dict[str, Any]
DATA: Row = json.loads((Path(__file__).parents[1] / "references" / "measured_h200.json").read_text())
ROWS: list[Row] = [row for row in DATA["rows"] if "note" not in row]
GPU_BOUND = 0.9  # share of a step in which the GPU computes: a slower host does not lengthen such a step


@cache
def planned(name: str) -> Candidate:
    row = next(row for row in DATA["rows"] if row["id"] == name)
    setting = TrainingSetup(
        model=hf_config.model_from_config(DATA["models"][row["model"]])[0],
        train=msgspec.convert(row["train"], TrainingOptions),
        strategy=msgspec.convert(row["strategy"], Strategy),
        gpus=1,
        gpu=DATA["gpu"],
        gpu_memory_gib=gpu_catalog.get_gpu(DATA["gpu"]).memory_gib,
    )
    whole = spec.fill_defaults(setting)[0]
    return evaluate(whole, PlanContext(default_links(setting.gpu, setting.gpu_memory_gib)))


def errors(kind: str) -> dict[str, float]:
    """The relative error of each planned peak."""
    return {
        row["id"]: getattr(planned(row["id"]), f"peak_{kind}_bytes_per_gpu") / row["peaks"][kind] - 1 for row in ROWS
    }


def test_rows_cover_what_was_measured() -> None:
    ids = [row["id"] for row in DATA["rows"]]
    assert len(set(ids)) == len(ids) > 80
    assert {row["train"]["dtype"] for row in ROWS} >= {"fp32", "bf16-mixed", "bf16-pure"}
    assert {row["strategy"]["kind"] for row in ROWS} >= {"single", "ddp", "fsdp2"}


def test_parameters_match() -> None:
    for row in ROWS:
        model = hf_config.model_from_config(DATA["models"][row["model"]])[0]
        assert abs(model.params / row["parameters"] - 1) < 0.005, row["id"]


def test_allocated_memory_matches() -> None:
    sizes = {name: abs(error) for name, error in errors("allocated").items()}
    assert statistics.median(sizes.values()) < 0.02
    assert max(sizes.values()) < 0.1, sizes


def test_reserved_memory_matches() -> None:
    found = errors("reserved")
    assert statistics.median(map(abs, found.values())) < 0.06
    assert sum(abs(error) <= 0.15 for error in found.values()) >= 0.95 * len(found), found


def test_bands_hold_what_was_reserved() -> None:
    for row in ROWS:
        band = planned(row["id"]).band
        assert band.low <= row["peaks"]["reserved"] <= band.high, row["id"]


def test_step_times_match() -> None:
    ratios = {
        row["id"]: (planned(row["id"]).step_seconds or 0) / row["step_s"]
        for row in ROWS
        if row["kernels_s"] > GPU_BOUND * row["step_s"]
    }
    assert 0.9 < statistics.median(ratios.values()) < 1.1
    assert sum(0.75 <= ratio <= 1.25 for ratio in ratios.values()) >= 0.85 * len(ratios), ratios
