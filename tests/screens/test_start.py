"""Choice of the wizard to start, and the modules it must not import."""

import subprocess
import sys

import pytest
from ddpwizard.screens import start
from helpers.pseudo_terminal import Terminal

FORBIDDEN = (
    "networkx",
    "torch",
    "numpy",
    "pygments",
    "markdown_it",
    "ddpwizard.app.training_script.scopes",  # the analysis of scripts
)
FIRST_FRAME = """
import asyncio, sys
from ddpwizard.app.options import Options
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.shell.state import WizardState

async def main():
    async def never(*_):
        await asyncio.Event().wait()
    app = WizardApp(WizardState(Options(), run_probes=never, triage=never))
    async with app.run_test(size=(80, 24)):
        assert any("My job hangs" in strip.text for strip in app.screen._compositor.render_strips())
        print(*sorted(sys.modules))

asyncio.run(main())
"""


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    import os

    env = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, env=env
    )


def test_nothing_heavy_is_imported_for_the_first_frame() -> None:
    done = run(FIRST_FRAME)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert "textual" in modules
    assert not [name for name in FORBIDDEN if name in modules]


@pytest.mark.parametrize("environ", [{}, {"TERM": "xterm", "ACCESSIBLE": "1"}])
def test_without_a_screen_the_plain_wizard_runs_and_textual_is_not_imported(environ: dict[str, str]) -> None:
    """Standard input is at its end: the plain wizard ends. Probing an interpreter without torch takes less time."""
    code = (
        "import sys\n"
        "from ddpwizard.app.options import Options\n"
        "from ddpwizard.screens.start import run_wizard\n"
        "code = run_wizard('home', Options(python=sys._base_executable), {})\n"
        "print('textual' in sys.modules, file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = run(code, **environ)
    assert done.stderr.strip().splitlines()[-1] == "False", done.stderr


class Tty:
    def __init__(self, is_one: bool) -> None:
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one


@pytest.mark.parametrize(
    ("environ", "stdin", "stderr", "screen"),
    [
        ({"TERM": "xterm"}, True, True, True),
        ({"TERM": "xterm"}, False, True, False),
        ({"TERM": "xterm"}, True, False, False),
        ({"TERM": "dumb"}, True, True, False),
        ({}, True, True, False),
        ({"TERM": "xterm", "ACCESSIBLE": "1"}, True, True, False),
        ({"TERM": "xterm", "ACCESSIBLE": "0"}, True, True, True),
    ],
)
def test_has_screen(
    environ: dict[str, str], stdin: bool, stderr: bool, screen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stdin__", Tty(stdin))
    monkeypatch.setattr(sys, "__stderr__", Tty(stderr))
    assert start.has_screen(environ) is screen


def test_output_that_cannot_print_every_character_gets_ascii() -> None:
    wizard = [sys.executable, "-m", "ddpwizard", "--python", sys._base_executable]  # type: ignore[attr-defined]
    with Terminal(wizard, env={"PYTHONIOENCODING": "latin-1"}) as terminal:
        terminal.wait_for("What is wrong?")
        assert "\\u" not in terminal.text
        assert terminal.text.isascii()
