"""A text of which only the lines in view are rendered."""

from ddpwizard.screens.widgets.long_text import LongText
from helpers.screen_pilot import walk
from textual.app import App, ComposeResult
from textual.content import Content


class TextApp(App[None]):
    """A long text alone."""

    def compose(self) -> ComposeResult:
        yield LongText()


def shown(text: LongText) -> list[str]:
    return [text.render_line(y).text.rstrip() for y in range(text.size.height)]


@walk
async def test_lines_in_view_are_rendered_and_scrolled() -> None:
    async with TextApp().run_test(size=(22, 4)) as pilot:
        text = pilot.app.query_one(LongText)
        text.show(Content("a line\nand one"), *(Content(f"number {n}") for n in range(8)))
        await pilot.pause()
        assert shown(text) == ["a line", "and one", "number 0", "number 1"] and text.virtual_size.height == 10
        text.scroll_to(y=3, animate=False)
        await pilot.pause()
        assert shown(text) == ["number 1", "number 2", "number 3", "number 4"]
        text.show(*(Content(f"other {n}") for n in range(10)), stay=True)
        await pilot.pause()
        assert shown(text)[0] == "other 3"
        text.show(Content("short"))
        await pilot.pause()
        assert shown(text) == ["short", "", "", ""] and text.scroll_offset.y == 0


@walk
async def test_text_is_wrapped_again_for_another_width() -> None:
    async with TextApp().run_test(size=(22, 4)) as pilot:
        text = pilot.app.query_one(LongText)
        text.show(Content("twelve words " * 4))
        await pilot.pause()
        narrow = text.virtual_size.height
        await pilot.resize_terminal(60, 4)
        await pilot.pause()
        assert narrow == 3 and text.virtual_size.height == 1
        assert text.plain == "twelve words " * 4
