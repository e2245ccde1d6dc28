"""The steps of a lab on the screen: edited before its first run, restored, opened again, stopped, without output."""

from pathlib import Path

from ddpwizard.app.fixes.undo import applied_fixes
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.labs.lab_diagnosis import diagnose_run
from ddpwizard.app.labs.lab_run import LabRun
from ddpwizard.app.labs.seen_failure import SeenFailure, save_failure
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.learn.lab import LabScreen
from ddpwizard.screens.learn.lab_messages import Printed, RunEnded, Sampled
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import RecordedState
from helpers.recorded_state import report as recorded_report
from helpers.screen_pilot import frame, shows, until, walk
from textual.pilot import Pilot

KNOWLEDGE = built_in_knowledge()
ENDED_WELL = LabRun(ending="ended", code=0, elapsed_s=1.0, output="1 different orders in 4 epochs")
TRACEBACK = [
    "[default1]:[rank1]: Traceback (most recent call last):",
    '[default1]:[rank1]:   File "/labs/copy/train.py", line 7, in <module>',
    "[default1]:[rank1]:     print(values[3])",
    "[default1]:[rank1]: IndexError: list index out of range",
]


def learn_app() -> WizardApp:
    state = RecordedState()
    state.knowledge = KNOWLEDGE
    return WizardApp(state)


async def open_lab(pilot: Pilot[int], lab: str) -> LabScreen:
    await pilot.app.open("learn", number=read_course(KNOWLEDGE).number_of(lab))  # type: ignore[attr-defined]
    await shows(pilot, "Lab ", "code")
    screen = pilot.app.screen
    assert isinstance(screen, LabScreen)
    return screen


@walk
async def test_a_lab_that_is_repaired_before_its_first_run_leads_on() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        lab = await open_lab(pilot, "missing-set-epoch")
        assert "original" not in frame(pilot)
        lab.session.script.write_text(lab.session.script.read_text() + "\n# mine\n")
        lab._begin("the job runs")
        lab.session.run = ENDED_WELL
        lab.post_message(RunEnded(shown=False))
        await shows(pilot, "The job does not fail: your copy is changed.", "g: name the cause", "o: run the original")
        await shows(pilot, "o original")
        lab.session.show_answer()
        await pilot.press("left")
        await pilot.press("z")
        lab.show_status(lab.refusal())
        await shows(pilot, "v: prove it (the original runs first")


@walk
async def test_a_restore_asks_first_and_keeps_the_changes() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        lab = await open_lab(pilot, "missing-set-epoch")
        mine = lab.session.script.read_text() + "\n# mine\n"
        lab.session.show_answer()
        lab.session.script.write_text(mine)
        await pilot.press("x")
        await shows(pilot, "Restore the files of the lab?", "ddpwizard undo brings them back")
        await pilot.press("escape")
        await shows(pilot, "story")
        assert lab.session.script.read_text() == mine and not applied_fixes()
        await pilot.press("x")
        await shows(pilot, "Restore the files of the lab?")
        await pilot.press("2")
        await shows(pilot, "restored; ddpwizard undo brings your changes back", "r: run it")
        assert not lab.session.is_edited and lab.session.progress.answered
        assert [each.state for each in applied_fixes()] == ["applied"]
        await pilot.press("x")
        await shows(pilot, "The files of the lab are restored.  →")


@walk
async def test_a_lab_that_was_left_has_its_output_its_cause_and_its_fix() -> None:
    async with learn_app().run_test(size=(120, 24)) as pilot:
        session = (await open_lab(pilot, "missing-set-epoch")).session
        found = diagnose_run(session.lab, ENDED_WELL, session.directory, KNOWLEDGE)
        save_failure(session.directory, SeenFailure(run=ENDED_WELL, found=found))
        session.show_answer()
    async with learn_app().run_test(size=(120, 24)) as pilot:
        lab = await open_lab(pilot, "missing-set-epoch")
        title = KNOWLEDGE.causes["missing-set-epoch"].title
        await shows(pilot, f"The cause is named: {title[:40]}", "a: the fix of the wizard", "a fix")
        assert lab._available() == ["story", "code", "output", "evidence", "fix"]
        await pilot.press("right", "right")
        await shows(pilot, "1 different orders in 4 epochs")


@walk
async def test_a_hang_without_output_shows_its_ranks(tmp_path: Path) -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        lab = await open_lab(pilot, "python-lock")
        lab._begin("the job runs")
        await shows(pilot, "Nothing is printed yet")
        lab.post_message(Sampled(recorded_report(tmp_path)))
        await shows(pilot, "ranks•")
        lab.session.run = LabRun(ending="hung", elapsed_s=1.0, output="", report=recorded_report(tmp_path))
        lab.post_message(RunEnded(shown=True))
        await shows(pilot, "The job hangs.", "last moved")
        assert lab.part == "ranks"
        await pilot.press("left")
        await shows(pilot, "The job has printed nothing.")
        assert lab.part == "output"


@walk
async def test_a_job_that_is_stopped_before_it_prints_says_so_and_names_the_next_step() -> None:
    for key in ("escape", "ctrl+c"):
        async with learn_app().run_test(size=(80, 24)) as pilot:
            lab = await open_lab(pilot, "missing-set-epoch")
            lab._begin("the job runs")
            await shows(pilot, "Nothing is printed yet")
            await pilot.press(key)
            await shows(pilot, "The job has printed nothing.", "The job is stopped.", "r: run it")
            assert lab.part == "output"


@walk
async def test_the_output_of_a_failed_job_opens_at_its_first_error() -> None:
    before = [f"[default{rank}]:line {at} of {rank}" for at in range(40) for rank in range(2)]
    after = [f"summary line {at}" for at in range(40)]
    for failed in (True, False):
        async with learn_app().run_test(size=(80, 24)) as pilot:
            lab = await open_lab(pilot, "script-error")
            output = "\n".join([*before, *TRACEBACK, *after])
            run = LabRun(ending="ended", code=1 if failed else 0, elapsed_s=1.0, output=output)
            lab.session.run = run
            lab.session.found = diagnose_run(lab.session.lab, run, lab.session.directory, KNOWLEDGE)
            lab._begin("the job runs")
            for line in output.splitlines():
                lab.post_message(Printed(line))
            lab.post_message(RunEnded(shown=failed))
            if failed:
                await shows(pilot, "Traceback (most recent call last)", "IndexError", "↓")
                assert "summary line 39" not in frame(pilot)
            else:
                await shows(pilot, "summary line 39")
                await until(pilot, lambda: "Traceback" not in frame(pilot))
