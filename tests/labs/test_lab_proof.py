"""A lab after its repair: which command runs, and what a run that is not repaired shows instead."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.undo import applied_fixes, undo_fix
from ddpwizard.app.labs.lab_diagnosis import OUTPUT, diagnose_run
from ddpwizard.app.labs.lab_proof import LabProof, missed_repair
from ddpwizard.app.labs.lab_run import LabRun, is_repaired
from ddpwizard.app.labs.lab_session import LabSession
from ddpwizard.app.labs.phrases import (
    WELL_AFTER_CHANGE,
    evidence_lines,
    not_shown_text,
    restore_details,
    resumed_text,
)
from ddpwizard.knowledge.labs import Lab, read_labs
from helpers.built_in_knowledge import built_in_knowledge
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()
LABS = read_labs()
LAUNCHER = """\
************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default
************************************
"""
SUMMARY = """\
train.py FAILED
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 7833)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
SEGFAULT = SUMMARY.replace("exitcode  : 1 (pid", "exitcode  : -11 (pid").replace(
    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    "Signal 11 (SIGSEGV) received by PID 1",
)
NO_INDENT = """\
[default1]:  File "/labs/copy/train.py", line 2
[default1]:    import os
[default1]:IndentationError: unexpected indent
"""
RAISED = """\
[default1]:[rank1]: Traceback (most recent call last):
[default1]:[rank1]:   File "/labs/copy/train.py", line 7, in <module>
[default1]:[rank1]:     print(values[3])
[default1]:[rank1]: IndexError: list index out of range
"""


def lab_of_variable(directory: Path) -> Lab:
    """Return a lab whose script needs a variable that its command does not set."""
    directory.mkdir()
    (directory / "train.py").write_text('import os\nprint("trained on", int(os.environ["LOCAL_RANK"]) + 1)\n')
    lab = LABS["bare-python-launch"]
    return replace(lab, directory=directory, launch="python train.py", repaired="trained on 1")


