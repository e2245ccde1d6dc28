"""Time of a key on the screens of ``learn``, from the key to the frame with its answer.

Each key is pressed in several runs, and its median counts: on a shared machine any key is slow once. Escape is left
out: Textual waits 100 ms to tell it from the start of another key.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from helpers.pseudo_terminal import Terminal
from measurement import Bar

LIMIT_MS = 50
RUNS = 5
SIZES = ((80, 24), (120, 40))
SETTLED_S = 0.5
ANSWER_S = 10
QUIET_S = 0.3
LISTED = "labs done"  # in the header of the course
RIGHT, ESCAPE = "\x1b[C", "escape"
NAMES = {RIGHT: "right"}


class Step(NamedTuple):
    """A key and the text of its answer; ``measured`` is false for one that only prepares the next."""

    key: str
    answer: str
    measured: bool = True


WALKS: dict[str, list[Step]] = {  # by the arguments of the command
    "learn --ascii": [Step("/", "Knowledge base"), Step("r", "Knowledge base")],
    "learn": [
        Step("down", "▸     1.1"),
        Step("up", "▸  1"),
        Step("enter", "page 1 of"),
        Step("t", "Terms of this text"),
        Step("down", "▸ "),
        Step(ESCAPE, "page 1 of", measured=False),
        Step(RIGHT, "page 2 of"),
        Step("l", "Labs: What a rank is"),
        Step("down", "▸ 2"),
        Step("down", "▸ 3"),
        Step("enter", "Lab 1.3"),
        Step(RIGHT, "   1  "),
        Step("?", "Help › Lab"),
        Step(ESCAPE, "   1  ", measured=False),
        Step("e", "Edit what?"),
        Step(ESCAPE, "   1  ", measured=False),
        Step("h", "Hint 1"),
        Step("t", "Terms of this text"),
        Step(ESCAPE, "   1  ", measured=False),
        Step("r", "output"),
    ],
    "learn quiz": [Step("enter", "enter: the next question"), Step("n", "Quiz 2 of"), Step("t", "Terms of this text")],
    "": [
        Step("/", "Knowledge base"),
        Step("r", "Knowledge base"),
    ],
}


def rows(command: list[str]) -> Iterator[Bar]:
    """At each size: the slowest key, over 50 ms."""
    for columns, lines in SIZES:
        taken: dict[str, list[tuple[float, float]]] = {}
        for _ in range(RUNS):
            for start in WALKS:
                for step, figures in _taken_ms(command, start, columns, lines):
                    taken.setdefault(f"{NAMES.get(step.key, step.key)} ({step.answer.strip()})", []).append(figures)
        medians = {key: statistics.median(wall for wall, _ in runs) for key, runs in taken.items()}
        cpu = {key: statistics.median(cpu for _, cpu in runs) for key, runs in taken.items()}
        slowest, busiest = max(medians, key=lambda key: medians[key]), max(cpu, key=lambda key: cpu[key])
        peer = f"{slowest}; most CPU time {cpu[busiest]:.0f} ms, {busiest}; {len(medians)} keys"
        yield Bar(f"learn-key-{columns}x{lines}", medians[slowest], LIMIT_MS, "ms", peer)


def _taken_ms(command: list[str], start: str, columns: int, lines: int) -> Iterator[tuple[Step, tuple[float, float]]]:
    """Yield each measured key, the milliseconds until its answer, and those of CPU time until the screen is quiet."""
    with tempfile.TemporaryDirectory() as state:
        env = {"XDG_STATE_HOME": state}
        with Terminal([*command, *start.split()], columns=columns, rows=lines, env=env) as terminal:
            terminal.wait_for("q quit")
            terminal.bytes_during(2 * SETTLED_S)
            terminal.wait_quiet(QUIET_S)
            for step in WALKS[start]:
                before, cpu = terminal.text, _cpu_ms(terminal.process.pid)
                began = time.monotonic() - terminal.started
                terminal.send(step.key)
                answered, until = 0.0, time.monotonic() + ANSWER_S
                while not answered:
                    assert time.monotonic() < until, f"no {step.answer!r} after {step.key!r}:\n{terminal.text}"
                    for at in terminal.frames(SETTLED_S):
                        if not answered and terminal.text != before and step.answer in terminal.text:
                            answered = at
                if step.measured:
                    spent = _cpu_ms(terminal.process.pid) - cpu
                    yield step, (1000 * (answered - began), spent)
                terminal.wait_quiet(QUIET_S)


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e6
