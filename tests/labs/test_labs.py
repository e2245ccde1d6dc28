"""Each lab for real: it fails as it says, the wizard names the cause first, and the fix of the cause repairs it."""

import asyncio
import sys
from pathlib import Path

import pytest
from ddpwizard.app.labs.lab_diagnosis import apply_repair, diagnose_log, diagnose_run, repair_of
from ddpwizard.app.labs.lab_run import is_repaired, run_lab, shows_failure
from ddpwizard.app.labs.workspace import make_workspace
from ddpwizard.knowledge.labs import read_labs
from helpers.built_in_knowledge import built_in_knowledge

pytestmark = pytest.mark.labs
KNOWLEDGE = built_in_knowledge()
LABS = read_labs()


@pytest.mark.parametrize("cause", [id_ for id_, lab in LABS.items() if lab.launch])
def test_lab_fails_is_diagnosed_and_is_repaired(cause: str, tmp_path: Path) -> None:
    lab = LABS[cause]
    make_workspace(lab, tmp_path)
    failed = asyncio.run(run_lab(lab, tmp_path, sys.executable))
    assert shows_failure(lab, failed), (failed.ending, failed.code, failed.output[-3000:])
    found = diagnose_run(lab, failed, tmp_path, KNOWLEDGE)
    ranking = [(each.id, each.confidence) for each in found.diagnosis.causes[:3]]
    assert ranking and ranking[0][0] == cause, ranking
    repair = repair_of(lab, found, tmp_path, KNOWLEDGE)
    apply_repair(repair, tmp_path)
    repaired = asyncio.run(
        run_lab(lab, tmp_path, sys.executable, launch=repair.launch, environ=repair.environ, patient=True)
    )
    assert is_repaired(lab, repaired), (repaired.ending, repaired.code, repaired.output[-3000:])


@pytest.mark.parametrize("cause", [id_ for id_, lab in LABS.items() if not lab.launch])
def test_log_of_a_lab_leads_to_its_cause(cause: str) -> None:
    ranking = [each.id for each in diagnose_log(LABS[cause].directory, KNOWLEDGE).diagnosis.causes[:3]]
    assert ranking[:1] == [cause], ranking
