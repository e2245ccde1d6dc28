"""Each lab for real: it fails as it says, the wizard names the cause first, and the fix of the cause repairs it."""

import asyncio
import sys
from pathlib import Path

import pytest
from ddpwizard.app.labs.lab_diagnosis import apply_repair, diagnose_log, diagnose_run, read_machine, repair_of
from ddpwizard.app.labs.lab_run import is_repaired, run_lab, shows_failure
from ddpwizard.app.labs.plot import measured_points
from ddpwizard.app.labs.workspace import make_workspace
from ddpwizard.app.snapshot import Snapshot
from ddpwizard.knowledge.labs import read_labs
from helpers.built_in_knowledge import built_in_knowledge

pytestmark = pytest.mark.labs
KNOWLEDGE = built_in_knowledge()
LABS = read_labs()


@pytest.fixture(scope="module")
def machine() -> Snapshot:
    return asyncio.run(read_machine(sys.executable, KNOWLEDGE))


@pytest.mark.parametrize("id_", [id_ for id_, lab in LABS.items() if lab.launch and not lab.question])
def test_lab_fails_is_diagnosed_and_is_repaired(id_: str, tmp_path: Path, machine: Snapshot) -> None:
    lab = LABS[id_]
    make_workspace(lab, tmp_path)
    failed = asyncio.run(run_lab(lab, tmp_path, sys.executable))
    assert shows_failure(lab, failed), (failed.ending, failed.code, failed.output[-3000:])
    found = diagnose_run(lab, failed, tmp_path, KNOWLEDGE, machine)
    ranking = [(each.id, each.confidence) for each in found.diagnosis.causes[:3]]
    assert ranking and ranking[0][0] == lab.cause, ranking
    repair = repair_of(lab, found, tmp_path, KNOWLEDGE)
    apply_repair(repair, tmp_path)
    repaired = asyncio.run(
        run_lab(lab, tmp_path, sys.executable, launch=repair.launch, environ=repair.environ, should_end=True)
    )
    assert is_repaired(lab, repaired), (repaired.ending, repaired.code, repaired.output[-3000:])
    if lab.plot:
        broken, well = (measured_points(lab.plot, run.output) for run in (failed, repaired))
        assert broken and well and broken != well


@pytest.mark.parametrize("id_", [id_ for id_, lab in LABS.items() if lab.question])
def test_job_measures_the_right_answer(id_: str, tmp_path: Path) -> None:
    lab = LABS[id_]
    make_workspace(lab, tmp_path)
    run = asyncio.run(run_lab(lab, tmp_path, sys.executable))
    assert is_repaired(lab, run), (run.ending, run.code, run.output[-3000:])
    assert lab.plot and len(measured_points(lab.plot, run.output)) >= 2


@pytest.mark.parametrize("id_", [id_ for id_, lab in LABS.items() if not lab.launch])
def test_log_of_a_lab_leads_to_its_cause(id_: str) -> None:
    ranking = [each.id for each in diagnose_log(LABS[id_].directory, KNOWLEDGE).diagnosis.causes[:3]]
    assert ranking[:1] == [LABS[id_].cause], ranking
