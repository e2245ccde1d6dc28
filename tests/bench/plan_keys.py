"""What a keystroke in the planner's form takes, from the key to the table painted anew."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bar import Bar
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.plan import PlanScreen
from helpers.frames import shows, until
from helpers.recorded import RecordedDesk
from textual.widgets import Input

KEYS = ("backspace", "7", "backspace", "6", "backspace", "3") * 6
LIMIT_MS = 50
SIZES = ((80, 24), (120, 40))


def rows() -> Iterator[Bar]:
    """At both sizes: the slowest but one in ten, over 50 ms."""
    for columns, lines in SIZES:
        taken = asyncio.run(_taken_ms(columns, lines))
        beside = f"median {statistics.median(taken):.0f} ms of {len(taken)} keys"
        yield Bar(f"plan-key-{columns}x{lines}", sorted(taken)[-len(taken) // 10], LIMIT_MS, "ms", beside)


async def _taken_ms(columns: int, lines: int) -> list[float]:
    app = WizardApp(RecordedDesk(), "plan")
    async with app.run_test(size=(columns, lines)) as pilot:
        await shows(pilot, "Fastest: ", "ZeRO-3")
        screen = app.screen
        assert isinstance(screen, PlanScreen)
        screen.query_one("#seq_len", Input).focus()
        await pilot.pause()
        show, painted = screen._show, asyncio.Event()

        def shown() -> None:
            show()
            screen.call_after_refresh(painted.set)

        screen._show = shown  # type: ignore[method-assign]
        taken: list[float] = []
        for key in KEYS:
            painted.clear()
            began = time.perf_counter()
            app.simulate_key(key)
            await painted.wait()
            taken.append(1000 * (time.perf_counter() - began))
            await until(pilot, lambda: bool(screen._answer and screen._answer.more))
        return taken
