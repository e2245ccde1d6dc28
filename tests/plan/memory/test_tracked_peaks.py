"""The formula against torch's trackers, on transformers' models of full width: many models, strategies and ranks."""

from typing import Any

import pytest
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.peak import estimate_candidate, phase_terms
from helpers.reference_figures import BOTH, figures
from helpers.tracked_peaks import CASES, case_setting, track


@pytest.fixture(scope="module", params=BOTH)
def peaks(request: pytest.FixtureRequest) -> dict[str, Any]:
    return figures("tracked_peaks", request.param, lambda: {name: track(case) for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_peak_matches_the_trackers(name: str, peaks: dict[str, Any]) -> None:
    tracked = max(peaks[name].values())
    formula = estimate_candidate(case_setting(CASES[name])).peak_allocated_bytes_per_gpu
    assert 0.97 * tracked <= formula <= 1.05 * tracked


@pytest.mark.parametrize("name", CASES)
def test_states_and_copies_of_the_step_are_exact(name: str, peaks: dict[str, Any]) -> None:
    """The shards of uneven parameters too: those of the rank with most of them, which the trackers follow."""
    step = total_bytes(phase_terms(case_setting(CASES[name]))["step"])
    assert step == pytest.approx(peaks[name]["step"], rel=0.01)
