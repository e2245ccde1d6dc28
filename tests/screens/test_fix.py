"""The screen of a fix: a proof asks first, its result is kept, and a session left there resumes there."""

import re
from pathlib import Path
from threading import Event

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.flow import FixFlow
from ddpwizard.app.fixes.records import AppliedFix
from ddpwizard.app.fixes.types import Fix, Place
from ddpwizard.app.session import Session
from ddpwizard.app.triage.types import JobReport
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.fix.fix import FixScreen
from ddpwizard.screens.knowledge.browser import BrowserScreen
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_plain import plain_wizard
from helpers.recorded_state import RecordedState, patch_fix, report
from helpers.screen_pilot import frame, shows, until, walk
from msgspec.structs import replace

SIZE = (80, 24)
OUTCOME = re.compile(r"(proved in|not shown here:|still there:)")


@walk
async def test_a_run_of_the_job_is_asked_for_with_no_marked_first(tmp_path: Path) -> None:
    state = RecordedState([report(tmp_path)])
    async with WizardApp(state).run_test(size=SIZE) as pilot:
        await shows(pilot, "looks hung")
        cause = "rank-conditional-collective"
        await pilot.app.push_screen(FixScreen(cause, report(tmp_path)))
        await shows(pilot, "Fix 1 of 1")
        pilot.app.screen.post_message(FixScreen.FixesBuilt([patch_fix(tmp_path)]))
        await shows(pilot, "your files do not change")
        await pilot.press("v")
        await shows(pilot, "Start this job to prove the fix?", "▸ 1  No", "Changed for this run: train.py")
        unwrapped = "".join(frame(pilot).split())  # where lines break depends on the length of the temporary path
        assert "--nproc-per-node=4" in unwrapped and "4ranks" in unwrapped
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of 1")
        assert not state.proof_runs
        assert state.case.session and state.case.session.last("proof") is None


@walk
async def test_the_result_of_a_proof_is_kept_when_the_page_is_left() -> None:
    state = RecordedState()
    async with WizardApp(state).run_test(size=SIZE) as pilot:
        await shows(pilot, "node-07")
        await pilot.app.push_screen(FixScreen("port-in-use"))
        await shows(pilot, "Fix 1 of 1", "Proof: checks the rendezvous port again")
        await pilot.press("v")
        await until(pilot, lambda: bool(OUTCOME.search(frame(pilot))))
        shown = OUTCOME.findall(frame(pilot))
        await pilot.press("escape")
        await shows(pilot, "My job hangs")
        await pilot.app.push_screen(FixScreen("port-in-use"))
        await shows(pilot, "Fix 1 of 1", shown[0])
        event = state.case.session and state.case.session.last("proof")
        assert event and event.data["outcome"] == shown[0].removesuffix(":").removesuffix(" in")


@walk
async def test_the_page_shows_that_it_loads_and_a_proof_clears_an_old_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_build, build = Event(), FixFlow.build
    monkeypatch.setattr(FixFlow, "build", lambda flow: may_build.wait(30) and build(flow))
    async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
        await shows(pilot, "node-07")
        screen = FixScreen("port-in-use")
        await pilot.app.push_screen(screen)
        await shows(pilot, "Loading the fixes.")
        may_build.set()
        await shows(pilot, "Fix 1 of 1")
        assert "Loading" not in frame(pilot)
        screen.post_message(FixScreen.FixFailed(UserError("train.py: no such script")))
        await shows(pilot, "no such script")
        await pilot.press("v")
        await until(pilot, lambda: "no such script" not in frame(pilot))


@walk
async def test_keys_pressed_while_the_fixes_load_take_effect_once_they_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_build, build = Event(), FixFlow.build
    monkeypatch.setattr(FixFlow, "build", lambda flow: may_build.wait(30) and build(flow))
    async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
        await shows(pilot, "node-07")
        await pilot.app.push_screen(FixScreen("port-in-use"))
        await shows(pilot, "Loading the fixes.")
        await pilot.press("right", "v", "a")
        await shows(pilot, "Kept until this is loaded: part, prove, apply")
        may_build.set()
        await until(pilot, lambda: bool(OUTCOME.search(frame(pilot))))
        await shows(pilot, "a (apply) is not possible for this fix.")


