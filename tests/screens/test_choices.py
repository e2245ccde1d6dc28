"""The list of choices: what stands in its window is what it holds, however the window changes."""

import pytest
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.widgets.choices import Choice, Choices
from helpers.frames import frame, rows, shows, until, walk
from helpers.recorded import RecordedDesk
from textual.pilot import Pilot


def shown(pilot: Pilot[int]) -> list[str]:
    """What the screen shows where the list stands."""
    region = pilot.app.screen.query_one("#strategies").region
    return [row[region.x : region.right].rstrip() for row in rows(pilot)[region.y : region.bottom]]


def held(pilot: Pilot[int]) -> list[str]:
    """What the list holds for each row of its window."""
    choices = pilot.app.screen.query_one("#strategies", Choices)
    return [choices.render_line(y).text.rstrip() for y in range(choices.size.height)]


@pytest.mark.parametrize("sizes", [((80, 24), (80, 40)), ((80, 40), (80, 24)), ((80, 24), (60, 20), (140, 50))])
@walk
async def test_a_window_of_another_size_is_painted_whole_and_filled(sizes: tuple[tuple[int, int], ...]) -> None:
    async with WizardApp(RecordedDesk(), "plan").run_test(size=sizes[0]) as pilot:
        await shows(pilot, "Fastest: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        choices.focus()
        await pilot.press("end")
        for size in sizes[1:]:
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: pilot.app.screen.size == size)
            assert shown(pilot) == held(pilot)
            assert frame(pilot).count("▸") == 1
            empty = max(0, choices.size.height - len(choices.items))
            assert sum(not row for row in shown(pilot)) == empty, "the window is filled as far as there are rows"
        await pilot.press("home")
        assert shown(pilot) == held(pilot) and shown(pilot)[0].startswith("▸")


@walk
async def test_fewer_and_more_rows_after_the_end_was_marked() -> None:
    async with WizardApp(RecordedDesk(), "plan").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Fastest: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        choices.focus()
        await pilot.press("end")
        for count in (2, 30):
            choices.set_items([Choice(str(n), f"row {n}") for n in range(count)])
            await pilot.pause()
            assert shown(pilot) == held(pilot)
