"""Mixin for screens that load what they show: a key pressed meanwhile takes effect once it is shown."""

from textual import events
from textual.binding import Binding

from ..shell.base import WizardScreen

MOST_KEPT = 8


class KeptKeysMixin(WizardScreen):
    """``loading_keys``: the screen loads, and keeps the keys of its own bindings."""

    loading_keys = False

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Binding] = []

    def on_key(self, event: events.Key) -> None:
        binding = self._own_binding(event.key) if self.loading_keys else None
        if binding and len(self._kept) < MOST_KEPT:
            event.stop()
            self._kept.append(binding)
            labels = ", ".join(each.description for each in self._kept)
            self.show_status(f"Kept until this is loaded: {labels}")

    async def take_kept_keys(self) -> None:
        """Perform the actions of the keys that were kept, in order, up to one that opens another screen.

        A key whose action is not possible is reported.
        """
        self.loading_keys = False
        kept, self._kept = self._kept, []
        if kept:
            self.show_status("")
        for binding in kept:
            if self.app.screen is not self:
                return
            if not await self.app.run_action(binding.action, self):
                self.show_status(f"{binding.key} ({binding.description}) is not possible for this fix.")

    def drop_kept_keys(self) -> None:
        """Forget the keys that were kept: nothing could be loaded."""
        self.loading_keys = False
        self._kept = []

    def _own_binding(self, key: str) -> Binding | None:
        """Return the binding of a key that this class defines; those of all screens act at once."""
        return next((each for each in type(self).BINDINGS if isinstance(each, Binding) and each.key == key), None)
