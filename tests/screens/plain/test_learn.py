"""Learn as numbered questions: a chapter, a lab of a log, the quiz, and leaving in the middle."""

import asyncio
import json
import os
import signal

import pytest
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.labs.lab_session import LabSession
from ddpwizard.app.labs.progress import load_progress
from ddpwizard.knowledge.labs import read_labs
from ddpwizard.knowledge.quiz import read_quiz
from ddpwizard.screens.plain.lab_output import LabOutput, run_job
from ddpwizard.screens.plain.prompt import Prompt
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import ddpwizard

FAILED = """\
[default0]:RuntimeError: Timed out waiting 4000ms
Traceback (most recent call last):
  File "run.py", line 1032, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_16:42:24
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 2360)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_16:42:24
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 2356)
  error_file: <N/A>
============================================================
it goes on
"""


def answers(lab: str) -> list[str]:
    return list(LabSession(read_labs()[lab], built_in_knowledge(), "python").choices)


def test_a_lab_of_a_log_is_solved_and_its_chapter_goes_on() -> None:
    ids = answers("gpu-sick")
    right = ids.index("gpu-sick") + 1
    wrong = 1 if right > 1 else 2
    done = ddpwizard("learn", "gpu-sick", "--plain", stdin=f"h\nt\n{wrong}\n{right}\nb\nq\n")
    assert done.returncode == 0, done.stderr
    for text in (
        "Hint 1: ",
        "No. That would be: ",
        "Right.",
        "the wizard ranks it as number 1",
        "Which lab?",
        "Which chapter?",
    ):
        assert text in done.stdout
    assert load_progress().labs["gpu-sick"].repaired
    again = ddpwizard("learn", "gpu-sick", "--plain", stdin="q\n").stdout
    assert "the wizard ranks it as number 1" in again, "the answer of a lab that is done"


def test_a_lab_is_left_without_leaving_its_chapter() -> None:
    course = read_course(built_in_knowledge())
    number = next(each.number for each in course.labs if each.lab.launch and not each.lab.question)
    chapter, _, place = number.partition(".")
    done = ddpwizard("learn", chapter, "--plain", stdin=f"s\n{place}\nb\nb\nq\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Which lab?") == 2 and "Which chapter?" in done.stdout


def test_a_lab_that_is_not_done_is_offered_again() -> None:
    assert "go on with lab" not in ddpwizard("learn", "--plain", stdin="q\n").stdout
    number = read_course(built_in_knowledge()).number_of("gpu-sick")
    ddpwizard("learn", number, "--plain", stdin="b\nb\nq\n")
    again = ddpwizard("learn", "--plain", stdin="c\nb\nq\n").stdout
    assert f"go on with lab {number}" in again and f"Lab {number}  " in again


def test_the_quiz_is_graded_and_goes_on_where_it_was_left() -> None:
    first, second = read_quiz()[:2]
    wrong = (second.first + 1) % second.ranks
    done = ddpwizard("learn", "--quiz", "--plain", stdin=f"{first.first}\n{wrong}\nq\n")
    assert done.returncode == 0, done.stderr
    assert "Right." in done.stdout and "No." in done.stdout
    assert f"Rank {second.first} was first." in done.stdout
    assert "Quiz 3 of" in ddpwizard("learn", "--quiz", "--plain", stdin="q\n").stdout
    assert "1 of 2 right" in ddpwizard("learn", "--list").stdout
    listed = json.loads(ddpwizard("learn", "--json").stdout)["quiz"]
    assert [each["right"] for each in listed[:3]] == [True, False, None]


def test_a_restore_says_what_it_has_done() -> None:
    done = ddpwizard("learn", "missing-set-epoch", "--plain", stdin="3\nb\nb\nq\n")
    assert done.returncode == 0, done.stderr
    assert "The files of the lab are restored." in done.stdout and "undo" not in done.stdout
    session = LabSession(read_labs()["missing-set-epoch"], built_in_knowledge(), "python")
    session.script.write_text("print('mine')\n")
    kept = ddpwizard("learn", "missing-set-epoch", "--plain", stdin="3\nn\nb\nb\nq\n")
    assert "Restore the files of the lab?" in kept.stdout and session.is_edited
    restored = ddpwizard("learn", "missing-set-epoch", "--plain", stdin="3\ny\nb\nb\nq\n")
    assert "ddpwizard undo brings your changes back" in restored.stdout and not session.is_edited
    assert "restore" in ddpwizard("undo", "--list").stdout


def test_a_page_of_a_chapter_is_left_by_b_and_q() -> None:
    back = ddpwizard("learn", "7", "--plain", stdin="x\nb\nq\n").stdout
    assert back.count("page 1 of 3") == 1 and "page 2 of 3" not in back and "Which chapter?" in back
    left = ddpwizard("learn", "7", "--plain", stdin="q\n")
    assert left.returncode == 0 and "page 2 of 3" not in left.stdout and "Which chapter?" not in left.stdout


def test_the_story_is_below_the_code() -> None:
    shown = ddpwizard("learn", "missing-set-epoch", "--plain", stdin="b\nb\nq\n").stdout
    lab = read_labs()["missing-set-epoch"]
    assert shown.index("import torch") < shown.index(" ".join(lab.story.split()[:4]))


def test_an_interrupt_stops_the_job_and_not_the_wizard(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []

    async def job(_: object) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.append("ended")
        return True

    assert run_job(Prompt(), "torchrun train.py", job) is None and ended
    assert "The job is stopped." in capsys.readouterr().out


def test_the_report_of_the_launcher_is_cut_to_the_first_failure(capsys: pytest.CaptureFixture[str]) -> None:
    output = LabOutput(Prompt(), "torchrun --standalone --nproc-per-node=2 train.py")
    for line in FAILED.splitlines():
        output.show(line)
    output.end()
    assert capsys.readouterr().out.splitlines() == [
        "  rank 0    RuntimeError: Timed out waiting 4000ms",
        "  launcher  Root Cause (first observed failure):",
        "  launcher    rank      : 0 (local_rank: 0)",
        "  launcher    exitcode  : 1 (pid: 2356)",
        "  launcher  it goes on",
    ]


def test_an_error_of_the_launcher_itself_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "run.py", line 1, in main',
        "OSError: Address already in use",
    ]
    for launch, name in (("torchrun train.py", "launcher"), ("python train.py", "python  ")):
        output = LabOutput(Prompt(), launch)
        for line in [*lines, lines[0]]:
            output.show(line)
        output.end()
        assert capsys.readouterr().out.splitlines() == [f"  {name}  {line}" for line in [*lines, lines[0]]]


def test_a_hint_is_offered_before_the_first_run() -> None:
    shown = ddpwizard("learn", "missing-set-epoch", "--plain", stdin="h\nb\nb\nq\n").stdout
    assert "h a hint" in shown and "Hint 1: " in shown
    assert load_progress().labs["missing-set-epoch"].hints == 1
