"""The fix flow: each step changes the files it names and leaves its event in the session."""

import asyncio
import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.flow import FixFlow
from ddpwizard.app.fixes.types import Fix
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.session import Session
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import PATCHED, TRAIN, patch_fix, report

KNOWLEDGE = built_in_knowledge()
CAUSE = "rank-conditional-collective"
FIELDS = {"id", "cause", "title", "action", "paths", "diff", "backup"}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(tmp_path)
    return Session.new()


def flow_of(session: Session, directory: Path, *, with_job: bool = True, cause: str = CAUSE) -> FixFlow:
    job = report(directory) if with_job else None
    return FixFlow(KNOWLEDGE.causes[cause], KNOWLEDGE, session, report=job)


def test_the_fix_of_a_job_is_built_from_the_review_of_its_script(session: Session, tmp_path: Path) -> None:
    flow = flow_of(session, tmp_path)
    patches = [patch for fix in flow.build() for patch in fix.patches]
    assert [Path(patch.path).name for patch in patches] == ["train.py"]
    assert not [event for event in session.events if event.kind == "fix"], "building leaves no event"


def test_apply_and_undo_are_recorded_with_the_diff_and_the_backup(session: Session, tmp_path: Path) -> None:
    flow, fix = flow_of(session, tmp_path), patch_fix(tmp_path)
    applied = flow.apply(fix)
    assert (tmp_path / "train.py").read_text() == PATCHED
    flow.undo(fix, applied.id)
    assert (tmp_path / "train.py").read_text() == TRAIN
    done, undone = [event.data for event in session.events if event.kind == "fix"]
    assert done.keys() == undone.keys() == FIELDS
    assert (done["action"], done["diff"], done["backup"]) == ("applied", fix.diff(), applied.id)
    assert (undone["action"], undone["diff"], undone["backup"]) == ("undone", "", applied.id)
    assert done["paths"] == undone["paths"] == [str(tmp_path / "train.py")]


def test_a_fix_that_cannot_be_applied_is_not_recorded(session: Session, tmp_path: Path) -> None:
    flow, fix = flow_of(session, tmp_path), patch_fix(tmp_path)
    (tmp_path / "train.py").write_text("changed = True\n")
    with pytest.raises(UserError):
        flow.apply(fix)
    assert session.last("fix") is None


def test_new_files_go_to_the_directory_of_the_job(session: Session, tmp_path: Path) -> None:
    fix = Fix(id="env", cause=CAUSE, title="t", safety="safe", files={"nccl.env": "A=1\n"})
    flow = flow_of(session, tmp_path)
    assert flow.target_paths(fix) == ["nccl.env"]
    flow.apply(fix)
    assert (Path(flow.directory) / "nccl.env").read_text() == "A=1\n"


def test_copies_are_written_without_a_change_of_the_script(session: Session, tmp_path: Path) -> None:
    flow, fix = flow_of(session, tmp_path), patch_fix(tmp_path)
    assert [path.name for path in flow.write_copies(fix)] == [f"{fix.id}.patch"]
    assert (tmp_path / f"{fix.id}.patch").read_text() == fix.diff()
    assert (tmp_path / "train.py").read_text() == TRAIN
    event = session.last("fix")
    assert event and event.data["action"] == "written" and event.data.keys() == FIELDS


def test_a_patch_is_proved_by_the_job_and_anything_else_by_the_probe_of_the_cause(
    session: Session, tmp_path: Path
) -> None:
    fix = patch_fix(tmp_path)
    assert "same command line on a patched copy" in flow_of(session, tmp_path).proof_text(fix)
    assert flow_of(session, tmp_path, with_job=False).proof_text(fix) == ""
    port = flow_of(session, tmp_path, with_job=False, cause="port-in-use")
    assert port.proof_text(fix) == f"{KNOWLEDGE.probes['ports'].title} again"


def test_a_proof_is_recorded_with_its_result(session: Session, tmp_path: Path) -> None:
    flow = flow_of(session, tmp_path, with_job=False, cause="port-in-use")
    context = ProbeContext(python=sys.executable)
    proof = asyncio.run(flow.prove(Fix(id="f", cause="port-in-use", title="t", safety="display"), context, "reads"))
    event = session.last("proof")
    assert event and event.data == {"passed": proof.passed, "what": proof.what, "detail": proof.detail}
