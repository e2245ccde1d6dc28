"""The interview on the screen: five questions with figures, back by a question, and files at its end."""

from pathlib import Path

import pytest
from ddpwizard.app.plan import interview
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.planner.form import PlanForm
from ddpwizard.screens.planner.questions import InterviewScreen
from ddpwizard.screens.planner.screen import PlanScreen
from ddpwizard.screens.widgets.choices import Choices
from helpers.recorded_state import RecordedState
from helpers.screen_pilot import check, frame, shows, until, walk
from textual.pilot import Pilot
from textual.widgets import Input

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "60x20": (60, 20)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without a config.json."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def opened(pilot: Pilot[int]) -> InterviewScreen:
    await shows(pilot, "Plan a run", "port 29500 is taken")
    await until(pilot, lambda: "inspecting this machine" not in frame(pilot))
    await pilot.press("7")
    await shows(pilot, "per GPU")
    await pilot.press("i")
    await shows(pilot, "Which model?", "1 of 5")
    screen = pilot.app.screen
    assert isinstance(screen, InterviewScreen)
    return screen


async def answered(pilot: Pilot[int], screen: InterviewScreen, last: str) -> None:
    """Answer with what is offered until the question named ``last`` is asked and has its answers."""
    for name in interview.QUESTIONS:
        await until(pilot, lambda n=name: screen._question == n)
        if name in ("trained", "length", "strategy"):
            await until(pilot, lambda: bool(screen.query_one(Choices).items))
        if name == last:
            return
        await pilot.press("enter")


@pytest.mark.parametrize("size", SIZES)
@walk
async def test_frames(size: str) -> None:
    async with WizardApp(RecordedState()).run_test(size=SIZES[size]) as pilot:
        screen = await opened(pilot)
        check(pilot, f"plan-ask-model-{size}")
        await answered(pilot, screen, "trained")
        await shows(pilot, "What should be trained?", "on each GPU")
        check(pilot, f"plan-ask-trained-{size}")
        await answered_from(pilot, screen)
        await shows(pilot, "Which strategy?", "slower here")
        check(pilot, f"plan-ask-strategy-{size}")


async def answered_from(pilot: Pilot[int], screen: InterviewScreen) -> None:
    await pilot.press("enter")
    await until(pilot, lambda: screen._question == "length" and bool(screen.query_one(Choices).items))
    assert screen.query_one(Choices).highlighted == interview.USUAL_LENGTH
    await pilot.press("enter")
    await until(pilot, lambda: screen._question == "strategy" and bool(screen.query_one(Choices).items))


@walk
async def test_answers_fill_the_form_and_end_in_files(here: Path) -> None:
    async with WizardApp(RecordedState()).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("ctrl+u", *"gpt2", "enter")
        await shows(pilot, "On which GPUs?")
        await pilot.press("ctrl+u", *"4 A100-80G", "enter")
        await answered_to_strategy(pilot, screen)
        await pilot.press("1")
        await shows(pilot, "launch.sh")
        await until(pilot, lambda: getattr(pilot.app.screen, "_versions", None) is not None)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanScreen))
        await shows(pilot, "Start: sh ")
        values = pilot.app.screen.query_one(PlanForm).values()
        assert (values["model"], values["gpus"], values["gpu"], values["lora"]) == ("gpt2", "4", "A100-80G", "16")
        assert values["seq_len"] == "512"
        assert len(programs_in(here)) == 1


def programs_in(directory: Path) -> list[Path]:
    return list(directory.glob("*/train.py"))


async def answered_to_strategy(pilot: Pilot[int], screen: InterviewScreen) -> None:
    """Adapters, on short texts."""
    for name, key in (("trained", "2"), ("length", "1")):
        await until(pilot, lambda n=name: screen._question == n and bool(screen.query_one(Choices).items))
        await pilot.press(key)
    await until(pilot, lambda: screen._question == "strategy" and bool(screen.query_one(Choices).items))


@walk
async def test_a_wrong_answer_is_named_and_escape_goes_back() -> None:
    async with WizardApp(RecordedState()).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("ctrl+u", *"gibberish", "enter")
        await shows(pilot, "model gibberish: not known", "1 of 5")
        screen.query_one(Input).value = "Llama-3.1-405B"
        await pilot.press("enter")
        await shows(pilot, "2 of 5")
        await pilot.press("ctrl+u", *"1 H100", "enter")
        await shows(pilot, "What should be trained?", "too much")
        await pilot.press("escape")
        await shows(pilot, "On which GPUs?")
        await pilot.press("escape")
        await shows(pilot, "Which model?")
        assert screen.query_one(Input).value == "Llama-3.1-405B"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanScreen))
        assert pilot.app.screen.query_one(PlanForm).values()["model"] != "Llama-3.1-405B"
