"""Plan of a run for proof: what is shown before it starts, and what counts as the failure before."""

import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.proof_plan import plan_command_proof, question_lines
from ddpwizard.app.fixes.types import FilePatch, Fix
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
