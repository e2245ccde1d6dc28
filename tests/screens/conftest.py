"""Fixtures for the tests of screens."""

import pytest
from helpers.screen_pilot import settled


@pytest.fixture(autouse=True)
def keys_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a key, the next one waits until the app has done with it, on a busy box as well."""
    monkeypatch.setattr("textual.app.wait_for_idle", settled)
    monkeypatch.setattr("textual.pilot.wait_for_idle", settled)
