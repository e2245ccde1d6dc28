"""Bytes that the full screen writes, and its clean end, in a real pseudo-terminal."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.session import Session
from ddpwizard.screens.widgets.progress_line import TICK_S
from helpers.jobs import wait_for
from helpers.pseudo_terminal import ALTERNATE_OFF, ALTERNATE_ON, Terminal, marked

WIZARD = [sys.executable, "-m", "ddpwizard"]
LAB = "ddpwizard.screens.learn.lab"
# Probing an interpreter without torch takes less time.
QUICK = ["--python", sys._base_executable]  # type: ignore[attr-defined]
HOME = "What is wrong?"
INSPECTING = "inspecting this machine"
FIRST_FRAME_BYTES = 12_000
KEY_BYTES = 1_500
RUNNING_BYTES_PER_S = 600
ORPHAN_LIMIT_S = 30.0
SLOW_MODULES = {"torch", "networkx", "numpy", "markdown_it", "pygments.lexers"}
# The wizard; on SIGUSR1 it writes the names of the loaded modules.
WRITING_MODULES = """
import json, pathlib, signal, sys
def write_modules(*_):
    pathlib.Path(sys.argv[-1]).write_text(json.dumps(sorted(sys.modules)))
signal.signal(signal.SIGUSR1, write_modules)
from ddpwizard.cli import main
main([])
"""
# A question with a probe that never ends, on a recorded machine.
STUCK = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ddpwizard.screens.app import WizardApp
from helpers.recorded_state import RecordedState
WizardApp(RecordedState(stuck=True), "step").run()
"""
TESTS = Path(__file__).parent.parent


@pytest.fixture
def home() -> Iterator[Terminal]:
    """The wizard at Home after the machine was inspected."""
    with Terminal([*WIZARD, *QUICK]) as terminal:
        terminal.wait_for(HOME)
        wait_idle(terminal)
        yield terminal


def wait_idle(terminal: Terminal) -> None:
    terminal.wait_until(lambda: INSPECTING.encode() in terminal.output, "inspection of the machine")
    terminal.wait_until(
        lambda: INSPECTING not in terminal.text,
        "end of the inspection",
    )
    terminal.wait_quiet()


def test_the_first_frame_is_small() -> None:
    """Results of probes are not counted: they come all at once or one by one."""
    last = (INSPECTING.encode(), b"quit")
    with Terminal(WIZARD) as terminal:
        terminal.wait_until(lambda: all(words in terminal.output for words in last), "the last rows")
        assert max(map(terminal.output.index, last)) <= FIRST_FRAME_BYTES


def test_an_arrow_key_writes_few_bytes(home: Terminal) -> None:
    for key in ("down", "down", "down", "up"):
        before, shown = home.count_bytes, home.text
        home.send(key)
        home.wait_until(lambda shown=shown: home.text != shown, f"answer to {key}")
        home.wait_quiet(0.2)
        assert 0 < home.count_bytes - before <= KEY_BYTES


def test_an_idle_screen_writes_nothing(home: Terminal) -> None:
    assert home.bytes_during(2.0) == 0


def test_slow_modules_are_not_loaded_at_the_first_frame(tmp_path: Path) -> None:
    listed = tmp_path / "modules.json"
    with Terminal([sys.executable, "-c", WRITING_MODULES, str(listed)]) as terminal:
        terminal.wait_for(HOME)
        terminal.process.send_signal(signal.SIGUSR1)
        terminal.wait_until(lambda: listed.exists() and listed.read_text().endswith("]"), "list of modules")
    loaded = set(json.loads(listed.read_text()))
    assert "textual.app" in loaded
    assert not SLOW_MODULES & loaded


def test_a_lab_is_imported_before_it_is_opened(tmp_path: Path) -> None:
    listed = tmp_path / "modules.json"
    code = WRITING_MODULES.replace("main([])", 'main(["learn"])')

    def loaded() -> set[str]:
        listed.unlink(missing_ok=True)
        terminal.process.send_signal(signal.SIGUSR1)
        terminal.wait_until(lambda: listed.exists() and listed.read_text().endswith("]"), "list of modules")
        return set(json.loads(listed.read_text()))

    with Terminal([sys.executable, "-c", code, str(listed)]) as terminal:
        terminal.wait_for("Learn distributed training")
        assert not SLOW_MODULES & loaded()
        terminal.wait_until(lambda: LAB in loaded(), "import of the screen of a lab")


