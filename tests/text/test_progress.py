"""The line of progress where standard error is no terminal."""

import pytest
from ddpwizard.app.text import progress
from ddpwizard.app.text.progress import ProgressLine


def test_a_log_gets_a_line_now_and_then_and_only_if_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_AFTER_S", 0.0)
    for logged, printed in ((True, "read 1 of 9\n"), (False, "")):
        line = ProgressLine(lambda done: f"read {done} of 9", logged=logged)
        line.draw(1)
        line.draw(2)
        line.clear()
        assert capsys.readouterr().err == printed


def test_nothing_is_drawn_in_the_first_second(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLine(str, logged=True).draw(1)
    assert capsys.readouterr().err == ""
