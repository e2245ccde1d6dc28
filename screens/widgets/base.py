"""Base class of our widgets."""

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class BaseWidget(Widget):
    """A widget without children and without scroll bars, painted once when it is laid out."""

    # Textual lays out and paints a widget again when its virtual size is first set; without children there is no need.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False, repaint=False)