@walk
async def test_a_key_kept_while_the_fixes_load_opens_its_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    may_build = Event()
    fixes = [patch_fix(tmp_path), replace(patch_fix(tmp_path), id="second", title="the second fix")]
    monkeypatch.setattr(FixFlow, "build", lambda _flow: may_build.wait(30) and fixes)
    async with WizardApp(RecordedState([report(tmp_path)])).run_test(size=SIZE) as pilot:
        await shows(pilot, "looks hung")
        await pilot.app.push_screen(FixScreen("rank-conditional-collective", report(tmp_path)))
        await shows(pilot, "Loading the fixes.")
        await pilot.press("n", "a", "n")
        may_build.set()
        await shows(pilot, "Write 1 file?")
        await pilot.press("escape")
        await shows(pilot, "Fix 2 of 2", "the second fix")


@walk
async def test_a_proof_and_an_applied_fix_belong_to_their_case_and_their_fix(tmp_path: Path) -> None:
    state = RecordedState([report(tmp_path)])
    cause = "rank-conditional-collective"
    other = Fix(id="by-hand", cause=cause, title="move the line", safety="display", text="Move it.")
    async with WizardApp(state).run_test(size=SIZE) as pilot:
        await shows(pilot, "looks hung")

        async def open_page() -> FixScreen:
            screen = FixScreen(cause, report(tmp_path))
            await pilot.app.push_screen(screen)
            await shows(pilot, "Fix 1 of 1")
            screen.post_message(FixScreen.FixesBuilt([patch_fix(tmp_path), other]))
            await shows(pilot, "Fix 1 of 2")
            return screen

        screen = await open_page()
        record = AppliedFix(id="1", fix="hoist-collective", cause=cause, at=1.0, paths=[str(tmp_path / "train.py")])
        await pilot.press("n")
        await shows(pilot, "Fix 2 of 2")
        screen.post_message(FixScreen.FilesChanged(patch_fix(tmp_path), "applied", record))
        await shows(pilot, "Applied to")
        assert "u undo" not in frame(pilot)
        await pilot.press("n")
        await shows(pilot, "Fix 1 of 2", "applied, u undoes it")
        await pilot.press("escape")
        await open_page()
        await shows(pilot, "applied, u undoes it")
        await pilot.press("escape")
        state.begin()
        await open_page()
        await shows(pilot, "Fix 1 of 2", "Proof: ")
        assert "applied, u undoes it" not in frame(pilot)


def left_at_a_fix() -> Session:
    session = Session.new(argv=["--plain"], version="0.1", cwd="/")
    session.append("answer", question="symptom", answer="does-not-start")
    session.append("step", screen="fix", detail="port-in-use")
    return session


@walk
async def test_a_session_left_at_a_fix_resumes_there() -> None:
    session = left_at_a_fix()
    state = RecordedState()
    screen, arguments = state.resume(session.id)
    async with WizardApp(state, screen, **arguments).run_test(size=SIZE) as pilot:
        await shows(pilot, "Fix 1 of 1", "Proof: ")
    again = RecordedState()
    async with WizardApp(again).run_test(size=SIZE) as pilot:
        await shows(pilot, "Continue the last session", "ago, It does not start")
        await pilot.press("end", "enter")
        await shows(pilot, "Fix 1 of 1")


def test_a_session_left_at_a_fix_resumes_there_in_plain_mode() -> None:
    done = plain_wizard("resume", id=left_at_a_fix().id, stdin="b\nq\n")
    assert done.returncode == 0, done.stderr
    assert "Fixes: The rendezvous port is already taken" in done.stdout


@walk
async def test_a_fix_of_a_cause_that_is_not_known_any_more_resumes_at_the_diagnosis() -> None:
    session = left_at_a_fix()
    session.append("step", screen="fix", detail="no-such-cause")
    assert RecordedState().resume(session.id) == ("diagnosis", {})


