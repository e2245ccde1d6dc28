"""Help for what is focused: what the screen is for, and its live keys, from the bindings themselves."""

from textual.content import Content

from ...app.text.ascii import to_ascii
from ..shell.base import WizardScreen
from ..widgets.header_footer import KEY_NAMES
from .page import TextDialog

KEY_WIDTH = 16


def active_keys(screen: WizardScreen) -> list[tuple[str, str, str]]:
    """(keys, name, what it does) of everything that works now; the digits of a list are one line."""
    found: dict[str, tuple[list[str], str, str]] = {}
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if not binding.id:
            continue  # Textual's own
        digit = binding.action.startswith("digit(")
        id_ = "list.pick-digit" if digit else binding.id
        name, what = (
            ("Choose by number", "Choose that row at once") if digit else (binding.description, binding.tooltip)
        )
        found.setdefault(id_, ([], name, what))[0].append(KEY_NAMES.get(key, key))
    return [(_together(keys), name, what) for keys, name, what in found.values()]


def help_screen(screen: WizardScreen) -> TextDialog:
    """The page of help for ``screen`` as it stands."""
    spelt = to_ascii if screen.ascii_only else str
    rows = [
        Content.assemble((spelt(keys).ljust(KEY_WIDTH), "$accent bold"), spelt(what))
        for keys, _, what in active_keys(screen)
    ]
    if "tab" not in screen.active_bindings or not screen.active_bindings["tab"].binding.id:
        rows.append(Content.assemble(("tab".ljust(KEY_WIDTH), "$accent bold"), "Go to the next part of the screen"))
    about = screen.ABOUT or "The keys that work here."
    content = Content("\n").join([Content(spelt(about)), Content(""), Content.styled("Keys", "bold"), *rows])
    return TextDialog(f"Help › {screen.title}", content)


def _together(keys: list[str]) -> str:
    return "1 … 9" if keys[:2] == ["1", "2"] else " ".join(keys)