def test_a_run_uses_the_command_that_is_kept_and_its_variables(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert asyncio.run(session.start()), "it fails as the lab shows"
    session.show_answer()
    session.start_by("LOCAL_RANK=0 python train.py")
    assert session.command == "LOCAL_RANK=0 python train.py" and session.stage == "prove"
    assert not asyncio.run(session.start())
    assert session.run and (session.run.code, session.run.output) == (0, "trained on 1")
    assert asyncio.run(session.prove()).outcome == "proved"
    assert not asyncio.run(session.start()), "and it does not fail after its proof"
    session.reset()
    assert session.command == lab.launch and asyncio.run(session.start())


def test_a_run_that_fails_in_another_way_says_so(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert asyncio.run(session.start()) and not session.other_failure
    session.script.write_text("import os\nprint(os.environ[0])\n")
    assert not asyncio.run(session.start())
    text = not_shown_text(session)
    assert "TypeError: str expected, not int at train.py:2" in text and "did not fail" not in text
    session.script.write_text("print('trained on 1')\n")
    assert not asyncio.run(session.start()) and not_shown_text(session) == WELL_AFTER_CHANGE


def test_output_is_of_the_command_that_printed_it(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    asyncio.run(session.start())
    session.start_by("torchrun --standalone --nproc-per-node=2 train.py")
    assert session.shown_launch == lab.launch != session.launch


@pytest.mark.parametrize("line", ["torchrun 'train.py", "RANK=0"])
def test_a_line_that_starts_nothing_is_refused(line: str, tmp_path: Path) -> None:
    session = LabSession(LABS["bare-python-launch"], KNOWLEDGE, sys.executable, tmp_path)
    with pytest.raises(UserError, match="no command line"):
        session.start_by(line)
    assert session.command == session.lab.launch


def missed(lab: str, output: str, code: int) -> LabProof:
    run = LabRun(ending="ended", code=code, elapsed_s=1.0, output=LAUNCHER + output)
    return missed_repair(LABS[lab], run, KNOWLEDGE)


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (NO_INDENT, "IndentationError: unexpected indent at train.py:2"),
        (NO_INDENT + NO_INDENT.replace("default1", "default0"), "IndentationError: unexpected indent at train.py:2"),
        (RAISED, "IndexError: list index out of range at train.py:7"),
    ],
)
@pytest.mark.parametrize("lab", ["bare-python-launch", "missing-set-epoch"])
def test_another_error_is_named_with_its_line(lab: str, printed: str, error: str) -> None:
    proof = missed(lab, printed + SUMMARY, 1)
    assert proof.outcome == "another error" and error in proof.what
    assert "error_file" not in proof.what and "=====" not in proof.what


def test_the_error_of_the_lab_is_still_there() -> None:
    proof = missed("bare-python-launch", "KeyError: 'LOCAL_RANK'", 1)
    assert (proof.outcome, proof.what) == ("still there", "it fails as before: KeyError: 'LOCAL_RANK'")


def test_a_wrong_result_is_shown_with_the_expected_one() -> None:
    printed = "4 different orders in 4 epochs, each sample used 2 to 2 times"
    proof = missed("missing-set-epoch", f"[default0]:epoch 3\n[default0]:{printed}\n" + LAUNCHER, 0)
    assert proof.outcome == "another result"
    assert f'"{printed}"; expected: "{printed.replace("2 to 2", "1 to 1")}"' in proof.what
    silent = missed("missing-set-epoch", "[default0]:bye\n" + LAUNCHER, 0)
    assert silent.outcome == "another result" and silent.what.endswith('is not printed; the last line is "bye"')
    assert "OMP_NUM_THREADS" not in proof.what + silent.what


@pytest.mark.parametrize(
    "lab", [id_ for id_, lab in LABS.items() if lab.launch and not lab.question and lab.failure in ("crash", "wrong")]
)
def test_the_expected_line_is_no_pattern(lab: str) -> None:
    proof = missed(lab, "[default0]:nothing of the kind\n" + LAUNCHER, 0)
    assert not re.search(r"\\|\.\*|\[\d\.|\]\+|\(\?", proof.what), proof.what


@pytest.mark.parametrize(
    ("lab", "line"),
    [
        ("env-contract-broken", '"5 steps on the local ranks [0, 1], loss"'),
        ("rank-conditional-collective", '"epoch 2: accuracy … of 128 samples"'),
        ("wrap-before-device", '"epoch 1: … the weights of the ranks differ by 0.0000"'),
    ],
)
def test_what_may_differ_in_the_expected_line_is_left_open(lab: str, line: str) -> None:
    assert line in missed(lab, "[default0]:nothing of the kind\n" + LAUNCHER, 0).what


def test_a_run_with_fewer_ranks_than_the_lab_is_no_repair() -> None:
    lab = LABS["effective-batch-lr"]
    samples = "[default0]:an epoch has 512 samples"
    printed = f"{samples}\n[default0]:2 processes with 16 samples each, learning rate 0.50: converged"
    run = LabRun(ending="ended", code=0, elapsed_s=1.0, output=printed, launch=lab.launch)
    assert is_repaired(lab, run) and is_repaired(lab, replace(run, launch=lab.launch.replace("=2", "=4")))
    alone = replace(run, launch=lab.launch.replace("=2", "=1"))
    assert not is_repaired(lab, alone) and not is_repaired(lab, replace(run, launch="python train.py"))
    proof = missed_repair(lab, alone, KNOWLEDGE)
    assert proof.outcome == "another result" and "1 rank fewer than the lab" in proof.what


def test_evidence_in_the_output_is_quoted_as_its_lines_have_no_numbers(tmp_path: Path) -> None:
    session = LabSession(LABS["bare-python-launch"], KNOWLEDGE, sys.executable, tmp_path)
    asyncio.run(session.start())
    session.show_answer()
    shown = "\n".join(evidence_lines(session))
    assert f"[{OUTPUT}:" not in shown and "KeyError: 'LOCAL_RANK'   [output of python]" in shown
    reasons = [line for cause in session.found.diagnosis.causes for line in cause.because] if session.found else []
    assert OUTPUT in {line.where.rpartition(":")[0] for line in reasons}


def test_evidence_that_names_a_line_in_other_words_quotes_it(tmp_path: Path) -> None:
    session = LabSession(LABS["decoder-crash"], KNOWLEDGE, sys.executable, tmp_path)
    session.run = LabRun(ending="ended", code=1, elapsed_s=1.0, output=f"[default0]:step 1\n{SEGFAULT}")
    session.found = diagnose_run(session.lab, session.run, tmp_path, KNOWLEDGE)
    session.show_answer()
    shown = "\n".join(evidence_lines(session))
    assert f"[{OUTPUT}:" not in shown and "[output of launcher" in shown


def test_evidence_of_a_log_counts_from_the_copy(tmp_path: Path) -> None:
    session = LabSession(LABS["gpu-sick"], KNOWLEDGE, sys.executable, tmp_path)
    asyncio.run(session.read_log())
    session.show_answer()
    shown = "\n".join(evidence_lines(session))
    assert "[kernel.log:" in shown and str(tmp_path) not in shown


def test_a_copy_repaired_before_its_first_run_leads_to_the_proof(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert "run_original" not in session.allowed, "it is the original"
    session.script.write_text("print('trained on 1')\n")
    assert session.stage == "run" and "run_original" in session.allowed
    assert not asyncio.run(session.start()) and not_shown_text(session) == WELL_AFTER_CHANGE
    assert session.stage == "answer" and "answer" in session.allowed
    asyncio.run(session.start_original())
    assert session.found and session.progress.failed and "KeyError" in (session.run.output if session.run else "")
    assert session.script.read_text() == "print('trained on 1')\n"
    session.show_answer()
    assert session.stage == "prove" and asyncio.run(session.prove()).outcome == "proved"


def test_a_cause_named_before_the_failure_was_seen_is_proved_after_it(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    session.script.write_text("print('trained on 1')\n")
    asyncio.run(session.start())
    assert session.answer(lab.cause) and session.stage == "prove"
    assert asyncio.run(session.prove()).outcome == "not shown here"
    asyncio.run(session.start_original())
    assert asyncio.run(session.prove()).outcome == "proved"
    (lab.directory / "train.py").write_text("print('trained on 1')\n")
    with pytest.raises(UserError, match="the original did not fail"):
        asyncio.run(session.start_original())


def test_a_copy_that_fails_in_another_way_before_its_first_run_is_to_be_run_again(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    session.script.write_text("print(1 / 0)\n")
    assert not asyncio.run(session.start()) and "ZeroDivisionError" in not_shown_text(session)
    assert session.stage == "run" and "answer" not in session.allowed


def test_a_restore_keeps_the_changes_for_undo_and_the_cause_that_was_named(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    original = session.script.read_text()
    asyncio.run(session.start())
    session.show_answer()
    session.script.write_text("print('mine')\n")
    session.start_by("python train.py --mine")
    assert "ddpwizard undo" in restore_details(session) and lab.launch in restore_details(session)
    backup = session.reset()
    assert backup and session.script.read_text() == original and session.launch == lab.launch
    assert session.progress.answered and session.stage == "repair" and "apply" in session.allowed
    assert [each.id for each in applied_fixes() if each.state == "applied"] == [backup.id]
    undo_fix()
    assert session.script.read_text() == "print('mine')\n" and session.stage == "prove"


def test_a_restore_forgets_the_failure_of_an_edited_copy(tmp_path: Path) -> None:
    session = LabSession(lab_of_variable(tmp_path / "lab"), KNOWLEDGE, sys.executable, tmp_path / "copy")
    session.script.write_text(session.script.read_text() + "# mine\n")
    assert asyncio.run(session.start())
    session.reset()
    assert session.stage == "run" and session.found is None and session.run is None
    assert not (session.directory / ".failure").exists()


def test_a_restore_of_files_that_are_not_changed_has_no_backup(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert session.reset() is None and not applied_fixes() and not restore_details(session)


def test_a_lab_that_is_opened_again_has_its_failure(tmp_path: Path) -> None:
    lab = lab_of_variable(tmp_path / "lab")
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert not resumed_text(session)
    asyncio.run(session.start())
    again = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert again.stage == "answer" and again.run == session.run and again.found == session.found
    assert "was seen to fail" in resumed_text(again)
    again.show_answer()
    third = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    assert third.stage == "repair" and evidence_lines(third) == evidence_lines(again)
    assert KNOWLEDGE.causes[lab.cause].title in resumed_text(third)
    (third.directory / ".failure").write_bytes(b"{")
    assert LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy").stage == "run", "it cannot be read"
    third.reset()
    assert not (third.directory / ".failure").exists()
