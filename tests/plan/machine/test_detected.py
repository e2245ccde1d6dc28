"""This machine as the input of a plan."""

import json
import sys

import msgspec
import pytest
from ddpwizard.app.hardware.machine import Machine, machine_from_snapshot
from ddpwizard.app.plan.machine import detect_machine, free_gpu_memory_gib, machine_notes
from ddpwizard.app.snapshot import GpuSection, LimitsSection, Snapshot
from ddpwizard.app.text.units import GIB
from helpers.command import ddpwizard
from helpers.h100_sections import LIMITS, gpu


def machine(gpus: GpuSection | None, limits: LimitsSection | None) -> Machine:
    return machine_from_snapshot(Snapshot(taken_at=0, host="", ddpwizard_version="0", gpus=gpus, limits=limits))


def test_detected_memory_is_that_of_the_fullest_gpu() -> None:
    found = machine(GpuSection(driver="570", gpus=[gpu(0, 1), gpu(1, 30), gpu(2, 0)]), LIMITS)
    assert (found.listed_gpus, found.gpu_name, free_gpu_memory_gib(found)) == (3, "NVIDIA H100 80GB HBM3", 50)
    assert "gpus: 3, found on this machine" in machine_notes(found)[0]
    assert "50.0 GiB free" in machine_notes(found)[0]


def test_detects_visible_gpus_only() -> None:
    found = machine(GpuSection(driver="570", gpus=[gpu(0, 1), gpu(1, 30), gpu(2, 0)], visible="0,2"), LIMITS)
    assert (found.listed_gpus, free_gpu_memory_gib(found)) == (2, 79)


@pytest.mark.parametrize("gpus", [None, GpuSection(), GpuSection(driver="570", gpus=[gpu(0, 1)], visible="")])
def test_machine_without_gpu_has_a_note(gpus: GpuSection | None) -> None:
    found = machine(gpus, None)
    assert (found.listed_gpus, free_gpu_memory_gib(found), found.memory_free_bytes) == (0, None, 0)
    assert "no GPU found" in machine_notes(found)[0]


def test_host_memory_respects_the_container_limit() -> None:
    inside = msgspec.structs.replace(LIMITS, cgroup_memory_limit_bytes=16 * 2**30, cgroup_memory_used_bytes=4 * 2**30)
    assert machine(None, LIMITS).memory_free_bytes == 48 * GIB
    assert machine(None, inside).memory_free_bytes == 12 * GIB


def test_detect_this_machine() -> None:
    found = detect_machine(sys.executable)
    assert found.memory_free_bytes
    assert machine_notes(found)
    assert (found.listed_gpus == 0) == (free_gpu_memory_gib(found) is None)


def run(*arguments: str) -> dict[str, list[str]]:
    return json.loads(ddpwizard("plan", "--params", "1e8", "--json", *arguments).stdout)["inputs"]


def test_plan_without_gpu_options_detects_this_machine() -> None:
    assert [line for line in run()["assumed"] if line.startswith("gpus: ")]


def test_plan_with_gpu_options_does_not_detect_this_machine() -> None:
    assert not [line for line in run("--gpus", "2")["assumed"] if line.startswith(("gpus: ", "host"))]
