"""Journeys with the keyboard from Home through the screens, on a recorded machine."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from ddpwizard.app.fixes.records import AppliedFix
from ddpwizard.app.options import Options
from ddpwizard.app.session import Session, all_sessions
from ddpwizard.app.triage.types import JobReport
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.diagnosis.question import QuestionScreen
from ddpwizard.screens.fix.fix import FixScreen
from ddpwizard.screens.home.home import HomeScreen
from ddpwizard.screens.shell.state import is_navigation_event
from helpers.recorded_state import PATCHED, TRAIN, RecordedMachine, RecordedState, patch_fix, report
from helpers.screen_pilot import frame, rows, shows, until, walk
from textual import events
from textual.pilot import Pilot

SIZE = (80, 24)


async def begin_questions(pilot: Pilot[int], row: str = "6") -> None:
    """Begin with a symptom, without a script."""
    await pilot.press(row)
    await shows(pilot, "Path of your training script?")
    await pilot.press("enter")
    await shows(pilot, "Does it stop at the same step each time?")


def line_with(pilot: Pilot[int], text: str) -> int:
    return next(n for n, row in enumerate(rows(pilot)) if text in row)


class TestHome:
    @walk
    async def test_the_machine_is_inspected_and_annotates_the_list(self, tmp_path: Path) -> None:
        state = RecordedState([report(tmp_path)])
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "8 × H100", "/dev/shm is 64 MiB", "train.py · 4 ranks", "looks hung")
            assert "train.py looks hung" in rows(pilot)[line_with(pilot, "My job hangs")]
            assert "1 warn · 1 fail" in rows(pilot)[line_with(pilot, "Check this machine")]
            assert sorted(state.looked) == ["limits", "ports"]

    @walk
    async def test_r_inspects_the_machine_again(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "none of yours runs here")
            await pilot.press("r")
            await until(pilot, lambda: len(state.looked) == 4)

    @walk
    async def test_tab_enters_the_input_line_and_escape_leaves_it(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("tab", "q", "2")
            await shows(pilot, "q2")
            await pilot.press("escape", "0")
            await shows(pilot, "Knowledge base")

    @walk
    async def test_a_description_leads_to_a_diagnosis(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"EADDRINUSE", "enter")
            await shows(pilot, "Diagnosis", "The rendezvous port is already taken", "Evidence for it", "your words:1")

    @walk
    async def test_all_lines_pasted_into_the_input_line_are_read(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("tab")
            assert pilot.app.focused
            pilot.app.focused.post_message(events.Paste("Traceback (most recent call last):\nOSError: EADDRINUSE\n"))
            await shows(pilot, "Diagnosis", "The rendezvous port is already taken", "your words:2")

    @walk
    async def test_a_terminal_made_too_small_shows_a_message_until_it_grows(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await shows(pilot, "What is wrong?")
            await pilot.resize_terminal(40, 12)
            await shows(pilot, "Too small to show everything")
            await pilot.resize_terminal(*SIZE)
            await until(pilot, lambda: "Too small" not in frame(pilot))

    @walk
    async def test_slash_opens_the_search(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("slash")
            await shows(pilot, "Knowledge base")
            await pilot.press(*"port")
            await shows(pilot, "port")
            assert "port" in rows(pilot)[line_with(pilot, "port")][:12]

    @walk
    async def test_a_missing_path_is_reported(self, tmp_path: Path) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"/no/such.log", "enter")
            await shows(pilot, "/no/such.log: No such file or directory")


RANKS = """\
[rank0]: step 100 loss 2.1
[rank1]: step 100 loss 2.1
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/user/train.py", line 9, in <module>
[rank1]: OSError: EADDRINUSE
[rank0]: closing signal SIGTERM
"""


class TestScript:
    @walk
    async def test_a_script_typed_on_home_is_reviewed_and_completed_by_tab(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "train_long.py").write_text(TRAIN)
        monkeypatch.chdir(tmp_path)
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"./train", "tab")
            await shows(pilot, "./train_long.py")
            await pilot.press("enter")
            await shows(pilot, "Diagnosis", "train_long.py: ")
            assert state.case.script.endswith("train_long.py")
            assert not [item for item in state.case.evidence if item.source in ("log", "description")]

    @walk
    async def test_review_my_script_lists_findings_with_their_lines(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "train.py").write_text(TRAIN)
        monkeypatch.chdir(tmp_path)
        async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
            await pilot.press(*"train.py", "enter")
            await shows(pilot, "train.py: ", "Review my script")
            await pilot.press("tab", *"missing.py", "enter")
            await shows(pilot, "missing.py")


class TestLive:
    @walk
    async def test_home_follows_a_job_that_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ddpwizard.screens.home.home.JOBS_EVERY_S", 0.05)
        state = RecordedState([report(tmp_path)])
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "train.py looks hung")
            state.recorded_reports = []
            await shows(pilot, "none of yours runs here")
            assert "looks hung" not in frame(pilot)

    @walk
    async def test_a_slow_job_is_inspected_before_questions(self, tmp_path: Path) -> None:
        state = RecordedState([report(tmp_path)])
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "looks hung")
            await pilot.press("3")
            await shows(pilot, "It is too slow", "rank 0", "every 5 s")

    @walk
    async def test_a_job_chosen_before_it_was_sampled_is_shown_and_nothing_is_asked(self, tmp_path: Path) -> None:
        sampled = asyncio.Event()

        class Slow(RecordedState):
            async def _recorded_triage(self, pid: int | None) -> list[JobReport]:
                await sampled.wait()
                return self.recorded_reports

        async with WizardApp(Slow([report(tmp_path)])).run_test(size=SIZE) as pilot:
            await shows(pilot, "inspecting this machine")
            await pilot.press("1")
            await shows(pilot, "sampling the ranks of your jobs")
            sampled.set()
            await shows(pilot, "My job hangs", "rank 0", "every 5 s")

    @walk
    async def test_a_key_before_the_inspection_began_waits_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin, begun = HomeScreen._begin, asyncio.Event()

        def later(home: HomeScreen) -> None:
            if begun.is_set():
                begin(home)

        monkeypatch.setattr(HomeScreen, "_begin", later)
        app = WizardApp(RecordedState([report(tmp_path)]))
        async with app.run_test(size=SIZE) as pilot:
            await shows(pilot, "My job hangs")
            await pilot.press("1")
            begun.set()
            later(cast(HomeScreen, app.screen))
            await shows(pilot, "rank 0", "every 5 s")


class TestLog:
    @walk
    async def test_t_shows_the_timeline_of_the_ranks(self, tmp_path: Path) -> None:
        log = tmp_path / "train.log"
        log.write_text(RANKS)
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *str(log), "enter")
            await shows(pilot, "Diagnosis", "Rank 1 failed first")
            await pilot.press("t")
            await shows(pilot, "Timeline", "rank 1", "rank 0", "X", "Events of rank 1", "EADDRINUSE")
            await pilot.press("down")
            await shows(pilot, "Events of rank 0")
        assert Session.load("last").last("timeline")

    @walk
    async def test_a_text_of_one_writer_has_no_timeline(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"OSError: EADDRINUSE", "enter")
            await shows(pilot, "Diagnosis")
            assert "timeline" not in frame(pilot)

    @walk
    async def test_x_rejects_a_cause_and_records_the_right_one(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"OSError: EADDRINUSE", "enter")
            await shows(pilot, "Diagnosis")
            await pilot.press("x")
            await shows(pilot, "The marked cause was wrong. What was it?", "Something else")
            await pilot.press("2")
            await shows(pilot, "kb new NAME --session")
        assert state.case.rejected == {"port-in-use"}
        truth = [event.data for event in Session.load("last").events if event.kind == "truth"]
        assert truth == [{"cause": "port-in-use", "was": False}]

    @walk
    async def test_leaving_the_question_after_x_rejects_nothing(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"OSError: EADDRINUSE", "enter")
            await shows(pilot, "Diagnosis")
            before = len(state.case.evidence)
            await pilot.press("x")
            await shows(pilot, "The marked cause was wrong. What was it?")
            await pilot.press("escape")
            await shows(pilot, "Diagnosis", "Evidence for it")
        assert state.case.rejected == set()
        assert len(state.case.evidence) == before


class TestStep:
    @walk
    async def test_answers_change_the_ranking_and_b_undoes_them(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "node-07")
            await begin_questions(pilot, "1")
            await shows(pilot, "question 2 of 8 at most", "2 probes ran")
            before = frame(pilot)
            await pilot.press("2")
            await shows(pilot, "Your answers do not single out one cause", "ddpwizard run -- torchrun")
            assert state.case.answers == {"symptom": "hangs", "script-path": "skipped", "same-place": "differs"}
            await pilot.press("b")
            await shows(pilot, "Does it stop at the same step each time?")
            assert "same-place" not in state.case.answers
            assert frame(pilot) == before

    @walk
    async def test_every_question_shows_why_it_is_asked_and_a_sign_of_hidden_answers(self) -> None:
        state = RecordedMachine(Options(allow="reads"))
        async with WizardApp(state, "step").run_test(size=SIZE) as pilot:
            screen = pilot.app.screen
            assert isinstance(screen, QuestionScreen)
            for id_, spec in state.knowledge.questions.items():
                screen.question = id_
                screen._show_question()
                await shows(pilot, "Why I ask: ")
                shown = " ".join(row[: screen.query_one("#asked").region.right].strip() for row in rows(pilot))
                last = list(spec.answers.values())[-1]
                words = " ".join(shown.split())
                assert " ".join(spec.ask.split()) in words and " ".join(spec.why.split()) in words, id_
                assert " ".join(last.split()) in words or "↓" in words, id_

    @walk
    async def test_a_skipped_question_is_not_asked_again(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "node-07")
            await begin_questions(pilot)
            await pilot.press("s")
            await shows(
                pilot, "Your answers do not single out one cause", "ddpwizard doctor", "Show the diagnosis so far"
            )
            assert state.case.answers["same-place"] == "skipped"
            await pilot.press("f")
            await shows(pilot, "Proof:")

    @walk
    async def test_resume_returns_to_the_last_step(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await begin_questions(pilot, "3")
            saved = Session.load("last")
            given = [e.data["answer"] for e in saved.events if e.kind == "answer"]
            assert given == ["wrong-or-slow", "slow", "skipped"]
            steps = [event.data for event in saved.events if is_navigation_event(event)]
            assert steps[-1] == {"screen": "step", "detail": "same-place"}
        again = RecordedState()
        async with WizardApp(again).run_test(size=SIZE) as pilot:
            await shows(pilot, "0  Browse the knowledge base", "c  Continue the last session")
            await pilot.press("c")
            await shows(pilot, "Does it stop at the same step each time?")
            assert again.case.session is not None
            assert again.case.session.id == saved.id

    @walk
    async def test_a_probe_runs_in_the_background_and_ctrl_c_cancels_it(self) -> None:
        state = RecordedState(stuck=True)
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("3")
            await shows(pilot, "● ", "s / 5 s")
            running = [worker for worker in pilot.app.workers if worker.group == "probe"]
            await pilot.press("ctrl+c")
            await shows(pilot, "Cancelled.")
            assert running
            assert running[0].is_cancelled
            assert state.case.probed == {state.cancelled[-1]}
            assert "s / 5 s" not in frame(pilot)

    @walk
    async def test_why_this_order_lists_every_step(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await begin_questions(pilot)
            await pilot.press("w")
            await shows(pilot, "bit", "Does it stop at the same step each time?")

    @walk
    async def test_a_probe_that_does_more_than_read_asks_first(self, tmp_path: Path) -> None:
        state = RecordedState([report(tmp_path)])
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "looks hung")
            await begin_questions(pilot)
            await pilot.press("p")
            await shows(pilot, "uses memory, 5 s at most")
            await pilot.press("3")
            await shows(pilot, "this starts", "memory. Run it?")
            assert "allreduce" not in state.looked
            await pilot.press("2")
            await until(pilot, lambda: "allreduce" in state.looked)


class TestPaste:
    @walk
    async def test_a_pasted_log_is_read_and_its_line_is_shown(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("2")
            await shows(pilot, "Paste the error")
            pilot.app.screen.query_one("#text").insert("ok\nOSError: EADDRINUSE\nclosing signal SIGTERM\n")  # type: ignore[attr-defined]
            await pilot.press("ctrl+d")
            await shows(pilot, "The rendezvous port is already taken", "pasted text:2")
            assert "▸    2  OSError: EADDRINUSE" in frame(pilot)

    @walk
    async def test_its_title_is_the_symptom_that_was_chosen(self) -> None:
        for key, label in (("2", "It crashed"), ("5", "It runs out of memory")):
            async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
                await pilot.press(key)
                await shows(pilot, "Paste the error")
                assert frame(pilot).splitlines()[0].strip() == label

    @walk
    async def test_an_empty_text_is_refused(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("2", "ctrl+d")
            await shows(pilot, "the text is empty")

    @walk
    async def test_an_unrelated_text_is_out_of_scope(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"my cat is ill", "enter")
            await shows(pilot, "has no problem of distributed")


class TestTriageAndFix:
    @walk
    async def test_verdict_ranks_code_fix_proof(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fix is recorded here; tests/real_jobs builds and proves real ones."""
        monkeypatch.chdir(tmp_path)
        state = RecordedState([report(tmp_path)])
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "looks hung")
            await pilot.press("1")
            await shows(pilot, "Cause: A collective that only some ranks reach (train.py:5)", "◀ rank 0", "1–3")
            assert line_with(pilot, "Cause: ") < line_with(pilot, "last moved") < line_with(pilot, "◀ rank 0")
            await pilot.press("s")
            await shows(
                pilot, "All stacks, grouped", "rank 0, pid 4000000000, waiting", "ranks 1–3, waiting", "validate"
            )
            await pilot.press("escape", "w")
            await shows(pilot, "Diagnosis", "Evidence for it")
            await pilot.press("escape", "f")
            await shows(pilot, "Proof:")
            pilot.app.screen.post_message(FixScreen.FixesBuilt([patch_fix(tmp_path)]))
            await shows(pilot, "+    dist.all_reduce(acc)", "may change behaviour: the code before")
            await pilot.press("right")
            await shows(pilot, "torchrun --nproc-per-node=4 train.py")
            events = [event.kind for event in state.case.session.events]  # type: ignore[union-attr]
            assert "triage" in events

    @walk
    async def test_apply_asks_with_the_path_and_undo_restores_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        state = RecordedState([report(tmp_path)])
        script = tmp_path / "train.py"
        app = WizardApp(state, "fix", cause="rank-conditional-collective", report=report(tmp_path))
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: not [w for w in app.workers if w.group == "make"])
            app.screen.post_message(FixScreen.FixesBuilt([patch_fix(tmp_path)]))
            await shows(pilot, "a apply")
            await pilot.press("a")
            await shows(pilot, "Write 1 file?", "train.py")
            await pilot.press("1")
            assert script.read_text() == TRAIN
            await pilot.press("a", "2")
            await shows(pilot, "applied, u undoes it", "Applied to train.py")
            assert script.read_text() == PATCHED
            await pilot.press("u")
            await shows(pilot, "Undone in train.py")
            assert script.read_text() == TRAIN
        actions = [e.data["action"] for e in state.case.session.events if e.kind == "fix"]  # type: ignore[union-attr]
        assert actions == ["applied", "undone"]

    @walk
    async def test_copy_saves_a_file_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("TMUX", raising=False)
        app = WizardApp(RecordedState(), "fix", cause="rank-conditional-collective")
        async with app.run_test(size=(120, 24)) as pilot:
            await until(pilot, lambda: not [w for w in app.workers if w.group == "make"])
            app.screen.post_message(FixScreen.FixesBuilt([patch_fix(tmp_path)]))
            await shows(pilot, "y copy")
            await pilot.press("y")
            await shows(pilot, "Sent to the terminal's clipboard (OSC 52); also saved as")
        saved = (state / "copied" / "hoist-collective.patch").read_text()
        assert saved in app.clipboard
        assert "+    dist.all_reduce(acc)" in saved

    @walk
    async def test_without_a_job_the_next_steps_are_shown(self) -> None:
        async with WizardApp(RecordedState(), "triage").run_test(size=SIZE) as pilot:
            await shows(pilot, "No distributed job of yours runs here.")
            assert "f fix" not in frame(pilot) and "w why" not in frame(pilot)


