"""Bytes and CPU time of the Learn screens in a real pseudo-terminal, at the size of a small and of a large window.

CPU time of the main thread is measured, not the time that passes: other programs of the machine do not count.
"""

import sys
from pathlib import Path

import pytest
from helpers.pseudo_terminal import Terminal

WIZARD = [sys.executable, "-m", "ddpwizard"]
SIZES = [(80, 24), (120, 40)]
CELLS = 80 * 24
FIRST_FRAME_BYTES = 12_000  # for 80 columns and 24 rows, in proportion for a larger window
KEY_BYTES = 1_500
KEY_CPU_S = 0.05
RIGHT, LEFT = "\x1b[C", "\x1b[D"
PRELOADED_S = 2.0
# Keys that open a screen, each with what it then shows: a chapter, its terms, its labs, a lab of a log, help.
OPENING = [
    ("enter", "page 1 of"),
    ("t", "Terms of this text"),
    ("escape", "page 1 of"),
    ("l", "Labs: What a rank is"),
    ("2", "Lab 1.2"),
    ("g", "What is the cause?"),
    ("escape", "Lab 1.2"),
    ("?", "Help › Lab"),
    ("escape", "Lab 1.2"),
    ("escape", "Labs: What a rank is"),
    ("escape", "page 1 of"),
    ("l", "Labs: What a rank is"),
    ("3", "Lab 1.3"),
    ("e", "Edit what?"),
]
# arguments: what the screen shows, keys that change a part of it, keys that show another page
SCREENS = {
    "course": ([], "Learn distributed training", ["down", "up"], []),
    "chapter": (["2"], "Launching", [], [RIGHT, LEFT]),
    "lab": (["2.1"], "Lab 2.1", [], [RIGHT, LEFT, "h"]),
    "quiz": (["--quiz"], "Quiz 1 of", ["down", "up"], ["n", "p"]),
}


def cpu_s(terminal: Terminal) -> float:
    """Return the CPU time that the main thread has used."""
    return int(Path(f"/proc/{terminal.process.pid}/schedstat").read_text().split()[0]) / 1e9


def opened(name: str, size: tuple[int, int]) -> Terminal:
    arguments = SCREENS[name][0]
    return Terminal([*WIZARD, "learn", *arguments], columns=size[0], rows=size[1])


def wait_idle(terminal: Terminal, text: str) -> None:
    terminal.wait_for(text)
    terminal.wait_for("quit")
    terminal.wait_quiet()


def share_of(size: tuple[int, int]) -> float:
    """Return the cells of a window, as a multiple of those of 80 columns and 24 rows."""
    return size[0] * size[1] / CELLS


@pytest.mark.parametrize("size", SIZES)
def test_the_first_frame_of_the_course_is_small(size: tuple[int, int]) -> None:
    with opened("course", size) as terminal:
        wait_idle(terminal, SCREENS["course"][1])
        assert terminal.count_bytes <= FIRST_FRAME_BYTES * share_of(size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENS)
def test_a_key_writes_few_bytes_and_needs_little_cpu_time(name: str, size: tuple[int, int]) -> None:
    """The lower CPU time of two presses counts: the first one may load a module or read a file."""
    _, text, small, pages = SCREENS[name]
    with opened(name, size) as terminal:
        wait_idle(terminal, text)
        assert terminal.bytes_during(1.0) == 0, "an idle screen writes nothing"
        used: dict[str, list[float]] = {}
        for key in [*small, *pages] * 2:
            written, began = terminal.count_bytes, cpu_s(terminal)
            terminal.send(key)
            terminal.wait_quiet(0.3)
            used.setdefault(key, []).append(cpu_s(terminal) - began)
            most = (KEY_BYTES if key in small else FIRST_FRAME_BYTES) * share_of(size)
            assert terminal.count_bytes - written <= most, key
        assert all(min(each) <= KEY_CPU_S for each in used.values()), used


@pytest.mark.long
def test_a_key_that_opens_a_screen_needs_little_cpu_time() -> None:
    """The lowest CPU time until the answer of three sessions counts: the key opens each screen for the first time."""
    used: dict[int, list[float]] = {}
    for _ in range(3):
        with opened("course", SIZES[0]) as terminal:
            wait_idle(terminal, SCREENS["course"][1])
            terminal.send("home")
            terminal.bytes_during(PRELOADED_S)
            terminal.wait_quiet()
            for step, (key, answer) in enumerate(OPENING):
                began = cpu_s(terminal)
                terminal.send(key)
                terminal.wait_for(answer)
                used.setdefault(step, []).append(cpu_s(terminal) - began)
                terminal.wait_quiet(0.3)
    assert all(min(each) <= KEY_CPU_S for each in used.values()), used
