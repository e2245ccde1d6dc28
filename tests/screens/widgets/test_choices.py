"""The list of choices: the rows in view match its items after every change."""

from functools import partial

import pytest
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.widgets.choices import Choice, Choices
from helpers.recorded_state import RecordedState
from helpers.screen_pilot import frame, rows, shows, until, walk
from textual.content import Content
from textual.pilot import Pilot


def shown(pilot: Pilot[int]) -> list[str]:
    """Return the rows that the screen shows of the list."""
    region = pilot.app.screen.query_one("#strategies").region
    return [row[region.x : region.right].rstrip() for row in rows(pilot)[region.y : region.bottom]]


def held(pilot: Pilot[int]) -> list[str]:
    """Return the content of the list for each row in view."""
    choices = pilot.app.screen.query_one("#strategies", Choices)
    return [choices.render_line(y).text.rstrip() for y in range(choices.size.height)]


@pytest.mark.parametrize("sizes", [((80, 24), (80, 40)), ((80, 40), (80, 24)), ((80, 24), (60, 20), (140, 50))])
@walk
async def test_a_resized_list_is_repainted_and_filled(sizes: tuple[tuple[int, int], ...]) -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=sizes[0]) as pilot:
        await shows(pilot, "Use: ")
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
async def test_fewer_and_more_rows_with_the_last_row_marked() -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Use: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        choices.focus()
        await pilot.press("end")
        for count in (2, 30):
            choices.set_items([Choice(str(n), f"row {n}") for n in range(count)])
            await pilot.pause()
            assert shown(pilot) == held(pilot)


@walk
async def test_a_label_function_is_called_when_its_row_comes_into_view() -> None:
    made: list[int] = []

    def label(n: int) -> Content:
        made.append(n)
        return Content(f"row {n}")

    async with WizardApp(RecordedState(), "plan").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Use: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        height = choices.size.height
        choices.set_items([Choice(str(n), partial(label, n)) for n in range(3 * height)], first=True)
        await pilot.pause()
        assert sorted(made) == list(range(height)), "each once"
        assert shown(pilot) == held(pilot)
        choices.focus()
        await pilot.press("end")
        assert shown(pilot) == held(pilot) and shown(pilot)[-1] == f"▸ row {3 * height - 1}"
        assert sorted(made) == [*range(height), *range(2 * height, 3 * height)]


@walk
async def test_only_changed_rows_are_repainted() -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Use: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        choices.set_items([Choice(word, word) for word in ("one", "two", "three", "four")], first=True)
        await pilot.pause()
        painted: list[int] = []
        line = choices.render_line
        choices.render_line = lambda y: painted.append(y) or line(y)
        choices.set_items([Choice("one", "one"), Choice("two", "2"), Choice("three", Content.styled("three", "bold"))])
        await pilot.pause()
        assert sorted(set(painted)) == [1, 2, 3], "another word, another style, a row that is gone"
        assert shown(pilot) == held(pilot)


@walk
async def test_footer_offers_to_choose_only_while_there_are_rows() -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Use: ")
        choices = pilot.app.screen.query_one("#strategies", Choices)
        choices.focus()
        offered = f"enter {choices.verb}"
        for items, is_offered in (([], False), ([Choice("1", "row 1")], True), ([], False)):
            choices.set_items(items)
            await until(pilot, lambda is_offered=is_offered: (offered in rows(pilot)[-1]) is is_offered)
