"""The cells of Home on one line: what is cut ends with an ellipsis, and a job keeps its name and its state."""

from pathlib import Path

import pytest
from ddpwizard.app.triage.types import JobReport
from ddpwizard.screens.home.status_cells import status_cell, status_cells
from helpers.recorded_state import RecordedState, report
from msgspec.structs import replace

NAME = "pretrain_llama_with_a_long_name.py"


def job(directory: Path, launcher_pid: int, state: str = "hung") -> JobReport:
    base = report(directory)
    ranks = [replace(each, command=["python", str(directory / NAME)]) for each in base.job.processes]
    named = replace(base.job, processes=ranks, launcher_pid=launcher_pid)
    verdict = replace(base.verdict, state=state)  # type: ignore[arg-type]
    return replace(base, verdict=verdict, observed=replace(base.observed, job=named))


def cell(reports: list[JobReport], width: int, *, ascii_only: bool = False) -> str:
    state = RecordedState()
    state.reports = reports
    shown = status_cell(status_cells(state)[-1], ascii_only, width)
    assert shown.cell_length <= width
    return shown.plain


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [26, 38, 40])
@pytest.mark.parametrize("state", ["hung", "progressing", "starting", "unknown", "dead"])
def test_a_job_keeps_its_name_and_its_state(state: str, width: int, ascii_only: bool, tmp_path: Path) -> None:
    for count in (1, 2, 12):
        text = cell([job(tmp_path, number, state) for number in range(count)], width, ascii_only=ascii_only)
        assert text.startswith("job " if count == 1 else f"{count} jobs")
        assert "pretra" in text and "…" in text


def test_at_80_columns_the_state_of_several_jobs_is_whole(tmp_path: Path) -> None:
    text = cell([job(tmp_path, number, "progressing") for number in range(3)], 40)
    assert text == "3 jobs  pretrain_llam… ✓ making progress"


def test_the_job_of_another_user_is_named_and_keeps_probes_from_disturbing_it() -> None:
    state = RecordedState()
    state.reports = []
    free = state.granted
    state.other_jobs = ["1 job of user ada runs here: needs sudo (sudo ddpwizard triage)"]
    assert status_cell(status_cells(state)[-1], False, 40).plain == "job     1 job of user ada runs here: ne…"
    assert (free, state.granted) == ("allocates", "reads")
