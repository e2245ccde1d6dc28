"""The names of collectives: one list, which every translation from a backend's names has to use."""

from collections.abc import Iterable

import pytest
from ddpwizard.app.training_script.collectives import WAITING_CALLS
from ddpwizard.app.triage.flight_recorder.parse import PUBLIC
from ddpwizard.app.triage.job_logs.per_rank import OPERATIONS
from ddpwizard.app.triage.nccl_ras.client import NAMES
from ddpwizard.app.triage.rank_activity.collectives_in_stack import IMPLIED


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(PUBLIC.values(), id="flight recorder"),
        pytest.param(OPERATIONS.values(), id="logs"),
        pytest.param(NAMES.values(), id="NCCL RAS"),
        pytest.param((name for name, _ in IMPLIED.values()), id="stacks"),
    ],
)
def test_every_translation_gives_a_known_collective(names: Iterable[str]) -> None:
    assert set(names) <= WAITING_CALLS