class TestCheck:
    @walk
    async def test_failures_come_first_and_passed_checks_are_folded(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await shows(pilot, "node-07")
            await pilot.press("8")
            await shows(pilot, "✓ 1 more passed", "→ start the container with")
            order = [line_with(pilot, text) for text in ("✗ /dev/shm", "! port", "? could not", "✓ 1 more")]
            assert order == sorted(order)
            assert "8 GPUs are free" not in frame(pilot)
            await pilot.press("o")
            await shows(pilot, "✓ 8 GPUs are free")

    @walk
    async def test_the_all_reduce_runs_only_when_asked_for(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await shows(pilot, "none of yours runs here")
            await pilot.press("8")
            await shows(pilot, "✓ 1 more passed")
            assert "allreduce" not in state.looked
            await pilot.press("a")
            await shows(pilot, "✓ 2 more passed")
            await pilot.press("o", "end")
            await shows(pilot, "2 ranks, gloo", "up to 2 GB/s", "64 MiB       4.00     2.00")


class TestBrowser:
    @walk
    async def test_search_while_typing_and_related_causes(self) -> None:
        async with WizardApp(RecordedState()).run_test(size=SIZE) as pilot:
            await pilot.press("slash")
            await shows(pilot, "3 causes")
            await pilot.press(*"bus error")
            await shows(pilot, "1 of 3 causes", "Loader workers and NCCL")
            await pilot.press("enter", "g")
            await shows(pilot, "Related to: /dev/shm is too small", "in common")
            await pilot.press("1")
            await shows(pilot, "3 of 3 causes")

    @walk
    async def test_search_finds_a_term_which_has_no_fixes(self) -> None:
        async with WizardApp(RecordedState(), "browse").run_test(size=SIZE) as pilot:
            await pilot.press("slash", *"/DEV/SHM")
            await shows(pilot, "1 of 3 causes, 1 term", "A file system in memory.", "ddpwizard explain networks")
            await pilot.press("enter", "f", "g")
            await shows(pilot, "1 of 3 causes, 1 term", "A file system in memory.")
            await pilot.press("down")
            await shows(pilot, "Fix it by hand")

    @walk
    async def test_an_entry_has_all_sections(self) -> None:
        async with WizardApp(RecordedState(), "browse", cause="port-in-use").run_test(size=(100, 60)) as pilot:
            await shows(pilot, "Symptoms", "What happens", "Fixes", "Sources", "2.13")


class TestLeaving:
    @walk
    async def test_ctrl_c_cancels_then_asks_then_quits(self) -> None:
        state = RecordedState(stuck=True)
        app = WizardApp(state)
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: len(state.looked) == 2)
            await pilot.press("ctrl+c")
            await shows(pilot, "Cancelled.")
            await until(pilot, lambda: sorted(state.cancelled) == ["limits", "ports"])
            await pilot.press("ctrl+c")
            await shows(pilot, "ctrl+c again quits")
            await pilot.press("ctrl+c")
            await until(pilot, lambda: not app.is_running or app.return_code == 130)
        assert app.return_code == 130

    @walk
    async def test_q_quits_with_code_0(self) -> None:
        app = WizardApp(RecordedState())
        async with app.run_test(size=SIZE) as pilot:
            await pilot.press("q")
        assert app.return_code == 0

    @walk
    async def test_quitting_closes_a_case_only_at_its_diagnosis(self) -> None:
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await begin_questions(pilot)
            await pilot.press("q")
        assert Session.load("last").last("closed") is None
        assert state.resume_hint().endswith(f"ddpwizard sessions resume {Session.load('last').id}")
        state = RecordedState()
        async with WizardApp(state).run_test(size=SIZE) as pilot:
            await pilot.press("tab", *"EADDRINUSE", "enter")
            await shows(pilot, "Diagnosis")
            await pilot.press("q")
        assert not state.resume_hint()
        newest = max(all_sessions(), key=lambda session: session.events[-1].at)
        assert newest.last("closed") is not None


def test_the_screen_reads_the_record_of_an_apply() -> None:
    assert {"id", "fix", "cause", "paths"} <= set(AppliedFix.__struct_fields__)