@walk
async def test_the_editor_is_offered_for_a_file_of_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    async with WizardApp(RecordedState(), "fix", cause="port-in-use").run_test(size=SIZE) as pilot:
        await shows(pilot, "Fix 1 of 1")
        for path, offered in (("the pasted text", False), ("/no/such/train.py", False), (tmp_path / "train.py", True)):
            places = [Place(path="the pasted text", line=1), Place(path=str(path), line=1)]
            fix = Fix(id="f", cause="port-in-use", title=f"Correct {Path(path).name}", safety="display", places=places)
            pilot.app.screen.post_message(FixScreen.FixesBuilt([fix]))
            await shows(pilot, fix.title)
            assert ("e edit" in frame(pilot)) == offered, path


@pytest.mark.parametrize("pasted", [True, False])
def test_plain_mode_offers_no_editor_for_a_pasted_text(pasted: bool, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "ok\nRuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n"
    )
    given = f"{log.read_text()}." if pasted else str(log)
    done = plain_wizard(stdin=f"2\n{given}\n1\n1\nq\n")
    assert "What to change:" in done.stdout
    assert ("run.log:2 in your editor" in done.stdout) == (not pasted)
    assert "pasted text:2 in your editor" not in done.stdout


@walk
async def test_a_fix_without_a_job_asks_for_which_of_two_it_is(tmp_path: Path) -> None:
    reports: list[JobReport] = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        base = report(tmp_path / name)
        job = replace(base.job, launcher_pid=4711 + len(reports))
        reports.append(replace(base, observed=replace(base.observed, job=job)))
    state = RecordedState(reports)
    state.knowledge = built_in_knowledge()
    async with WizardApp(state).run_test(size=(100, 30)) as pilot:
        await shows(pilot, "looks hung")
        await pilot.app.push_screen(BrowserScreen("rank-conditional-collective"))
        await pilot.press("f")
        await shows(pilot, "Which job is the fix for?", "(pid 4711)", "(pid 4712)", "None of these jobs")
        state.ended_jobs.add(reports[1].job.id)
        await shows(pilot, "– has ended")
        await pilot.press("2")
        await shows(pilot, "Fix 1 of", "train.py · 4 ranks, has ended")
        screen = pilot.app.screen
        assert isinstance(screen, FixScreen) and screen.fix
        assert {patch.path for patch in screen.fix.patches} == {str(tmp_path / "second" / "train.py")}


@walk
async def test_a_fix_for_none_of_two_jobs_patches_no_file(tmp_path: Path) -> None:
    base = report(tmp_path)
    other = replace(base, observed=replace(base.observed, job=replace(base.job, launcher_pid=4712)))
    state = RecordedState([base, other])
    state.knowledge = built_in_knowledge()
    async with WizardApp(state).run_test(size=(100, 30)) as pilot:
        await shows(pilot, "looks hung")
        await pilot.app.push_screen(FixScreen("rank-conditional-collective"))
        await shows(pilot, "Which job is the fix for?")
        await pilot.press("escape")
        await shows(pilot, "My job hangs")
        await pilot.app.push_screen(FixScreen("rank-conditional-collective"))
        await shows(pilot, "Which job is the fix for?")
        await pilot.press("3")
        await shows(pilot, "Fix 1 of")
        screen = pilot.app.screen
        assert isinstance(screen, FixScreen) and screen.fix and not screen.fix.patches


@walk
async def test_the_wizard_goes_on_where_its_session_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    state = RecordedState()
    async with WizardApp(state).run_test(size=(100, 30)) as pilot:
        await shows(pilot, "node-07")
        await pilot.press("0")
        await shows(pilot, "Knowledge base")
        await pilot.press("f")
        await shows(pilot, "Fix 1 of 1")
        await pilot.press("escape", "escape")
        await shows(pilot, "My job hangs")
        await pilot.press("6")
        await shows(pilot, "Path of your training script?", "this case is not saved")
    assert state.case.answers == {"symptom": "does-not-start"}


def test_plain_mode_goes_on_where_its_session_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    done = plain_wizard(allow="reads", stdin="6\n\n7\nd\nq\n")
    assert done.returncode == 0, done.stderr
    assert "this case is not saved" in done.stdout and "What next?" in done.stdout
    assert "this case is not saved" in done.stderr and "sessions resume" not in done.stderr
