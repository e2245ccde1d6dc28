"""Header, status line and footer of every screen."""

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Region, Size

from .base import BaseWidget
from .choices import Choices
from .formatting import justify_two, safe_content

KEY_NAMES = {"question_mark": "?", "escape": "esc", "left": "←", "right": "→", "slash": "/", "plus": "+"}
GAP = "   "
MORE, MORE_ASCII = "…", "..."  # shown before help if there is no room for all keys


class Header(BaseWidget):
    """The title, facts on the right, and a thin rule below."""

    DEFAULT_CSS = "Header { height: 2; width: 1fr; }"

    def __init__(self, title: str) -> None:
        super().__init__(id="head")
        self.title, self.facts = title, ""

    def show(self, title: str | None = None, facts: str | None = None) -> None:
        """Change title or facts."""
        before = (self.title, self.facts)
        self.title = self.title if title is None else title
        self.facts = self.facts if facts is None else facts
        if before != (self.title, self.facts):
            self.refresh(Region(0, 0, self.size.width, 1))

    def render(self) -> Content:
        width = self.size.width
        first = justify_two(safe_content(" " + self.title, "bold"), safe_content(self.facts + " ", "$muted"), width)
        return Content.assemble(first, "\n", ("─" * width, "$rule"))


class StatusLine(BaseWidget):
    """The last event, on up to three lines. It stays until the next one."""

    DEFAULT_CSS = "StatusLine { dock: bottom; height: auto; max-height: 3; width: 1fr; padding: 0 1; margin: 0 0 1 0; }"

    def __init__(self) -> None:
        super().__init__(id="note")
        self.content = Content("")

    def show(self, content: Content | str) -> None:
        """Show a text."""
        content = safe_content(content) if isinstance(content, str) else content
        if not content.is_same(self.content):
            width = self.size.width or 80
            grows = len(content.wrap(width)) != len(self.content.wrap(width))
            self.content = content
            self.refresh(layout=grows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.content.wrap(width)) if width else 1

    def render(self) -> Content:
        return self.content


class Footer(BaseWidget):
    """The keys that work now; help and quit are always shown."""

    DEFAULT_CSS = "Footer { dock: bottom; height: 1; width: 1fr; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__(id="keys")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def render(self) -> Content:
        keys, ends = self._keys()
        width = self.size.width
        right = Content(GAP).join([_key(*part) for part in ends])
        count = _fitting(keys, width - right.cell_length - len(GAP))
        if count == len(keys):
            return justify_two(Content(GAP).join([_key(*part) for part in keys]), right, width)
        more = f" {MORE_ASCII if self.screen.ascii_only else MORE} "  # type: ignore[attr-defined]
        room = width - right.cell_length - len(more)
        left = Content(GAP).join([_key(*part) for part in keys[: _fitting(keys, room)]])
        return Content.assemble(left, " " * (room - left.cell_length), (more, "$muted"), right)

    def _keys(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        screen = self.screen
        focused = screen.focused
        writing = focused is not None and focused.check_consume_key("a", "a")  # letters are typed into it
        ends = [("f1", "help"), ("ctrl+q", "quit")] if writing else [("?", "help"), ("q", "quit")]
        keys: list[tuple[str, str]] = []
        if isinstance(focused, Choices) and focused.verb and focused.items:
            keys.append(("enter", focused.verb))
        for binding in screen.shown_bindings():  # type: ignore[attr-defined]
            key = binding.key.split(",")[0]
            name = KEY_NAMES.get(key) or key
            if not (writing and len(name) == 1):  # a letter is typed, not an action
                keys.append((name, binding.description))
        return keys, ends


def _fitting(keys: list[tuple[str, str]], room: int) -> int:
    """Return how many keys fit, from the first."""
    count = 0
    for key, what in keys:
        room -= cell_len(f"{key} {what}")
        if room < 0:
            break
        room -= len(GAP)
        count += 1
    return count


def _key(key: str, what: str) -> Content:
    return Content.assemble((key, "bold"), " ", (what, "$muted"))
