"""The same check of this machine before and after a fix."""

import pytest
from ddpwizard.app.fixes.proof import _compare_checks
from ddpwizard.app.fixes.state_before import CheckResult, check_result
from ddpwizard.app.snapshot import Gpu, GpuSection, Snapshot
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
VERIFY = KNOWLEDGE.causes["local-rank-device"].verify
GPU = Gpu(index=0, uuid="GPU-1", name="NVIDIA H100", pci_id="01:00.0", memory_total_bytes=80 << 30, memory_used_bytes=0)
WITHOUT = GpuSection(problem="NVML Shared Library Not Found")


def compared(section: GpuSection, before: CheckResult | None) -> tuple[str, str]:
    snapshot = Snapshot(taken_at=0.0, host="here", ddpwizard_version="0", gpus=section)
    outcome, what, _ = _compare_checks(VERIFY, before, snapshot, check_result(VERIFY, snapshot), "GPUs", KNOWLEDGE)
    return outcome, what


@pytest.mark.parametrize("before", [None, CheckResult([], []), CheckResult(["gpus.shared-device"], [])])
def test_machine_without_gpus_proves_nothing_about_them(before: CheckResult | None) -> None:
    outcome, what = compared(WITHOUT, before)
    assert outcome == "not shown here"
    assert what == "GPUs: this machine cannot show it: no working NVIDIA driver"


def test_machine_with_gpus_was_fine_before() -> None:
    outcome, what = compared(GpuSection(driver="550.1", gpus=[GPU]), CheckResult([], []))
    assert outcome == "not shown here" and "already fine on this machine before any fix" in what
