"""WCAG contrast of every character that the Learn screens paint, in each theme with colours of its own."""

from collections.abc import Awaitable, Callable

import pytest
from ddpwizard.app.labs.course import read_course
from ddpwizard.app.labs.progress import LabProgress, Progress, save_progress
from ddpwizard.knowledge.quiz import read_quiz
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.learn.lab import LabScreen
from ddpwizard.screens.shell import theme
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import RecordedState
from helpers.screen_pilot import shows, walk
from helpers.wcag import LEAST_CONTRAST, contrast
from rich.color import Color as RichColor
from textual.color import Color
from textual.pilot import Pilot

COURSE = read_course(built_in_knowledge())
LOG = next(each for each in COURSE.labs if not each.lab.launch)
LEAST_OF_A_SIGN = 1.3  # rules and scroll bars only group; no text depends on them
DRAWN = set("─│┌┐└┘├┤┬┴┼━▁▂▃▄▅▆▇█▏▎▍▌▋▊▉ ")


async def course(pilot: Pilot[int]) -> None:
    save_progress(
        Progress(
            labs={
                COURSE.labs[0].lab.id: LabProgress(answered=True, repaired=True),
                COURSE.labs[1].lab.id: LabProgress(answered=True, answer_shown=True),
            }
        )
    )
    await pilot.app.open("learn")  # type: ignore[attr-defined]
    await shows(pilot, "labs done, 1 with the answer shown", "What a rank is")


async def chapter(pilot: Pilot[int]) -> None:
    await pilot.app.open("learn", number="3")  # type: ignore[attr-defined]
    await shows(pilot, "page 1 of")


async def terms(pilot: Pilot[int]) -> None:
    await chapter(pilot)
    await pilot.press("t")
    await shows(pilot, "Terms of this text")


async def chapter_labs(pilot: Pilot[int]) -> None:
    await course(pilot)
    await pilot.app.open("learn", number="2")  # type: ignore[attr-defined]
    await shows(pilot, "page 1 of")
    await pilot.press("l")
    await shows(pilot, "Labs: Launching", "same as 1.3")


async def lab(pilot: Pilot[int]) -> None:
    await pilot.app.open("learn", number="2.1")  # type: ignore[attr-defined]
    await shows(pilot, "Lab 2.1", "$ python train.py")


async def lab_code(pilot: Pilot[int]) -> None:
    await lab(pilot)
    await pilot.press("right", "v")
    await shows(pilot, "import torch", "v (prove) is not possible now")


async def answers(pilot: Pilot[int]) -> None:
    await pilot.app.open("learn", number=LOG.number)  # type: ignore[attr-defined]
    await shows(pilot, "Lab ", "name the cause")
    screen = pilot.app.screen
    assert isinstance(screen, LabScreen)
    screen.session.answer(next(id_ for id_ in screen.session.choices if id_ != LOG.lab.cause))
    await pilot.press("g")
    await shows(pilot, "Show the answer", "not this one")


async def evidence(pilot: Pilot[int]) -> None:
    await answers(pilot)
    await pilot.press("end", "enter")
    await shows(pilot, "Cause: ")


async def quiz(pilot: Pilot[int]) -> None:
    first = read_quiz()[0]
    await pilot.app.open("quiz")  # type: ignore[attr-defined]
    await shows(pilot, "Quiz 1 of")
    await pilot.press(*["down"] * ((first.first + 1) % first.ranks), "enter")
    await shows(pilot, "No.", "was first")


SCREENS: list[Callable[[Pilot[int]], Awaitable[None]]] = [
    course,
    chapter,
    terms,
    chapter_labs,
    lab,
    lab_code,
    answers,
    evidence,
    quiz,
]


@pytest.mark.parametrize("name", [theme.DARK.name, theme.LIGHT.name])
@pytest.mark.parametrize("screen", SCREENS, ids=lambda each: each.__name__)
@walk
async def test_every_character_has_enough_contrast(screen: Callable[[Pilot[int]], Awaitable[None]], name: str) -> None:
    state = RecordedState()
    state.knowledge = built_in_knowledge()
    app = WizardApp(state)
    async with app.run_test(size=(80, 24)) as pilot:
        app.theme = name
        await screen(pilot)
        low = {(text, ratio) for text, ratio, least in painted(pilot) if ratio < least}
    assert not low


def painted(pilot: Pilot[int]) -> list[tuple[str, float, float]]:
    """Return each piece of text on the screen with its contrast, and the least that it needs."""
    found: list[tuple[str, float, float]] = []
    for strip in pilot.app.screen._compositor.render_strips():
        for text, style, _ in strip:
            if not text.strip():
                continue
            assert style and style.color and style.bgcolor and not style.dim, (text, style)
            colours = (colour_of(style.color), colour_of(style.bgcolor))
            found.append((text, contrast(*colours), LEAST_OF_A_SIGN if set(text) <= DRAWN else LEAST_CONTRAST))
    assert len(found) > 5
    return found


def colour_of(colour: RichColor) -> Color:
    red, green, blue = colour.get_truecolor()
    return Color(red, green, blue)
