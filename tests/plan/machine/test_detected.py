"""This machine as the input of a plan."""

import json
import subprocess
import sys

import msgspec
import pytest
from ddpwizard.app.plan.machine.detected import detect_machine, machine_from_sections
from ddpwizard.app.snapshot import GpuSection
from ddpwizard.app.text.units import GIB
from helpers.h100_sections import LIMITS, gpu


def test_detected_memory_is_that_of_the_fullest_gpu() -> None:
    found = machine_from_sections(GpuSection(driver="570", gpus=[gpu(0, 1), gpu(1, 30), gpu(2, 0)]), LIMITS)
    assert (found.gpus, found.gpu, found.gpu_memory_gib) == (3, "NVIDIA H100 80GB HBM3", 50)
    assert "gpus: 3, found on this machine" in found.notes[0]
    assert "50.0 GiB free" in found.notes[0]


def test_detects_visible_gpus_only() -> None:
    found = machine_from_sections(
        GpuSection(driver="570", gpus=[gpu(0, 1), gpu(1, 30), gpu(2, 0)], visible="0,2"), LIMITS
    )
    assert (found.gpus, found.gpu_memory_gib) == (2, 79)


@pytest.mark.parametrize("gpus", [None, GpuSection(), GpuSection(driver="570", gpus=[gpu(0, 1)], visible="")])
def test_machine_without_gpu_has_a_note(gpus: GpuSection | None) -> None:
    found = machine_from_sections(gpus, None)
    assert (found.gpus, found.gpu, found.gpu_memory_gib, found.host_bytes) == (0, None, None, None)
    assert "no GPU found" in found.notes[0]


def test_host_memory_respects_the_container_limit() -> None:
    inside = msgspec.structs.replace(LIMITS, cgroup_memory_limit_bytes=16 * 2**30, cgroup_memory_used_bytes=4 * 2**30)
    assert machine_from_sections(None, LIMITS).host_bytes == 48 * GIB
    assert machine_from_sections(None, inside).host_bytes == 12 * GIB


def test_detect_this_machine() -> None:
    found = detect_machine(sys.executable)
    assert found.host_bytes
    assert found.notes
    assert (found.gpus == 0) == (found.gpu_memory_gib is None)


def run(*arguments: str) -> dict[str, list[str]]:
    program = [sys.executable, "-m", "ddpwizard", "plan", "--params", "1e8", "--json", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout)["inputs"]


def test_plan_without_gpu_options_detects_this_machine() -> None:
    assert [line for line in run()["assumed"] if line.startswith("gpus: ")]


def test_plan_with_gpu_options_does_not_detect_this_machine() -> None:
    assert not [line for line in run("--gpus", "2")["assumed"] if line.startswith(("gpus: ", "host"))]
