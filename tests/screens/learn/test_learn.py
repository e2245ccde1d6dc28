"""Learn on the screen: the list, a chapter, the terms of its text, a lab of a log, the quiz."""

from pathlib import Path

import pytest
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.labs.lab_diagnosis import diagnose_run
from ddpwizard.app.labs.lab_run import LabRun
from ddpwizard.app.labs.progress import load_progress
from ddpwizard.knowledge.quiz import read_quiz
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.learn import lab_editing
from ddpwizard.screens.learn.lab import LabScreen
from ddpwizard.screens.learn.lab_messages import Printed, RunEnded, Sampled
from ddpwizard.screens.widgets import choices as choices_widget
from ddpwizard.screens.widgets.choices import Choices
from ddpwizard.screens.widgets.scrolling import ScrolledText
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import RecordedState
from helpers.recorded_state import report as recorded_report
from helpers.screen_pilot import frame, shows, until, walk
from textual.pilot import Pilot


def learn_app() -> WizardApp:
    state = RecordedState()
    state.knowledge = built_in_knowledge()
    return WizardApp(state)


async def open_learn(pilot: Pilot[int], number: str = "") -> None:
    await pilot.app.open("learn", number=number)  # type: ignore[attr-defined]
    await shows(pilot, "labs done" if not number else "")


@walk
async def test_titles_have_one_row_each() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot)
        choices = pilot.app.screen.query_one("#course", Choices)
        assert len(choices._all_rows()) == len(choices.items)
        assert any("Quiz" in item.label.plain for item in choices.items)


@walk
async def test_slash_searches_the_knowledge_base() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot)
        await shows(pilot, "/ search")
        await pilot.press("slash")
        await shows(pilot, "Knowledge base")
        await pilot.press("escape", "escape")
        await shows(pilot, "labs done")


@walk
async def test_the_search_finds_rules_and_terms() -> None:
    rule = built_in_knowledge().rules["DW401"]
    async with learn_app().run_test(size=(120, 40)) as pilot:
        await open_learn(pilot)
        await pilot.press("slash")
        await shows(pilot, "Knowledge base")
        await pilot.press(*"dw401")
        await shows(pilot, "1 rule", "rule of the review / DW401", "WHAT HAPPENS", rule.why.split(".")[0][:40])
        await pilot.press(*["backspace"] * 5, *"reduce-scatter")
        await shows(pilot, "1 term", "term / ")


@walk
async def test_the_search_lists_similar_names_for_misspelt_words() -> None:
    async with learn_app().run_test(size=(120, 40)) as pilot:
        await open_learn(pilot)
        await pilot.press("slash")
        await shows(pilot, "Knowledge base")
        for typed, name in (("sampeler", "sampler"), ("wrld size", "world size"), ("alreduce", "all-reduce")):
            await pilot.press("ctrl+u", *typed)
            await shows(pilot, "No entry has these words", f"term / {name}"[:7])
            assert pilot.app.screen.query_one("#found", Choices).items[0].id == f"term:{name}"
        await pilot.press("ctrl+u", *"sampler")
        await until(pilot, lambda: "No entry has these words" not in frame(pilot))
        await pilot.press("ctrl+u", *"qqqzzz")
        await shows(pilot, "Nothing found.")


@walk
async def test_escape_from_a_lab_leads_to_the_list_that_opened_it() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "7")
        await shows(pilot, "page 1 of", "l labs")
        await pilot.press("l")
        await shows(pilot, "Labs: Hangs", "esc chapter")
        await pilot.press("2")
        await shows(pilot, "Lab 7.2", "esc labs")
        await pilot.press("escape")
        await shows(pilot, "Labs: Hangs")
        marked = pilot.app.screen.query_one(Choices).marked
        assert marked and marked.id == "7.2"
        await pilot.press("escape")
        await shows(pilot, "page 1 of", "l labs")
        await pilot.press("escape")
        await shows(pilot, "labs done")


