"""A learner's way through a lab: which step comes next, what is kept, what a fix writes."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.undo import applied_fixes, undo_fix
from ddpwizard.app.labs.lab_diagnosis import OWN_REPAIR, diagnose_run
from ddpwizard.app.labs.lab_run import LabRun, is_repaired, run_lab
from ddpwizard.app.labs.lab_session import LabSession
from ddpwizard.app.labs.phrases import (
    START_SO,
    STARTED_SO,
    UNDOABLE,
    applied_text,
    evidence_lines,
    repair_advice_lines,
    repair_question,
    repair_title_lines,
    wrong_answer_text,
)
from ddpwizard.app.labs.rank_output import lines_by_rank
from ddpwizard.app.labs.workspace import is_edited, labs_dir, make_workspace, recorded_outputs, reset_workspace
from ddpwizard.knowledge.labs import Lab, LabEdit, problem_of_links, read_labs
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
LABS = read_labs()


def session_of(lab: str | Lab, directory: Path) -> LabSession:
    return LabSession(LABS[lab] if isinstance(lab, str) else lab, KNOWLEDGE, "python", directory)


def failed(session: LabSession) -> None:
    """Note a run that failed as the lab shows: that of a wrong result is diagnosed by its script alone."""
    session.run = LabRun(ending="ended", code=0, elapsed_s=1.0, output="1 different orders in 4 epochs")
    session.found = diagnose_run(session.lab, session.run, session.directory, KNOWLEDGE)
    session.progress.failed = True


def test_a_lab_is_run_then_answered_then_repaired_then_proved(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    assert session.stage == "run" and {"run", "hint"} <= session.allowed
    assert not {"answer", "apply", "prove"} & session.allowed
    failed(session)
    assert session.stage == "answer" and "answer" in session.allowed and "apply" not in session.allowed
    assert not session.answer("missing-sampler") and session.stage == "answer"
    assert session.answer("missing-set-epoch") and session.stage == "repair"
    assert {"apply", "edit"} <= session.allowed and not {"hint", "answer", "prove"} & session.allowed
    session.apply(session.repair())
    assert session.stage == "prove" and "prove" in session.allowed and "apply" not in session.allowed
    session.reset()
    assert session.stage == "run" and not session.is_edited


def test_a_fix_of_a_lab_is_undone_like_any_other(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    before = session.script.read_text()
    failed(session)
    session.show_answer()
    session.apply(session.repair())
    assert "set_epoch" in session.script.read_text()
    applied = applied_fixes()
    assert [each.state for each in applied] == ["applied"]
    undo_fix()
    assert session.script.read_text() == before and session.stage == "repair"


def test_an_edit_by_hand_is_to_be_proved(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    failed(session)
    session.show_answer()
    session.script.write_text(session.script.read_text() + "\n# mine\n")
    assert session.stage == "prove"
    with pytest.raises(UserError, match="changed since"):
        repair = session.repair()
        session.script.write_text("other\n")
        session.apply(repair)


def test_a_lab_goes_on_where_it_was_left(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    failed(session)
    hint = session.next_hint()
    session.answer("missing-set-epoch")
    session.apply(session.repair())
    again = session_of("missing-set-epoch", tmp_path)
    assert again.progress.hints == 1 and hint == again.lab.hints[0]
    assert again.progress.answered and again.stage == "prove"


def test_a_fix_that_starts_the_job_in_another_way_is_kept(tmp_path: Path) -> None:
    lab = LABS["bare-python-launch"]
    session = session_of(lab, tmp_path)
    session.run = LabRun(ending="ended", code=1, elapsed_s=1.0, output="ValueError: environment variable RANK expected")
    session.found = diagnose_run(lab, session.run, tmp_path, KNOWLEDGE)
    session.show_answer()
    repair = session.repair()
    assert "torchrun" in repair.launch
    session.apply(repair)
    assert session_of(lab, tmp_path).progress.launch == repair.launch and not session.is_edited
    assert session.stage == "prove"


def test_a_command_of_a_lab_counts_from_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above, lab = tmp_path / "above", LABS["bare-python-launch"]
    session = session_of(lab, above / "copy")
    monkeypatch.chdir(above)
    session.run = LabRun(ending="ended", code=1, elapsed_s=1.0, output="KeyError: 'LOCAL_RANK'")
    session.found = diagnose_run(lab, session.run, session.directory, KNOWLEDGE)
    session.show_answer()
    repair = session.repair()
    assert repair.launch.endswith(" train.py") and repair.launch in "\n".join(
        repair_title_lines(repair, session.directory)
    )
    assert repair_question(repair) == START_SO
    applied = session.apply(repair)
    assert applied_text(applied) == STARTED_SO and not applied_fixes()
    assert "undo" not in STARTED_SO


def hung_without_evidence(lab: str | Lab, directory: Path) -> LabSession:
    session = session_of(lab, directory)
    session.run = LabRun(ending="ended", code=0, elapsed_s=1.0, output="")
    session.found = diagnose_run(session.lab, session.run, session.directory, KNOWLEDGE)
    session.show_answer()
    return session


def test_the_repair_of_a_lab_names_the_lines_that_it_changes(tmp_path: Path) -> None:
    session = hung_without_evidence("rank-died-survivors-wait", tmp_path)
    repair = session.repair()
    assert repair.advice and repair.fix.title == OWN_REPAIR != repair.advice.title
    before = session.script.read_text().splitlines()
    shown = "\n".join(repair_title_lines(repair, session.directory))
    changed = [place.line for place in repair.fix.places]
    assert any("rank + 1" in before[line - 1] for line in changed) and "try:" in [
        before[line - 1].strip() for line in changed
    ]
    assert all(f":{line} " in shown and before[line - 1].strip() in shown for line in changed)
    assert "automatic patch" not in shown
    assert repair.advice.title in "\n".join(repair_advice_lines(repair))
    assert applied_text(session.apply(repair)) == UNDOABLE
    applied = applied_fixes()[0].applied
    assert applied and applied.title == OWN_REPAIR


def test_a_command_for_the_job_that_ran_stays_advice(tmp_path: Path) -> None:
    by_hand = LabEdit(file="throttle.py", old="os.kill(os.getpid(), signal.SIGSTOP)", new="pass")
    lab = msgspec.structs.replace(LABS["throttled-rank"], fix="let-it-go-on", edits=[by_hand])
    session = hung_without_evidence(lab, tmp_path)
    repair = session.repair()
    assert repair.advice and "kill -CONT" in repair.advice.code
    assert "kill -CONT" not in "\n".join(repair_title_lines(repair, session.directory))
    assert "which has ended" in repair_advice_lines(repair)[1]
    assert "kill -CONT" in "\n".join(repair_advice_lines(repair))


def test_what_was_offered_is_applied_or_nothing(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    failed(session)
    session.show_answer()
    offered = session.repair()
    session.script.write_text("# another text\n" + session.script.read_text())
    with pytest.raises(UserError, match="changed since"):
        session.apply(offered)


def test_the_summary_of_the_launcher_is_of_no_rank() -> None:
    summary = "Failures:\n[1]: exitcode  : -15\n  rank      : 1"
    assert [*lines_by_rank(f"[default0]:step 1\n{summary}")] == [0, None]


def test_a_log_says_after_the_answer_what_it_shows(tmp_path: Path) -> None:
    session = session_of("master-unreachable", tmp_path)
    asyncio.run(session.read_log())
    session.answer("master-unreachable")
    assert "10.4.0.17" in " ".join(evidence_lines(session)) and session.found
    assert session.found.diagnosis.causes[0].id == "master-unreachable"
    before_rendezvous = (session.directory / "gpu07.log").read_text()
    assert "[default" not in before_rendezvous


def test_a_log_is_answered_and_then_done(tmp_path: Path) -> None:
    session = session_of("wrong-nic" if not LABS["wrong-nic"].launch else "gpu-sick", tmp_path)
    asyncio.run(session.read_log())
    assert session.stage == "answer" and not {"run", "edit", "reset", "apply"} & session.allowed
    assert session.answer(session.lab.cause) and session.stage == "done" and session.progress.repaired


def test_an_answer_that_was_found_is_not_counted_as_shown(tmp_path: Path) -> None:
    found, shown = (session_of("gpu-sick", tmp_path / name) for name in ("found", "shown"))
    found.answer("gpu-sick")
    for each in (found, shown):
        each.show_answer()
    assert (found.progress.answer_shown, shown.progress.answer_shown) == (False, True)


def test_a_prediction_comes_before_the_run(tmp_path: Path) -> None:
    session = session_of("token-weights", tmp_path)
    assert session.stage == "answer" and {"answer", "hint"} <= session.allowed and "run" not in session.allowed
    assert session.right_answer in session.choices and len(session.choices) == 4
    assert not session.answer(session.lab.question.wrong[0] if session.lab.question else "")
    assert session.stage == "run" and not session.progress.repaired


def test_a_run_removes_what_the_last_run_has_written_and_nothing_else(tmp_path: Path) -> None:
    lab = LABS["missing-set-epoch"]
    make_workspace(lab, tmp_path)
    (tmp_path / "notes.txt").write_text("mine\n")
    with recorded_outputs(tmp_path):
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last é\n.pt").write_text("written by the job")
    (tmp_path / "checkpoints" / "mine.pt").write_text("mine")
    with recorded_outputs(tmp_path):
        assert not (tmp_path / "checkpoints" / "last é\n.pt").exists()
        (tmp_path / "model.pt").write_text("written by the job")
    (tmp_path / "train.py").write_text("edited\n")
    reset_workspace(lab, tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"train.py", "notes.txt", "checkpoints/mine.pt"} and not is_edited(lab, tmp_path)


@pytest.mark.parametrize("lab", LABS.values(), ids=lambda lab: lab.id)
def test_choices_have_the_right_answer_among_others(lab: Lab, tmp_path: Path) -> None:
    session = session_of(lab, tmp_path)
    assert session.right_answer in session.choices and len(session.choices) >= 4
    assert all(session.choices.values())


def test_evidence_has_what_the_job_prints_and_no_answer_that_nobody_gave(tmp_path: Path) -> None:
    session = session_of("missing-set-epoch", tmp_path)
    failed(session)
    session.show_answer()
    assert session.found
    (own,) = [each for each in session.found.diagnosis.causes if each.id == session.lab.cause]
    given = [line.what for line in own.because if line.source == "answer"]
    shown = "\n".join(evidence_lines(session))
    assert given and not any(what in shown for what in given)
    assert "the job prints: 1 different orders in 4 epochs" in shown and "train.py:" in shown


def test_wrong_number_is_no_repair() -> None:
    lab = read_labs()["rank-conditional-collective"]
    right, wrong = (
        LabRun(
            ending="ended",
            code=0,
            elapsed_s=1.0,
            output=f"[default0]:epoch 2: accuracy {value} of 128 samples\nbest accuracy {value}",
        )
        for value in ("0.67", "0.37")
    )
    assert is_repaired(lab, right)
    assert not is_repaired(lab, wrong)


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "1"}])
def test_a_lab_sees_no_gpu_unless_it_names_one(environ: dict[str, str], tmp_path: Path) -> None:
    """With a GPU, FSDP and NCCL would use it: on one GPU seven labs of two ranks failed in another way."""
    (tmp_path / "train.py").write_text("import os; print('visible:', repr(os.environ.get('CUDA_VISIBLE_DEVICES')))")
    lab = msgspec.structs.replace(LABS["script-error"], launch="python train.py", environ=environ)
    run = asyncio.run(run_lab(lab, tmp_path, sys.executable))
    assert run.output == f"visible: {environ.get('CUDA_VISIBLE_DEVICES', '')!r}"


@pytest.mark.parametrize("lab", [lab for lab in LABS.values() if not lab.question], ids=lambda lab: lab.id)
def test_a_wrong_answer_is_explained_without_the_right_one(lab: Lab, tmp_path: Path) -> None:
    session = session_of(lab, tmp_path)
    right = KNOWLEDGE.causes[lab.cause]
    for guess in lab.guesses:
        text = wrong_answer_text(session, guess)
        assert text.startswith("Nearly: " if guess in lab.nearly else "No. That would be: ") and len(text) < 225
        assert right.title not in text and lab.cause not in text
        assert KNOWLEDGE.causes[guess].title not in text


@pytest.mark.parametrize("lab", [lab for lab in LABS.values() if not lab.launch], ids=lambda lab: lab.id)
def test_a_refused_guess_names_what_the_log_shows_against_it(lab: Lab, tmp_path: Path) -> None:
    session = session_of(lab, tmp_path)
    asyncio.run(session.read_log())
    for guess in lab.guesses:
        text = wrong_answer_text(session, guess)
        assert len(text) < 310 and not any(cause.title in text for cause in KNOWLEDGE.causes.values())


def test_an_observation_against_a_guess_is_of_this_log(tmp_path: Path) -> None:
    session = session_of("model-does-not-fit", tmp_path)
    asyncio.run(session.read_log())
    assert wrong_answer_text(session, "one-rank-oom").endswith("Against it: all 8 ranks ran out of GPU memory")
    assert not session.answer("one-rank-oom") and not session.answer("one-rank-oom")
    assert session_of("model-does-not-fit", tmp_path).progress.refused == ["one-rank-oom"]
    other = session_of("gpu-sick", tmp_path / "other")
    asyncio.run(other.read_log())
    assert "Against it" not in wrong_answer_text(other, "nccl-system-error"), "it would name the cause"


def test_a_more_general_cause_is_nearly_right(tmp_path: Path) -> None:
    session = session_of("iterable-not-sharded", tmp_path)
    assert "no sampler can split" in wrong_answer_text(session, "missing-sampler")
    assert not session.answer("missing-sampler") and not session.progress.answered
    broken = msgspec.structs.replace(session.lab, nearly={"wrong-nic": "that too"})
    assert problem_of_links(session.lab, KNOWLEDGE) is None
    assert problem_of_links(broken, KNOWLEDGE) == ("nearly", "'wrong-nic' is not among the guesses")


def test_the_name_of_a_copy_is_the_number_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lab, other = LABS["port-in-use"], LABS["script-error"]
    first = LabSession(lab, KNOWLEDGE, "python", number="2.2")
    assert first.directory == labs_dir() / "2.2"
    assert LabSession(lab, KNOWLEDGE, "python", number="3.1").directory == first.directory, "its number has changed"
    assert LabSession(other, KNOWLEDGE, "python", number="2.2").directory == labs_dir() / "2.2-2"
    assert {path.name for path in labs_dir().iterdir()} == {"2.2", "2.2-2"}


def test_a_copy_that_was_named_by_the_id_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lab = LABS["port-in-use"]
    make_workspace(lab, labs_dir() / lab.id)
    (labs_dir() / lab.id / "train.py").write_text("mine\n")
    session = LabSession(lab, KNOWLEDGE, "python", number="2.2")
    assert session.directory == labs_dir() / lab.id and session.is_edited
