"""Mixin for screens whose keys depend on the step: a key that does nothing now says so."""

from textual import events
from textual.binding import Binding

from ..shell.base import WizardScreen


class RefusedKeysMixin(WizardScreen):
    """``refusal``: what is possible instead."""

    def refusal(self) -> str:
        """Return what can be done now."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        bindings = (each for each in type(self).BINDINGS if isinstance(each, Binding) and each.key == event.key)
        if (binding := next(bindings, None)) and self.check_action(binding.action.partition("(")[0], ()) is False:
            event.stop()
            self.show_status(f"{binding.key} ({binding.description}) is not possible now. {self.refusal()}")
