"""The line above a part of a lab: the names of all parts, and how many lines are out of view."""

from collections.abc import Collection, Sequence

from textual.content import Content
from textual.widgets import Static


class LabTabs(Static):
    """The shown part is in reverse; one that has changed since it was shown has a sign."""

    _tabs = Content("")
    _rest = ""

    def show(self, names: Sequence[str], shown: str, changed: Collection[str], sign: str) -> None:
        """Change the names of the parts."""
        tabs = [
            Content.styled(f" {name}{sign if name in changed else ''} ", "reverse" if name == shown else "$muted")
            for name in names
        ]
        self._tabs = Content(" ").join(tabs)
        self._show()

    def show_rest(self, above: int, below: int) -> None:
        """Change the number of lines above and below the screen."""
        counts = [f"↑ {above}" if above else "", f"↓ {below}" if below else ""]
        text = " · ".join(filter(None, counts))
        text = f"{text} more {'line' if above + below == 1 else 'lines'}" if text else ""
        if text != self._rest:
            self._rest = text
            self._show()

    def _show(self) -> None:
        self.update(Content.assemble(self._tabs, "   ", Content.styled(self._rest, "$muted")))
