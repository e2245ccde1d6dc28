"""The wizard ended or suspended by a signal, in a real pseudo-terminal: the terminal is as before."""

import os
import pty
import re
import shlex
import signal
import sys
import termios
from pathlib import Path

import pytest
from helpers.jobs import wait_for
from helpers.pseudo_terminal import Terminal, marked

WIZARD = [sys.executable, "-m", "ddpwizard", "--python", sys._base_executable]  # type: ignore[attr-defined]
HOME = "What is wrong?"
DEFAULT_OFF = {b"1000", b"1003", b"1004", b"1006", b"1015", b"1049", b"2004"}


def modes_left_on(output: bytes) -> set[bytes]:
    """Return the private modes that were switched on last, and 25 if the cursor is hidden."""
    last = dict(re.findall(rb"\x1b\[\?(\d+)([hl])", output))
    return {number for number in DEFAULT_OFF if last.get(number) == b"h"} | {b"25"} & {
        number for number, state in last.items() if state == b"l"
    }


def default_attributes() -> list[object]:
    master, slave = pty.openpty()
    try:
        return termios.tcgetattr(slave)
    finally:
        os.close(master)
        os.close(slave)


def test_sigterm_restores_the_terminal() -> None:
    with Terminal(WIZARD) as terminal:
        terminal.wait_for(HOME)
        assert modes_left_on(terminal.output) >= {b"1049", b"25"}
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_exit(30) == 128 + signal.SIGTERM
        assert modes_left_on(terminal.output) == set()
        assert termios.tcgetattr(terminal.descriptor) == default_attributes()


def test_closed_terminal_ends_the_wizard() -> None:
    with Terminal(WIZARD) as terminal:
        terminal.wait_for(HOME)
        terminal.close()
        assert terminal.process.wait(30) == 128 + signal.SIGHUP
        wait_for(lambda: not marked(terminal.mark), "nothing is left", 30)


def test_ctrl_z_suspends_and_fg_returns(tmp_path: Path) -> None:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], cwd=tmp_path) as terminal:
        terminal.send(shlex.join(WIZARD), "enter")
        terminal.wait_for(HOME)
        terminal.send("\x1a")
        terminal.wait_for("Stopped")
        assert not modes_left_on(terminal.output) - {b"2004"}  # bash uses bracketed paste itself
        terminal.send("fg", "enter")
        terminal.wait_for(HOME)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "face"), [(signal.SIGHUP, []), (signal.SIGTERM, ["--plain"])])
def test_demo_ended_by_a_signal_leaves_no_directory(number: int, face: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ddpwizard", "--demo", *face]
    with Terminal(command, env={"TMPDIR": str(tmp_path)}) as terminal:
        terminal.wait_until(lambda: any(tmp_path.glob("ddpwizard-demo-*/train.py")), "the demo's directory")
        terminal.process.send_signal(number)
        assert terminal.wait_exit(60) == 128 + number
        wait_for(lambda: not any(tmp_path.iterdir()), "the directory is removed", 30)
