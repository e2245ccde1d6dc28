"""The base of our own widgets: leaves that paint themselves once when they are laid out."""

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class BaseWidget(Widget):
    """A widget without children and without scroll bars."""

    # Textual lays out and paints a widget again when its virtual size was first set; a leaf has no use for one.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False, repaint=False)