def test_q_restores_the_terminal(home: Terminal) -> None:
    assert ALTERNATE_ON in home.output
    home.send("q")
    assert home.wait_exit() == 0
    assert home.output.rfind(ALTERNATE_OFF) > home.output.rfind(ALTERNATE_ON)
    assert home.output.rfind(b"\x1b[?1000l") > home.output.rfind(b"\x1b[?1000h"), "the mouse is the terminal's again"
    assert home.output.rfind(b"\x1b[?25h") > home.output.rfind(b"\x1b[?25l"), "the cursor is back"


def test_ctrl_c_twice_quits(home: Terminal) -> None:
    home.send("ctrl+c")
    home.wait_for("ctrl+c again")
    assert home.process.poll() is None
    home.send("ctrl+c")
    assert home.wait_exit() == 130
    assert ALTERNATE_OFF in home.output


def test_no_mouse_does_not_enable_mouse_reports() -> None:
    with Terminal([*WIZARD, "--no-mouse"]) as terminal:
        terminal.wait_for(HOME)
        assert b"\x1b[?1000h" not in terminal.output


@pytest.mark.parametrize("size", [(40, 10), (59, 24)])
def test_a_terminal_too_small_is_an_error_of_one_line(size: tuple[int, int]) -> None:
    with Terminal(WIZARD, columns=size[0], rows=size[1]) as terminal:
        assert terminal.wait_exit() == 2
        assert b"--plain" in terminal.output
        assert ALTERNATE_ON not in terminal.output


@pytest.mark.slow
def test_a_lost_connection_leaves_no_process_and_the_session_can_be_resumed() -> None:
    with Terminal([*WIZARD, "--allow", "allocates"]) as terminal:
        terminal.wait_for(HOME)
        wait_idle(terminal)
        terminal.send("6")
        terminal.wait_until(lambda: len(marked(terminal.mark)) > 3, "processes of a probe")
        question = asked(terminal)
        terminal.close()
        wait_for(lambda: not marked(terminal.mark), "nothing of it is left", ORPHAN_LIMIT_S)
    session = Session.load("last")
    assert session.last("closed") is None
    with Terminal([*WIZARD, "sessions", "resume", session.id]) as terminal:
        terminal.wait_for(question)


def asked(terminal: Terminal) -> str:
    """Return the question on the screen: the first text under the rule."""
    terminal.wait_for("Why I ask")
    return terminal.text.split("\n")[3].split("  ")[0].strip()


def elapsed_s(terminal: Terminal) -> float:
    """Return the elapsed time that the progress line shows, or 0."""
    shown = re.search(r"(\d+\.\d) s / \d+ s", terminal.text)
    return float(shown[1]) if shown else 0.0


def test_a_running_probe_writes_few_bytes() -> None:
    """Bytes are counted per second on the clock of the screen: a late reader sees several updates as one."""
    with Terminal([sys.executable, "-c", STUCK, str(TESTS)]) as terminal:
        terminal.wait_until(lambda: elapsed_s(terminal) >= 3 * TICK_S, "the screen to be painted")
        before, began_s = terminal.count_bytes, elapsed_s(terminal)
        terminal.wait_until(lambda: elapsed_s(terminal) >= began_s + 4 * TICK_S, "updates of the clock")
        shown_s = elapsed_s(terminal) - began_s
        assert 0 < terminal.count_bytes - before <= (shown_s + TICK_S) * RUNNING_BYTES_PER_S


@pytest.mark.slow
def test_quitting_ends_a_running_probe() -> None:
    with Terminal([*WIZARD, "--allow", "allocates"]) as terminal:
        terminal.wait_for(HOME)
        wait_idle(terminal)
        terminal.send("6")
        terminal.wait_until(lambda: len(marked(terminal.mark)) > 3, "processes of a probe")
        asked(terminal)
        terminal.send("\x11")  # ctrl+q
        assert terminal.wait_exit() == 0
        wait_for(lambda: not marked(terminal.mark), "nothing of it is left", ORPHAN_LIMIT_S)