@walk
async def test_escape_from_a_lab_that_was_named_leads_to_its_row() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "7.2")
        await shows(pilot, "Lab 7.2")
        await pilot.press("escape")
        await shows(pilot, "labs done", "▸     7.2")


@walk
async def test_the_lab_that_is_not_done_is_marked() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "1.2")
        await shows(pilot, "Lab 1.2")
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot)
        await shows(pilot, "Lab 1.2 is not done: enter goes on with it")
        await pilot.press("enter")
        await shows(pilot, "Lab 1.2: ")
    progress = load_progress()
    course = read_course(built_in_knowledge())
    half_done = course.half_done(progress)
    assert half_done and half_done.number == "1.2"
    progress.labs[half_done.lab.id].repaired = True
    assert course.half_done(progress) is None


@walk
async def test_the_prefix_in_a_log_is_explained() -> None:
    course = read_course(built_in_knowledge())
    for lab, explained in (("init-file-stale", True), ("rendezvous-mismatch", False)):
        async with learn_app().run_test(size=(80, 24)) as pilot:
            await open_learn(pilot, course.number_of(lab))
            await shows(pilot, "Lab ", "name the cause")
            await pilot.press("right")
            await shows(pilot, ".log")
            assert ("[default0]: is the prefix" in frame(pilot)) is explained


@walk
@pytest.mark.parametrize("keys", [["q"], ["ctrl+c", "ctrl+c"]])
async def test_leaving_a_lab_names_the_command_that_goes_on_with_it(keys: list[str]) -> None:
    app = learn_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "5.3")
        await shows(pilot, "Lab 5.3")
        if keys[1:]:
            await pilot.press(keys[0])
            await shows(pilot, "ctrl+c again quits. To go on with this lab: ddpwizard learn 5.3")
        await pilot.press(keys[-1])
    assert app.left_at == "to go on with this lab:\n  ddpwizard learn 5.3"


@walk
async def test_leaving_the_chapters_names_no_command() -> None:
    app = learn_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_learn(pilot)
        await pilot.press("ctrl+c")
        await shows(pilot, "ctrl+c again quits.")
        assert "session" not in frame(pilot)
        await pilot.press("q")
    assert not app.left_at


@walk
async def test_a_number_goes_to_its_chapter() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choices_widget, "TYPING_S", 1000.0)  # however late the digits come, they are of one number
            await open_learn(pilot)
            choices = pilot.app.screen.query_one("#course", Choices)
            for key, number in (("7", "7"), ("1", "1"), ("2", "12")):
                await pilot.press(key)
                assert choices.marked and choices.marked.id == number
                assert choices.top == [item.id for item in choices.items].index(number)
            patch.setattr(choices_widget, "TYPING_S", 0.0)  # the next digit begins another number
            await pilot.press("3")
        assert choices.marked and choices.marked.id == "3"
        await pilot.press("enter")
        await shows(pilot, "One DDP step, drawn", "page 1 of", "n read on")
        chapter = read_course(built_in_knowledge()).chapter("3")
        assert chapter
        while f"enter: {len(chapter.labs)} labs of this chapter" not in frame(pilot):
            await pilot.press("enter")
        await pilot.press("enter")
        await shows(pilot, "Labs: One DDP step, drawn")
        await pilot.press("enter")
        await shows(pilot, "Lab 3.1", "→ part")


