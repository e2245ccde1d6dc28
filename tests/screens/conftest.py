"""Fixtures for the tests of screens."""

import pytest
from helpers.screen_pilot import settled


@pytest.fixture(autouse=True)
def keys_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a key only after the app has handled the one before, on a busy machine too."""
    monkeypatch.setattr("textual.app.wait_for_idle", settled)
    monkeypatch.setattr("textual.pilot.wait_for_idle", settled)
