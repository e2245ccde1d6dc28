"""Tokens per second over the number of GPUs."""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.plan.model_source import ModelSource
from ddpwizard.app.plan.plan_answer import WIDTH, ScalePoint, draw_curve, gpu_counts, scaling_points
from ddpwizard.app.plan.request import PlanRequest
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Model, TrainingOptions, TrainingSetup

LLAMA = Model(params=8.03e9, layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=128256)
LINKS = Links(370, 90)


def setting(**change: Any) -> TrainingSetup:
    train = TrainingOptions(dtype="bf16-mixed", micro_batch=1, seq_len=4096)
    asked = TrainingSetup(model=LLAMA, train=train, gpus=8, gpu="H100", gpu_memory_gib=79.1)
    return fill_defaults(msgspec.structs.replace(asked, **change))[0]


def points(asked: TrainingSetup, links: Links = LINKS) -> list[ScalePoint]:
    source = ModelSource(asked.model, [])
    return scaling_points(PlanRequest(asked, links, [], source, per_node=8, more_gpus=8, scaled_links=links))


def test_more_gpus_are_faster_and_never_above_the_ideal() -> None:
    found = points(setting())
    assert [(each.gpus, each.nodes) for each in found] == [(1, 1), (2, 1), (4, 1), (8, 1), (16, 2), (32, 4), (64, 8)]
    rates = [each.tokens_per_s for each in found if each.tokens_per_s]
    assert rates == sorted(rates)
    assert all(each.tokens_per_s <= each.ideal_tokens_per_s for each in found if each.tokens_per_s)


def test_slow_links_reduce_the_rate() -> None:
    quick, slow = (points(setting(), links)[-1].tokens_per_s or 0 for links in (LINKS, Links(370, 1)))
    assert slow < quick / 2


def test_nodes_have_the_size_of_the_plan() -> None:
    assert [each.nodes for each in points(setting(gpus=8, nodes=2))] == [1, 1, 1, 2, 4, 8, 16]


@pytest.mark.parametrize(("gpus", "last"), [(8, 64), (24, 64), (64, 128), (1000, 2048)])
def test_curve_has_the_gpus_of_the_plan_and_twice_as_many(gpus: int, last: int) -> None:
    found = gpu_counts(gpus)
    assert gpus in found
    assert found[-1] == last
    assert found == sorted(set(found))


@pytest.mark.parametrize("ascii_only", [True, False])
def test_plot_of_the_curve(ascii_only: bool) -> None:
    found = points(setting())
    plot = draw_curve(found, ascii_only)
    assert len(plot) == len(found) + 1
    assert all(line.isascii() for line in plot) == ascii_only
    assert all(len(line) <= WIDTH for line in plot)


def test_plot_names_counts_that_do_not_fit() -> None:
    plot = draw_curve(points(setting(gpu_memory_gib=1.5)))
    assert all("does not fit" in line for line in plot[1:])
