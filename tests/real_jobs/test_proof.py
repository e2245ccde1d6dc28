"""Fixes proved by what failed: real jobs started again on a copy, a real port looked at again."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.proof import ProofResult, prove_by_run, prove_probe
from ddpwizard.app.fixes.proof_plan import plan_job_proof, question_lines
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.system import procfs
from ddpwizard.app.triage.types import JobReport
from ddpwizard.knowledge.loader import read_knowledge
from helpers.jobs import RunningJob, hung_report, launched, launched_as_forks
from msgspec.structs import replace

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
LIMIT_S = 150.0
Hung = tuple[RunningJob, JobReport]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory for the copies, separate from those of other tests."""
    directory = tmp_path / "copies"
    directory.mkdir()
    monkeypatch.setattr("ddpwizard.app.system.temporary_directories.TEMP", str(directory))
    return directory


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """A job of three ranks that hangs under a rank condition, with its report; no test changes it."""
    with launched("metrics.py", tmp_path_factory.mktemp("hung"), 3) as job:
        yield job, hung_report(job)


def by_hand() -> Fix:
    return Fix(id="f", cause="rank-conditional-collective", title="t", safety="display")


def prove(report: JobReport, job: RunningJob, place: Path, old: str, new: str) -> tuple[ProofResult, list[str]]:
    """Prove the change of ``old`` into ``new`` in the job's script; return the proof and its progress messages."""
    before = job.script.read_text()
    assert old in before
    patch = FilePatch(path=str(job.script), before=before, after=before.replace(old, new))
    fix = Fix(id="f", cause="rank-conditional-collective", title="t", safety="unsafe", patches=[patch])
    messages: list[str] = []
    plan = plan_job_proof(report, fix, {})
    proof = asyncio.run(prove_by_run(plan, report, limit_s=LIMIT_S, progress=messages.append))
    assert job.script.read_text() == before
    assert not [p for p in procfs.all_processes().values() if p.cwd.startswith(str(place))]
    assert not list(place.iterdir())
    return proof, messages


def test_fixed_job_ends_with_0(hung: Hung, place: Path) -> None:
    job, report = hung
    proof, messages = prove(report, job, place, "    if rank == 0:  # BRANCH\n", "    if True:\n")
    assert proof.passed, proof
    assert (proof.what, proof.findings) == ("the job ran to its end with code 0", ["job.all-ranks-moved"])
    assert "loss 3.0" in proof.detail or "loss 9.0" in proof.detail
    assert any(line.startswith("starting it again:") for line in messages)


def test_checkpoint_outside_of_the_job_is_not_overwritten(tmp_path: Path, place: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "best.pt").write_text("my precious checkpoint")
    with launched_as_forks("checkpoint.py", tmp_path / "job", 2, str(tmp_path / "job" / "best.pt")) as job:
        report = hung_report(job)
        lines = question_lines(plan_job_proof(report, by_hand(), {}))
        proof, _ = prove(report, job, place, "    if rank == 0:  # BRANCH\n        dist", "    dist")
    assert (proof.outcome, proof.before) == ("proved", "the job was hung"), proof
    assert any(line.startswith("Runs: ") and "--nproc-per-node=2" in line for line in lines)
    assert any(f"torch.save → {tmp_path}/job/best.pt" in line for line in lines)
    assert any(line.startswith("Still in use by the old job: port") for line in lines)
    assert (tmp_path / "job" / "best.pt").read_text() == "my precious checkpoint"


def test_a_correction_by_hand_is_proved_and_a_run_without_a_change_is_not(tmp_path: Path, place: Path) -> None:
    with launched_as_forks("metrics.py", tmp_path, 2) as job:
        report = hung_report(job)
        script = job.script.read_text()
        plan = plan_job_proof(report, by_hand(), {})
        assert plan.changed == []
        assert any("none was changed since the failure" in line for line in question_lines(plan))
        job.script.write_text(script.replace("    if rank == 0:  # BRANCH", "    if True:"))
        plan = plan_job_proof(report, by_hand(), {})
        assert plan.changed == [str(job.script)]
        proof = asyncio.run(prove_by_run(plan, report, limit_s=LIMIT_S))
        assert (proof.outcome, proof.what) == ("proved", "the job ran to its end with code 0"), proof
        unchanged = asyncio.run(prove_by_run(replace(plan, changed=[]), report, limit_s=LIMIT_S))
        assert unchanged.outcome == "not shown here"
        assert "no file has changed" in unchanged.what


def test_fixed_job_is_ended_once_every_rank_is_past_the_line(tmp_path: Path, place: Path) -> None:
    with launched_as_forks("endless.py", tmp_path, 3) as job:
        report = hung_report(job)
        assert report.verdict.where == job.line("HANG")
        proof, _ = prove(report, job, place, "    if rank == 0:  # BRANCH\n        dist", "    dist")
        assert proof.passed, proof
        assert proof.what.startswith("every rank got past endless.py:")


def test_patch_without_effect_is_reported_as_a_hang_before_the_limit(hung: Hung, place: Path) -> None:
    job, report = hung
    proof, _ = prove(report, job, place, '    print("loss"', '    print("the loss"')
    assert proof.outcome == "still there"
    assert "it hangs again: Rank 0 waits in all_reduce" in proof.what
    assert proof.elapsed_s < LIMIT_S - 10


def test_patch_that_breaks_the_script_shows_its_error(hung: Hung, place: Path) -> None:
    job, report = hung
    proof, _ = prove(report, job, place, "    rank = dist.get_rank()\n", "    rank = dist.get_rnk()\n")
    assert proof.outcome == "not shown here"
    assert proof.what == "the job ended with code 1"
    assert "get_rnk" in proof.detail


def test_limit_ends_a_job_that_neither_ends_nor_passes(hung: Hung) -> None:
    job, report = hung
    patch = FilePatch(path=str(job.script), before=job.script.read_text(), after="while True:\n    pass\n")
    fix = Fix(id="f", cause="c", title="t", safety="unsafe", patches=[patch])
    proof = asyncio.run(prove_by_run(plan_job_proof(report, fix, {}), report, limit_s=12))
    assert proof.outcome == "not shown here"
    assert proof.what.startswith("not finished within its limit of 1") and "pyproject.toml" in proof.what


class TestProbe:
    KNOWLEDGE = read_knowledge()

    def test_cause_that_a_job_proves(self) -> None:
        cause = self.KNOWLEDGE.causes["rank-conditional-collective"]
        context = ProbeContext(python=sys.executable)
        with pytest.raises(UserError, match="no check of this machine"):
            asyncio.run(prove_probe(cause, None, context, self.KNOWLEDGE, "reads"))
