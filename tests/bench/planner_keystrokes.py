"""Time of a keystroke in the planner's form, from the key to the last byte of the repainted table.

The wizard runs in a terminal of its own; each key makes a request that was not made before. Each key is pressed
in several runs, and its median counts: on a shared machine any key is slow once.
"""

import statistics
import time
from collections.abc import Iterator

from helpers.pseudo_terminal import Terminal
from measurement import Bar

PLACE = "Plan a run"  # on the first screen
# Typed before the number of a field, in which "delete" then takes them away: each is a measured key. With another
# number of GPUs the table has other rows. Before each name, how often tab is pressed to get there.
FIGURES = {"seq_len": (2, "37159264"), "gpus": (1, "162349")}
HOME, DELETE = "\x1b[H", "\x1b[3~"
LIMIT_MS = 50
RUNS = 5
SIZES = ((80, 24), (120, 40), (160, 50))
LATER = " With "  # how the answer begins that comes after the table
SETTLED_S = 0.3
QUIET_S = 0.2


def rows(command: list[str]) -> Iterator[Bar]:
    """At each size: the slowest key, over 50 ms."""
    for columns, lines in SIZES:
        runs = [taken_ms(command, columns, lines) for _ in range(RUNS)]
        keys = [statistics.median(taken) for taken in zip(*runs, strict=True)]
        every = sorted(took for taken in runs for took in taken)
        most = every[-len(every) // 10]
        peer = (
            f"slowest of {len(keys)} keys by its median of {RUNS}; of all {len(every)}: median "
            f"{statistics.median(every):.0f} ms, nine in ten within {most:.0f}, slowest {every[-1]:.0f}"
        )
        yield Bar(f"plan-key-{columns}x{lines}", max(keys), LIMIT_MS, "ms", peer)


def taken_ms(command: list[str], columns: int, lines: int) -> list[float]:
    """Seconds of each key."""
    with Terminal(command, columns=columns, rows=lines) as terminal:
        terminal.wait_for(PLACE)
        terminal.wait_quiet(QUIET_S)
        terminal.send(next(line for line in terminal.text.split("\n") if PLACE in line).split()[0])
        terminal.wait_for("Use: ")
        taken = list[float]()
        for tabs, figures in FIGURES.values():
            terminal.send(*["tab"] * tabs)
            for key in (key for figure in figures for key in (figure, DELETE)):
                terminal.send(HOME)
                terminal.wait_quiet(QUIET_S)
                taken.append(1000 * _painted_s(terminal, key))
        return taken


def _painted_s(terminal: Terminal, key: str) -> float:
    """From a key to the last frame that changed more than the later answer."""
    before, last = _table(terminal), 0.0
    began = time.monotonic() - terminal.started
    terminal.send(key)
    for at in terminal.frames(SETTLED_S):
        if (now := _table(terminal)) != before:
            before, last = now, at
    assert last, f"nothing was painted for {key!r}; the screen shows\n{terminal.text}"
    return last - began


def _table(terminal: Terminal) -> list[str]:
    return [line for line in terminal.screen.display if not line.startswith(LATER)]
