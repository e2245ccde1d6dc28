"""Plan of a run for proof: what is shown before it starts, and what counts as the failure before."""

import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.proof_limit import START_S, UNKNOWN_S
from ddpwizard.app.fixes.proof_plan import plan_command_proof, question_lines
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.logs.types import Attempt, Timeline, TimelineEvent, Track
from ddpwizard.app.session import Session

SCRIPT = 'import torch\ntorch.save(1, "/data/best.pt")\nopen("log.txt", "a")\n'
FIX = Fix(id="f", cause="c", title="t", safety="display")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def session() -> Session:
    return Session.new()


def crashed(session: Session, log: Path) -> None:
    session.append("evidence", id="log:c/0", source="log", what="KeyError: 'image_path'", where=f"{log}:2")


@pytest.mark.parametrize(
    ("line", "ranks", "start"),
    [
        ("python train.py --lr 1", 1, ["train.py", "--lr", "1"]),
        ("python -m torch.distributed.run --nproc-per-node=3 train.py", 3, ["--standalone", "--nproc-per-node=3"]),
        ("python -m torch.distributed.run --master-port=29500 --nproc-per-node 2 train.py", 2, ["--standalone"]),
    ],
)
def test_the_command_that_the_user_gives_is_started_at_a_free_port(
    job: Path, session: Session, line: str, ranks: int, start: list[str]
) -> None:
    plan = plan_command_proof(line, FIX, session, job, sys.executable)
    assert plan.ranks == ranks
    assert set(start) <= set(plan.relaunch.command)
    assert not any("29500" in word for word in plan.relaunch.command)
    assert (plan.relaunch.script, plan.relaunch.cwd) == (job / "train.py", job)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no command was given"),
        ("no-such-program train.py", "no-such-program: no such program"),
        ("python -c 'print(1)'", "starts no script here"),
        ("python missing.py", r"missing\.py: no such script"),
        ("python 'train.py", "No closing quotation"),
    ],
)
def test_a_command_that_starts_no_script_is_refused(job: Path, session: Session, line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_command_proof(line, FIX, session, job, sys.executable)


def test_the_question_shows_command_directory_files_and_written_paths(job: Path, session: Session) -> None:
    patch = FilePatch(path=str(job / "train.py"), before=SCRIPT, after=SCRIPT + "\n")
    fix = Fix(id="f", cause="c", title="t", safety="safe", patches=[patch])
    lines = question_lines(plan_command_proof("python train.py", fix, session, job, sys.executable))
    text = "\n".join(lines)
    assert "train.py" in lines[0] and f"in {job}" in lines[1]
    assert "Changed for this run: train.py" in text
    assert "torch.save → /data/best.pt" in text and f"open → {job}/log.txt" in text
    assert (job / "train.py").read_text() == SCRIPT, "nothing is written yet"


def with_log_times(session: Session, *, first_s: float | None, last_s: float | None) -> None:
    def event(time_s: float | None) -> TimelineEvent:
        return TimelineEvent(kind="error", time_s=time_s, line=1, where="a.log:1", text="", id="")

    track = Track(rank=0, host="", first=event(first_s), last=event(last_s))
    session.append("timeline", **msgspec.to_builtins(Timeline([Attempt(1, [track])])))


def test_the_limit_is_by_the_time_that_the_job_took_to_fail(job: Path, session: Session) -> None:
    def limit_s() -> float:
        return plan_command_proof("python train.py", FIX, session, job, sys.executable).limit.limit_s

    assert limit_s() == UNKNOWN_S
    with_log_times(session, first_s=None, last_s=None)
    assert limit_s() == UNKNOWN_S, "no line has a time"
    with_log_times(session, first_s=1000.0, last_s=4600.0)
    plan = plan_command_proof("python train.py", FIX, session, job, sys.executable)
    assert plan.limit.limit_s == START_S + 2 * 3600
    (line,) = [line for line in question_lines(plan) if line.startswith("Limit: ")]
    assert "2 h" in line and "failed after 60 min" in line and "[tool.ddpwizard.proof]" in line


def test_the_project_sets_the_limit_of_a_proof(job: Path, session: Session) -> None:
    (job / ".git").mkdir()
    settings = job / "pyproject.toml"
    settings.write_text("[tool.ddpwizard.proof]\nlimit-s = 90\n")
    (job / "sub").mkdir()
    (job / "sub" / "train.py").write_text(SCRIPT)
    for directory in (job, job / "sub"):
        plan = plan_command_proof("python train.py", FIX, session, directory, sys.executable)
        assert plan.limit.limit_s == 90.0
        assert any(line.startswith("Limit: 90 s (limit-s in") for line in question_lines(plan))
    for wrong in ("0", "-1", "true", '"long"', "nan", "inf"):
        settings.write_text(f"[tool.ddpwizard.proof]\nlimit-s = {wrong}\n")
        with pytest.raises(UserError, match=r"proof\.limit-s is no number of seconds"):
            plan_command_proof("python train.py", FIX, session, job, sys.executable)
    settings.write_text("[tool.ddpwizard]\nproof = 3\n")
    with pytest.raises(UserError, match="proof is no table"):
        plan_command_proof("python train.py", FIX, session, job, sys.executable)


def test_a_failure_counts_as_seen_here_if_the_log_names_the_script_or_a_run_failed(job: Path, session: Session) -> None:
    def seen_here() -> bool:
        return plan_command_proof("python train.py", FIX, session, job, sys.executable).seen_here

    assert not seen_here(), "nothing is known"
    (job / "other.log").write_text('Traceback\n  File "/home/alice/train.py", line 2\nKeyError\n')
    crashed(session, job / "other.log")
    assert not seen_here(), "the log of another machine"
    (job / "crash.log").write_text(f'Traceback\n  File "{job}/train.py", line 2\nKeyError\n')
    crashed(session, job / "crash.log")
    assert seen_here()
    again = Session.new()
    crashed(again, job / "other.log")
    again.append("proof", passed=False, outcome="still there", what="the same error", detail="")
    assert plan_command_proof("python train.py", FIX, again, job, sys.executable).seen_here


def test_an_example_file_next_to_the_script_is_no_change_of_the_job(job: Path, session: Session) -> None:
    example = Fix(id="f", cause="c", title="t", safety="safe", files={"example.py": "print(1)\n"})
    assert plan_command_proof("python train.py", example, session, job, sys.executable).changed == []
    config = Fix(id="f", cause="c", title="t", safety="safe", files={"train.py": "print(1)\n"})
    changed = plan_command_proof("python train.py", config, session, job, sys.executable).changed
    assert changed == [str(job / "train.py")]


def test_the_command_line_of_a_fix_is_a_change_and_another_one_is_not(job: Path, session: Session) -> None:
    launch = Fix(id="f", cause="c", title="t", safety="display", start="python train.py --lr 1")
    plan = plan_command_proof("python  train.py --lr 1", launch, session, job, sys.executable)
    assert plan.other_command
    assert any("with the command line of the fix" in line for line in question_lines(plan))
    assert not plan_command_proof("python train.py", launch, session, job, sys.executable).other_command
