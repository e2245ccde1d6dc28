"""What a keystroke in the planner's form takes, from the key to the last byte of the table painted anew.

Each key asks what was not asked before, and the planner's caches are emptied before it. When the table is there is read
from the bytes on a terminal of our own: Textual's callbacks after a refresh come before it.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

import pyte
from bar import Bar, forget_plans
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.plan import PlanScreen
from helpers.frames import shows, until
from helpers.recorded import RecordedDesk
from textual.drivers.headless_driver import HeadlessDriver
from textual.widgets import Input

# Written over the number of a field from its front, again and again: each figure and each "delete" is a measured key.
# With another number of GPUs the table has other rows.
FIGURES = {"seq_len": "3715926453589793", "gpus": "16234957"}
LIMIT_MS = 50
SIZES = ((80, 24), (120, 40), (160, 50))
LATER = " With "  # how the answer begins that comes after the table
QUIET_S = 0.1


class Painted:
    """What a terminal of that size shows, and when each frame for it was written."""

    def __init__(self, columns: int, lines: int) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self._screen)
        self._frames: list[tuple[float, str]] = []

    def write(self, data: str) -> None:
        self._frames.append((time.perf_counter(), data))

    def last_change(self) -> float:
        """When the last of the frames since the last call was written that changed more than the later answer."""
        changed, before = 0.0, self._table()
        for at, data in self._frames:
            self._stream.feed(data)
            if (now := self._table()) != before:
                changed, before = at, now
        self._frames = []
        return changed

    def _table(self) -> list[str]:
        return [line for line in self._screen.display if not line.startswith(LATER)]


def rows() -> Iterator[Bar]:
    """At each size: the slowest but one in ten, over 50 ms."""
    for columns, lines in SIZES:
        taken = sorted(taken_ms(columns, lines))
        beside = f"median {statistics.median(taken):.0f} ms, slowest {taken[-1]:.0f} ms of {len(taken)} keys"
        yield Bar(f"plan-key-{columns}x{lines}", taken[-len(taken) // 10], LIMIT_MS, "ms", beside)


def taken_ms(columns: int, lines: int) -> list[float]:
    """What each key takes."""
    painted = Painted(columns, lines)
    with (
        patch.object(HeadlessDriver, "is_headless", False),  # else Textual makes no bytes
        patch.object(HeadlessDriver, "write", lambda _, data: painted.write(data)),
    ):
        return asyncio.run(_typed(painted, columns, lines))


async def _typed(painted: Painted, columns: int, lines: int) -> list[float]:
    app = WizardApp(RecordedDesk(), "plan")
    async with app.run_test(size=(columns, lines)) as pilot:
        await shows(pilot, "Fastest: ", "ZeRO-3")
        screen = app.screen
        assert isinstance(screen, PlanScreen)
        taken, asked = list[float](), list[object]()
        gc.freeze()  # as screens/start.py does

        async def answered() -> object:
            """Wait for the answer to a question that was not asked before, and for all that it paints."""
            await until(pilot, lambda: (now := screen._answer) and now.more and now.question not in asked)
            await pilot.pause(QUIET_S)
            asked.append(screen._answer and screen._answer.question)

        await answered()
        for name, figures in FIGURES.items():
            field = screen.query_one(f"#{name}", Input)
            field.focus()
            for key in (key for figure in figures for key in (figure, "delete")):
                field.cursor_position %= len(field.value)
                await pilot.pause(QUIET_S)
                painted.last_change()
                forget_plans()
                began = time.perf_counter()
                app.simulate_key(key)
                await answered()
                taken.append(1000 * (painted.last_change() - began))
                assert taken[-1] > 0, f"{name} {field.value}: nothing was painted"
        return taken