@walk
async def test_a_lab_that_is_opened_again_goes_on_where_it_was() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        number = read_course(built_in_knowledge()).number_of("throttled-rank")
        await open_learn(pilot, number)
        await shows(pilot, "Lab ", "run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        run = LabRun(ending="ended", code=0, elapsed_s=1.0, output="[default0]:step 5: loss 4.4\nits end")
        lab.session.run = run
        lab.session.found = diagnose_run(lab.session.lab, run, lab.session.directory, built_in_knowledge())
        await pilot.press("escape")
        await shows(pilot, "labs done")
        await pilot.app.open("lab", entry=lab._entry)  # type: ignore[attr-defined]
        await shows(pilot, f"Lab {number}", "g: name the cause")
        await pilot.press("right", "right")
        await shows(pilot, "step 5: loss 4.4", "its end")


@walk
@pytest.mark.parametrize("key", ["enter", "space", "n", "right"])
async def test_a_page_is_scrolled_to_its_end_before_the_next_one(key: str) -> None:
    chapter = read_course(built_in_knowledge()).chapter("7")
    assert chapter
    lines = [line.strip() for line in chapter.chapter.pages[0].splitlines()]
    async with learn_app().run_test(size=(80, 22)) as pilot:
        await open_learn(pilot, "7")
        await shows(pilot, "page 1 of", "↓ 2 more lines: enter")
        assert lines[-1] not in frame(pilot)
        assert chapter.chapter.id not in load_progress().pages
        seen = frame(pilot)
        await pilot.press(key)
        await shows(pilot, "page 1 of", lines[-1])
        seen += frame(pilot)
        assert all(line in seen for line in lines) and "more line" not in frame(pilot)
        assert load_progress().pages[chapter.chapter.id] == 1
        await pilot.press(key)
        await shows(pilot, "page 2 of", chapter.chapter.pages[1].splitlines()[0])


@walk
async def test_each_page_fits_a_terminal_of_24_lines() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        for chapter in read_course(built_in_knowledge()).chapters:
            if not chapter.chapter.pages:
                continue
            await pilot.app.open("chapter", entry=chapter)  # type: ignore[attr-defined]
            for number, page in enumerate(chapter.chapter.pages, 1):
                await shows(pilot, f"page {number} of", page.splitlines()[0].strip())
                assert pilot.app.screen.query_one(ScrolledText).lines_below == 0 and "more line" not in frame(pilot)
                if number < len(chapter.chapter.pages):
                    await pilot.press("n")
            await pilot.press("escape")


@walk
async def test_a_page_that_fits_is_read_when_it_is_shown() -> None:
    async with learn_app().run_test(size=(120, 60)) as pilot:
        await open_learn(pilot, "7")
        await shows(pilot, "page 1 of")
        await until(pilot, lambda: load_progress().pages == {"hangs": 1})
        assert "more line" not in frame(pilot)
        await pilot.press("enter")
        await shows(pilot, "page 2 of")


@walk
async def test_what_a_job_printed_is_scrolled_and_counted() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, read_course(built_in_knowledge()).number_of("script-error"))
        await shows(pilot, "Lab ", "run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        printed = [f"[default{rank}]:line {at} of {rank}" for at in range(30) for rank in range(2)]
        lab.session.run = LabRun(
            ending="ended", code=1, elapsed_s=1.0, output="\n".join([*printed, "  rank      : 1 (local_rank: 1)"])
        )
        lab._begin("the job runs")
        for line in lab.session.run.output.splitlines():
            lab.post_message(Printed(line))
        await shows(pilot, "output", "line 29 of 0", "rank      : 1")
        assert "line 0 of 0" not in frame(pilot)
        lab.post_message(RunEnded(shown=True))
        await shows(pilot, "line 29 of 1", "rank      : 1", "↑ ")
        await pilot.press("home")
        await shows(pilot, "line 0 of 0", "line 0 of 1", "↓ 1", "more lines")
        assert "↑" not in frame(pilot)


@walk
async def test_a_run_does_not_change_the_part_that_is_read(tmp_path: Path) -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, read_course(built_in_knowledge()).number_of("python-lock"))
        await shows(pilot, "Lab ", "run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        lab._begin("the job runs")
        await pilot.press("left")
        await until(pilot, lambda: lab.part == "code")
        await pilot.press("pagedown")
        await shows(pilot, "↑")
        read = [line[:78].rstrip() for line in frame(pilot).splitlines()[5:15]]
        lab.post_message(Sampled(recorded_report(tmp_path)))
        await shows(pilot, "ranks•")
        lab.session.run = LabRun(ending="hung", elapsed_s=1.0, output="", report=recorded_report(tmp_path))
        lab.post_message(RunEnded(shown=True))
        await shows(pilot, "The job hangs. The table of the ranks shows", "ranks•")
        assert [line[:78].rstrip() for line in frame(pilot).splitlines()[5:15]] == read
        while lab.part != "ranks":
            await pilot.press("right")
        await shows(pilot, "last moved")
        assert "•" not in frame(pilot).splitlines()[3]
        await pilot.resize_terminal(60, 20)
        await shows(pilot, "rank 0", "rank 1–3")
        await pilot.resize_terminal(120, 40)
        await shows(pilot, "1–3   waiting")
        assert "more line" not in frame(pilot)


@walk
async def test_terms_of_a_chapter_are_explained_by_one_key() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "7")
        await shows(pilot, "Hangs and how to read them", "t terms")
        await pilot.press("t")
        await shows(pilot, "Terms of this text")
        names = [item.id for item in pilot.app.screen.query_one(Choices).items]
        assert {"rank", "time-out"} <= set(names) and len(names) == len(set(names))
        await pilot.press("down")
        marked = pilot.app.screen.query_one(Choices).marked
        assert marked
        words = built_in_knowledge().terms[marked.id].text.split()[:3]
        await shows(pilot, *words)
        await pilot.press("enter")
        await shows(pilot, "Knowledge base", marked.id)
        await pilot.press("escape", "escape")
        await shows(pilot, "Hangs and how to read them")


