"""Mixin for screens whose keys depend on the step: a key that does nothing now says so."""

from textual import events
from textual.binding import Binding

from ..shell.base import WizardScreen
from ..widgets.header_footer import StatusLine


class RefusedKeysMixin(WizardScreen):
    """``refusal``: what is possible instead."""

    _refused = ""  # the last message

    def refusal(self) -> str:
        """Return what can be done now."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        bindings = (each for each in type(self).BINDINGS if isinstance(each, Binding) and each.key == event.key)
        if (binding := next(bindings, None)) and self.check_action(binding.action.partition("(")[0], ()) is False:
            event.stop()
            self._refused = f"{binding.key} ({binding.description}) is not possible now. {self.refusal()}"
            self.show_status(self._refused)

    def forget_refusal(self) -> None:
        """Show only what can be done, if the message of a refused key is shown."""
        if self._refused and self.query_one(StatusLine).content.plain == self._refused:
            self.show_status(self.refusal())
