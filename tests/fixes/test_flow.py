"""The fix flow: each step changes the files it names and leaves its event in the session."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.fixes.flow import FixFlow
from ddpwizard.app.fixes.proof import ProofResult
from ddpwizard.app.fixes.types import Fix
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.probes.run_probes import run_probes
from ddpwizard.app.session import Session
from ddpwizard.app.snapshot import EnvSection, plain_snapshot
from helpers.built_in_knowledge import built_in_knowledge
from helpers.machines import snapshot
from helpers.recorded_state import PATCHED, TRAIN, patch_fix, report
from msgspec.structs import replace

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
    assert "starts your command again with this fix" in flow_of(session, tmp_path).proof_text(fix)
    by_hand = Fix(id="f", cause=CAUSE, title="t", safety="display")
    assert flow_of(session, tmp_path).proof_kind(by_hand) == "job"
    assert "after your edit" in flow_of(session, tmp_path).proof_text(by_hand)
    assert flow_of(session, tmp_path, with_job=False).proof_text(fix) == ""
    port = flow_of(session, tmp_path, with_job=False, cause="port-in-use")
    assert port.proof_text(fix) == f"checks {KNOWLEDGE.probes['ports'].title} again"


def prove(flow: FixFlow, **environ: str) -> ProofResult:
    fix = Fix(id="f", cause=flow.cause.id, title="t", safety="display")
    return asyncio.run(flow.prove(fix, ProbeContext(python=sys.executable, environ=environ), "reads"))


@contextmanager
def port_held() -> Iterator[str]:
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        yield str(holder.getsockname()[1])


def test_a_port_that_was_busy_and_is_free_now_is_proved_and_recorded(session: Session, tmp_path: Path) -> None:
    flow = flow_of(session, tmp_path, with_job=False, cause="port-in-use")
    with port_held() as port:
        assert prove(flow, MASTER_PORT=port).outcome == "still there"
    proof = prove(flow, MASTER_PORT=port)
    assert (proof.outcome, proof.passed) == ("proved", True)
    assert (proof.before, proof.after) == ("ports.busy", "ports.free")
    event = session.last("proof")
    assert event and event.data == {
        "passed": True,
        "outcome": "proved",
        "what": proof.what,
        "detail": proof.detail,
        "before": "ports.busy",
        "after": "ports.free",
        "diff": "",
    }


def test_a_port_that_was_never_seen_busy_is_not_shown_here(session: Session, tmp_path: Path) -> None:
    flow = flow_of(session, tmp_path, with_job=False, cause="port-in-use")
    with port_held() as port:
        pass
    first, second = prove(flow, MASTER_PORT=port), prove(flow, MASTER_PORT=port)
    assert (first.outcome, first.before) == ("not shown here", "not checked")
    assert (second.outcome, second.before) == ("not shown here", "ports.free")
    assert not first.passed and not second.passed


def test_another_port_than_that_of_the_case_proves_nothing(session: Session, tmp_path: Path) -> None:
    with port_held() as port:
        pass
    with port_held() as other:
        context = ProbeContext(python=sys.executable, environ={"MASTER_PORT": other})
        home = asyncio.run(run_probes(["ports"], context, KNOWLEDGE, granted="reads"))
        session.append("snapshot", **plain_snapshot(home))
    named = Evidence("log:port-in-use/0", "log", f"port: {port}, EADDRINUSE", values={"port": port})
    flow = FixFlow(KNOWLEDGE.causes["port-in-use"], KNOWLEDGE, session, evidence=[named])
    proof = prove(flow, MASTER_PORT=other)
    assert (proof.outcome, proof.before, proof.after) == ("not shown here", "not checked", "ports.free")


def test_a_probe_that_may_not_run_proves_nothing(session: Session) -> None:
    fix = Fix(id="f", cause="p2p-broken", title="t", safety="display")
    cause = KNOWLEDGE.causes["p2p-broken"]
    assert KNOWLEDGE.probes[cause.verify.probe].intrusiveness == "allocates"
    assert FixFlow(cause, KNOWLEDGE, session).proof_kind(fix) == "probe"
    assert FixFlow(cause, KNOWLEDGE, session, granted="reads").proof_text(fix) == ""


OTHER_MACHINES = ["oom-at-step", "one-rank-oom", "zombie-vram", "port-in-use", "shm-too-small", "gpu-sick", "wrong-nic"]


@pytest.mark.parametrize("cause", OTHER_MACHINES)
def test_the_log_of_another_machine_never_leads_to_proved(session: Session, tmp_path: Path, cause: str) -> None:
    """The wizard checks this machine when it starts, then a log of another machine is read and a proof asked for."""
    flow = flow_of(session, tmp_path, with_job=False, cause=cause)
    if not flow.proof_text(Fix(id="f", cause=cause, title="t", safety="display")):
        return  # it takes a job: no key is shown
    context = ProbeContext(python=sys.executable, environ={})
    found = asyncio.run(run_probes([flow.cause.verify.probe], context, KNOWLEDGE, granted="reads"))
    session.append("snapshot", **plain_snapshot(found))
    proof = prove(flow)
    assert not proof.passed, proof
    assert session.events[-1].data["outcome"] == proof.outcome != "proved"


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, "command"),
        (
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
            "probe",
        ),
    ],
)
def test_a_command_that_is_the_fix_is_started_unless_the_check_saw_the_opposite(
    session: Session, variables: dict[str, str], kind: str
) -> None:
    env = EnvSection(owner="this shell", variables=variables)
    here = replace(snapshot(), env=env)
    cause = KNOWLEDGE.causes["bare-python-launch"]
    flow = FixFlow(cause, KNOWLEDGE, session, snapshot=here)
    launch = Fix(id="f", cause=cause.id, title="t", safety="display", start="torchrun train.py")
    assert flow.proof_kind(launch) == "probe", "no failure is known"
    session.append("evidence", id="log:c/0", source="log", what="KeyError: 'LOCAL_RANK'", where="/x/train.log:2")
    assert flow.proof_kind(launch) == kind


def test_the_command_of_a_recorded_job_is_started_in_its_directory(tmp_path: Path) -> None:
    job = report(tmp_path)
    cause = job.verdict.cause or ""
    assert FixFlow(KNOWLEDGE.causes[cause], KNOWLEDGE, Session.new(), job=job).directory == tmp_path
    assert FixFlow(KNOWLEDGE.causes["uneven-inputs"], KNOWLEDGE, Session.new(), job=job).directory == Path.cwd()


def test_the_command_that_was_run_is_started_in_its_directory(tmp_path: Path) -> None:
    """A job that crashed was not sampled: only the session has its command and directory."""
    there = tmp_path / "project"
    there.mkdir()
    (there / "train.py").write_text("print(1)\n", encoding="utf-8")
    command = ["torchrun", "--nproc-per-node=2", "train.py"]
    session = Session.new(argv=["run"], cwd=str(there), command=command)
    flow = FixFlow(KNOWLEDGE.causes["script-error"], KNOWLEDGE, session)
    assert flow.directory == there
    fix = next(fix for fix in flow.build() if fix.directory)
    assert fix.directory == str(there)
    only_opened = Session.new(argv=[], cwd=str(there))
    assert FixFlow(KNOWLEDGE.causes["script-error"], KNOWLEDGE, only_opened).directory == Path.cwd()


@pytest.mark.parametrize("cause", ["script-error", "missing-set-epoch", "uneven-inputs", "port-in-use"])
def test_every_fix_of_a_job_of_run_knows_the_command_that_was_run(cause: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n", encoding="utf-8")
    command = ["torchrun", "--nproc-per-node=2", "train.py"]
    flow = FixFlow(KNOWLEDGE.causes[cause], KNOWLEDGE, Session.new(cwd=str(tmp_path), command=command))
    for fix in flow.build():
        assert flow.start_command(fix) == (fix.start or "torchrun --nproc-per-node=2 train.py")
        by_hand = replace(fix, start="", again="")
        assert flow.start_command(by_hand) == "torchrun --nproc-per-node=2 train.py"


def test_the_command_of_a_session_without_a_job_is_not_known() -> None:
    flow = FixFlow(KNOWLEDGE.causes["port-in-use"], KNOWLEDGE, Session.new(argv=[]))
    assert flow.start_command(Fix(id="f", cause="port-in-use", title="t", safety="display")) == ""