@walk
async def test_a_lab_of_a_log_is_solved() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        number = read_course(built_in_knowledge()).number_of("gpu-sick")
        await open_learn(pilot, number)
        await shows(pilot, "Lab ", "g: name the cause")
        assert "run it" not in frame(pilot)
        await pilot.press("h")
        await shows(pilot, "Hint 1 of 3")
        await pilot.press("enter")
        await shows(pilot, "What is the cause?", "Show the answer")
        choices = pilot.app.screen.query_one(Choices)
        right = next(number for number, item in enumerate(choices.items) if item.id == "gpu-sick")
        await pilot.press(str(1 if right else 2))
        await shows(pilot, "No. That would be: ", "h: a hint")
        await pilot.press("g")
        await shows(pilot, "What is the cause?", "not this one")
        assert frame(pilot).count("not this one") == 1
        await pilot.press(str(right + 1))
        await shows(pilot, "Right. enter: the next lab · esc: back to the labs", "Cause: ")
        await pilot.press("enter")
        following = read_course(built_in_knowledge()).next_lab(number, load_progress())
        assert following
        await shows(pilot, f"Lab {following.number}: ", following.lab.title[:30])
        await pilot.press("escape")
        await shows(pilot, "labs done")
        state = load_progress().labs["gpu-sick"]
        assert state.repaired and state.answered and state.hints == 1


@walk
async def test_enter_does_the_next_step_of_a_lab() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, read_course(built_in_knowledge()).number_of("missing-set-epoch"))
        await shows(pilot, "Lab ", "r: run it")
        await pilot.press("enter")
        await shows(pilot, "the job runs", "esc stops it", "output", "Nothing is printed yet")
        await pilot.press("enter")
        await pilot.press("g")
        await shows(pilot, "g (answer) is not possible now. The job still runs", "esc labs")
        await pilot.press("escape")
        await shows(pilot, "The job is stopped.", "r: run it")
        await pilot.press("v")
        await shows(pilot, "v (prove) is not possible now. →: the code · r: run it")
        await pilot.press("right")
        await until(pilot, lambda: "not possible" not in frame(pilot) and "r: run it" in frame(pilot))


@walk
async def test_a_lab_of_an_earlier_chapter_names_its_number_there() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "2.1")
        await shows(pilot, "Lab 2.1", "same as 1.3")


