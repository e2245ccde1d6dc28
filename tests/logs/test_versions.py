"""Wording of versions other than those of the log is weaker evidence."""

import msgspec
import pytest
from ddpwizard.app.logs.analyse import OTHER_VERSION_STRENGTH, analyse_logs
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.app.logs.versions import matches_version
from ddpwizard.knowledge.schema import Signature
from helpers.log_reading_knowledge import KNOWLEDGE


@pytest.mark.parametrize(
    ("since", "until", "torch", "does"),
    [
        ("", "", "2.1.0", True),
        ("torch 2.5", "", "", True),
        ("torch 2.5", "", "2.4.1+cu121", False),
        ("torch 2.5", "", "2.5.0", True),
        ("", "torch 2.4", "2.4.1", True),
        ("", "torch 2.4", "2.10.0", False),
        ("NCCL 2.28", "", "2.1.0", True),
        ("torch unknown", "", "2.1.0", True),
    ],
)
def test_version_limits_are_compared_as_precisely_as_written(since: str, until: str, torch: str, does: bool):
    assert matches_version(since, until, {"torch": torch} if torch else {}) is does


def strength(log: str, since: str) -> float:
    cause = next(iter(KNOWLEDGE.causes.values()))
    signature = Signature(pattern="a new wording", literal="new wording", weight="strong", since=since)
    known = msgspec.structs.replace(
        KNOWLEDGE, causes={cause.id: msgspec.structs.replace(cause, signatures=[signature])}
    )
    found = analyse_logs([source_of_text(log, "x")], known).evidence
    return next(item.strength for item in found if item.id.startswith("log:"))


def test_wording_of_another_version_is_weaker():
    assert strength("PyTorch version: 2.1.0\na new wording", "torch 2.5") == OTHER_VERSION_STRENGTH
    assert strength("PyTorch version: 2.6.0\na new wording", "torch 2.5") == 1.0
    assert strength("a new wording", "torch 2.5") == 1.0
    assert strength("torch version 2.1.0\ntorch version 2.6.0\na new wording", "torch 2.5") == 1.0
