"""Help for a screen: its purpose and the keys that work now, taken from the bindings."""

from textual.content import Content

from ...app.text.ascii import to_ascii
from ..shell.base import WizardScreen
from ..widgets.header_footer import KEY_NAMES
from .page import TextDialog

KEY_WIDTH = 16


def active_keys(screen: WizardScreen) -> list[tuple[str, str, str]]:
    """Return (keys, name, description) of every binding that works now; the digits of a list are one row.

    The keys of the screen that its footer names come first.
    """
    found: dict[str, tuple[list[str], str, str]] = {}
    active_bindings = screen.active_bindings.items()
    own_first = sorted(active_bindings, key=lambda each: each[1].node is not screen or not each[1].binding.show)
    for key, active in own_first:
        binding = active.binding
        if not binding.id:
            continue  # Textual's own
        digit = binding.action.startswith("digit(")
        id_ = "list.pick-digit" if digit else binding.id
        name, what = (
            ("Choose by number", "Choose that row at once") if digit else (binding.description, binding.tooltip)
        )
        found.setdefault(id_, ([], name, what))[0].append(KEY_NAMES.get(key, key))
    return [(_joined(keys), name, what) for keys, name, what in found.values()]


def help_screen(screen: WizardScreen) -> TextDialog:
    """Return the help page for the current state of ``screen``."""
    spelled = to_ascii if screen.ascii_only else str
    rows = [
        Content.assemble((spelled(keys).ljust(KEY_WIDTH), "$accent bold"), spelled(what))
        for keys, _, what in active_keys(screen)
    ]
    if "tab" not in screen.active_bindings or not screen.active_bindings["tab"].binding.id:
        rows.append(Content.assemble(("tab".ljust(KEY_WIDTH), "$accent bold"), "Go to the next part of the screen"))
    about = screen.ABOUT or "The keys that work here."
    content = Content("\n").join([Content(spelled(about)), Content(""), Content.styled("Keys", "bold"), *rows])
    return TextDialog(f"Help › {screen.title}", content)


def _joined(keys: list[str]) -> str:
    return "1 … 9" if keys[:2] == ["1", "2"] else " ".join(keys)
