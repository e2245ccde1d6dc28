"""Golden frames: every screen at 80×24 and 60×20, in ASCII, and with no colour at all where NO_COLOR asks for it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.fix.fix import FixScreen
from ddpwizard.screens.shell.base import WizardScreen
from ddpwizard.screens.widgets.choices import Choices
from helpers.recorded_state import RecordedState, patch_fix, report
from helpers.screen_pilot import check, frame, painted_rows, rows, shows, until, walk
from textual.pilot import Pilot
from textual.widgets import Input

Walk = Callable[[Pilot[int], Path], Awaitable[None]]


async def home(pilot: Pilot[int], _: Path) -> None:
    await shows(pilot, "looks hung", "1 fail")
    await until(pilot, lambda: "inspecting this machine" not in frame(pilot))


async def step(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("6")
    await shows(pilot, "Path of your training script?")
    await pilot.press("enter")
    await shows(pilot, "Does it stop", "2 probes ran")


async def paste(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("2")
    await shows(pilot, "Paste the error")


async def diagnosis(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("tab", *"OSError EADDRINUSE", "enter")
    await shows(pilot, "Diagnosis", "Evidence for it")


async def browser(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("0")
    await shows(pilot, "3 causes", "Symptoms")


async def checks(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("8")
    await shows(pilot, "1 more passed")


async def triage(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("1")
    await shows(pilot, "Cause: ", "rank 0", "every 5 s")


async def fix(pilot: Pilot[int], directory: Path) -> None:
    await triage(pilot, directory)
    await pilot.press("f")
    await shows(pilot, "Proof:")
    pilot.app.screen.post_message(FixScreen.FixesBuilt([patch_fix(directory)]))
    await shows(pilot, "all_reduce(acc)", "a apply")


async def help_(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("question_mark")
    await shows(pilot, "Help", "Keys")


async def palette(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("ctrl+p")
    await shows(pilot, "All commands")


async def probes(pilot: Pilot[int], directory: Path) -> None:
    await step(pilot, directory)
    await pilot.press("p")
    await shows(pilot, "at most")


async def plan(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.press("7")
    await shows(pilot, "strategy", "ZeRO-3", "118,000 tokens/s")


async def learn(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.app.screen.run_action("learn")
    await shows(pilot, "labs done", "What a rank is")


async def chapter(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.app.open("learn", number="2")  # type: ignore[attr-defined]
    await shows(pilot, "page 1 of", "Launching")


async def quiz(pilot: Pilot[int], directory: Path) -> None:
    await home(pilot, directory)
    await pilot.app.open("quiz")  # type: ignore[attr-defined]
    await shows(pilot, "Quiz 1 of", "Which rank was the first")
    await pilot.press("down", "down", "enter")
    await shows(pilot, "Right.", "was first")


SCREENS: dict[str, Walk] = {
    "home": home,
    "step": step,
    "paste": paste,
    "diagnosis": diagnosis,
    "browser": browser,
    "check": checks,
    "triage": triage,
    "fix": fix,
    "help": help_,
    "palette": palette,
    "probes": probes,
    "plan": plan,
    "learn": learn,
    "chapter": chapter,
    "quiz": quiz,
}
SIZES = {"80x24": (80, 24), "60x20": (60, 20)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to the directory of the script, so that its path is the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wizard(directory: Path, *, ascii_only: bool = False) -> WizardApp:
    return WizardApp(RecordedState([report(directory)], ascii_only=ascii_only))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENS)
@walk
async def test_frame(name: str, size: str, here: Path) -> None:
    """Compare the frame; focusable widgets, help and quit are visible."""
    app = wizard(here)
    async with app.run_test(size=SIZES[size]) as pilot:
        await SCREENS[name](pilot, here)
        check(pilot, f"{name}-{size}")
        screen = app.screen
        assert isinstance(screen, WizardScreen)
        whole = screen.region
        for widget in screen.focus_chain:
            assert widget.region in whole
            assert widget.region.area > 0, widget
        assert not screen.show_horizontal_scrollbar
        last = rows(pilot)[-1]
        writing = screen.focused is not None and screen.focused.check_consume_key("a", "a")
        assert ("f1 help" in last and "ctrl+q quit" in last) if writing else ("? help" in last and "q quit" in last)


@pytest.mark.parametrize("name", SCREENS)
@walk
async def test_ascii_frame_is_ascii(name: str, here: Path) -> None:
    async with wizard(here, ascii_only=True).run_test(size=(80, 24)) as pilot:
        await _walk_in_ascii(SCREENS[name], pilot, here)
        assert frame(pilot).isascii()
        if name in ("home", "check", "triage"):
            check(pilot, f"{name}-ascii")


async def _walk_in_ascii(steps: Walk, pilot: Pilot[int], here: Path) -> None:
    await steps(pilot, here)


@pytest.mark.parametrize("name", SCREENS)
@walk
async def test_no_color_removes_all_colours(name: str, here: Path) -> None:
    """NO_COLOR: no colour in any cell, and the same words and signs as with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        app = wizard(here)
        async with app.run_test(size=(80, 24)) as pilot:
            await SCREENS[name](pilot, here)
            assert app.theme == "ansi-dark"
            for strip in app.screen._compositor.render_strips():
                for segment in strip:
                    style = segment.style
                    assert style is None or (_plain(style.color) and _plain(style.bgcolor)), segment
            check(pilot, f"{name}-80x24")


def _plain(colour: object) -> bool:
    return colour is None or getattr(colour, "name", "") == "default"


@walk
async def test_the_light_theme_shows_the_same(here: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLORFGBG", "0;15")
        app = wizard(here)
        async with app.run_test(size=(80, 24)) as pilot:
            await home(pilot, here)
            assert app.theme == "wizard-light"
            check(pilot, "home-80x24")
            await pilot.press("ctrl+t")
            assert app.theme == "ansi-dark"
            check(pilot, "home-80x24")


@walk
async def test_an_arrow_key_repaints_two_rows(here: Path) -> None:
    """Bytes over SSH: the list repaints the row left and the row reached, nothing else."""
    app = wizard(here)
    async with app.run_test(size=(80, 24)) as pilot:
        await home(pilot, here)
        painted = painted_rows(app.screen.query_one(Choices))
        await pilot.press("down")
        assert sorted(painted) == [0, 1]


@walk
async def test_no_cursor_blinks(here: Path) -> None:
    app = wizard(here)
    async with app.run_test(size=(80, 24)) as pilot:
        for name in ("home", "browser", "palette"):
            await SCREENS[name](pilot, here)
            assert all(not line.cursor_blink for line in app.screen.query(Input))
            await pilot.press("escape")