@walk
async def test_a_lab_that_was_proved_leads_to_the_next_one() -> None:
    course = read_course(built_in_knowledge())
    number = course.number_of("missing-set-epoch")
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, number)
        await shows(pilot, "Lab ", "r: run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        lab.session.script.write_text("print('repaired')\n")
        lab.session.progress.answered = lab.session.progress.failed = lab.session.progress.repaired = True
        lab.session.save()
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, number)
        await shows(pilot, "A repair was proved.", "n: the next lab", "n next lab")
        following = course.next_lab(number, load_progress())
        assert following
        await pilot.press("n")
        await shows(pilot, f"Lab {following.number}: ")


@walk
async def test_the_list_shows_which_answers_were_shown() -> None:
    log = next(each for each in read_course(built_in_knowledge()).labs if not each.lab.launch)
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, log.number)
        await shows(pilot, "Lab ", "name the cause")
        await pilot.press("g")
        await shows(pilot, "Show the answer")
        await pilot.press(str(len(pilot.app.screen.query_one(Choices).items)))
        await shows(pilot, "Cause: ")
        await pilot.press("escape")
        await shows(pilot, "labs done, 1 with the answer shown", f"{log.number} – ", "Answer shown.")


@walk
async def test_each_file_and_the_command_of_a_lab_can_be_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(lab_editing, "open_in_editor", lambda _app, place: opened.append(Path(place.path).name))
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, read_course(built_in_knowledge()).number_of("decoder-crash"))
        await shows(pilot, "Lab ", "r: run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        await pilot.press("e")
        await shows(pilot, "Edit what?", "decoder.py", "train.py", "the command that starts it: torchrun")
        await pilot.press("1")
        await until(pilot, lambda: opened == ["decoder.py"])
        await pilot.press("e")
        await shows(pilot, "Edit what?")
        await pilot.press("3")
        await shows(pilot, "Which command starts it?")
        await pilot.press("ctrl+u", "enter")
        await shows(pilot, "The line is empty")
        await pilot.press(*"A=1 torchrun -h", "enter")
        await shows(pilot, "$ A=1 torchrun -h")
        assert lab.session.launch == "torchrun -h" and lab.session.progress.environ == {"A": "1"}


@walk
async def test_a_repair_is_shown_before_it_is_written() -> None:
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, read_course(built_in_knowledge()).number_of("rank-died-survivors-wait"))
        await shows(pilot, "Lab ", "run it")
        lab = pilot.app.screen
        assert isinstance(lab, LabScreen)
        run = LabRun(ending="ended", code=0, elapsed_s=1.0, output="")
        lab.session.run = run
        lab.session.found = diagnose_run(lab.session.lab, run, lab.session.directory, built_in_knowledge())
        lab.session.show_answer()
        await pilot.press("a")
        await shows(pilot, "The repair of this lab", "train.py:20", "Write it to")
        await pilot.press("pagedown")
        await shows(pilot, "+    rows = load_shard(directory, rank)", "Let an error")
        assert not lab.session.is_edited
        await pilot.press("a")
        await shows(pilot, "Applied to your copy", "v: prove it")
        assert lab.session.is_edited


@walk
async def test_the_quiz_keeps_its_place() -> None:
    first, second = read_quiz()[:2]
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "quiz")
        await shows(pilot, "Quiz 1 of", first.title, "Which rank was the first")
        await pilot.press(*["down"] * first.first, "enter")
        await shows(pilot, "Right.", f"Rank {first.first} was first.", "1 of 1 right", "enter: the next question")
        await pilot.press("enter")
        await shows(pilot, "Quiz 2 of", second.title)
        wrong = (second.first + 1) % second.ranks
        await pilot.press(*["down"] * wrong, "enter")
        await shows(pilot, "No.", f"Rank {second.first} was first.", "1 of 2 right")
    async with learn_app().run_test(size=(80, 24)) as pilot:
        await open_learn(pilot, "quiz")
        await shows(pilot, "Quiz 3 of")
        await pilot.press("x")
        await until(pilot, lambda: "Quiz 1 of" in frame(pilot) and "12 questions" in frame(pilot))
