"""The peer of the first paint: a Textual app with one line of text and nothing else."""

from textual.app import App, ComposeResult
from textual.widgets import Static


class Empty(App[None]):
    """One line."""

    def compose(self) -> ComposeResult:
        yield Static("hello")


if __name__ == "__main__":
    Empty().run()
