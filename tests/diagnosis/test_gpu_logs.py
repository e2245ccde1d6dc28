"""Logs of small jobs that were run on an H200 (torch 2.11, NCCL 2.28), each with a fault that was put into it."""

from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import read_sources
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
LOGS = Path(__file__).parent / "gpu_logs"
CAUSES = {
    "assert-embedding": "device-side-assert",
    "assert-label": "device-side-assert",
    "batch-on-cpu": "tensors-on-two-devices",
    "checkpoint-of-another-gpu": "local-rank-device",
    "cpu-tensor-on-nccl": "backend-mismatch",
    "ddp-of-cpu-model-device-ids": "wrap-before-device",
    "fork-after-cuda": "cuda-before-fork",
    "grad-scaler-bf16": "gradient-scaler-amp",
    "input-on-cpu": "tensors-on-two-devices",
    "invalid-ordinal": "local-rank-device",
    "loader-worker-cuda": "cuda-before-fork",
    "net-ib-absent": "nccl-plugin-missing",
    "no-gpu-visible": "backend-mismatch",
    "no-set-device": "local-rank-device",
    "oom-forward": "model-does-not-fit",
    "oom-model-to-gpu": "model-does-not-fit",
    "oom-optimizer-step": "oom-at-step",
    "socket-ifname-absent": "wrong-nic",
    "two-ranks-one-device-id": "local-rank-device",
    "two-ranks-one-gpu": "local-rank-device",
    "two-ranks-waiting": "rank0-slow-work",
}
HEALTHY = ("healthy-nccl-info", "barrier-without-device")


def test_each_log_has_an_answer() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {*CAUSES, *HEALTHY}


def ranked(name: str) -> list[tuple[str, float]]:
    case = Case(KNOWLEDGE)
    case.add(read_sources([source_of_text((LOGS / f"{name}.log").read_text(), name)], KNOWLEDGE).evidence)
    return [(cause.id, cause.confidence) for cause in case.diagnosis().causes]


@pytest.mark.parametrize(("name", "cause"), CAUSES.items())
def test_the_cause_is_first(name: str, cause: str) -> None:
    first, confidence = ranked(name)[0]
    assert first == cause
    assert confidence > 0.5


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_has_no_likely_cause(name: str) -> None:
    assert all(confidence < 0.25 for _, confidence in ranked(name))
