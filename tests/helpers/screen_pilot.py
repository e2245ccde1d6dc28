"""Golden frames: the content of the compositor as plain text. ``UPDATE_FRAMES=1`` rewrites them."""

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ddpwizard.app.system.procfs import all_processes
from ddpwizard.screens.widgets.choices import Choices
from textual.pilot import Pilot
from textual.strip import Strip

FRAMES = Path(__file__).parent.parent / "frames"
LIMIT_S = 60.0
REPAINT_S = 0.02  # longer than Textual waits before it paints what has changed
MOST_TURNS = 10_000


def walk(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Wrap an async test so that pytest runs it without a plugin."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def rows(pilot: Pilot[int]) -> list[str]:
    """Return the lines of the screen without trailing blanks."""
    return [strip.text.rstrip() for strip in pilot.app.screen._compositor.render_strips()]


def frame(pilot: Pilot[int]) -> str:
    """Return the screen as one text."""
    return "\n".join(rows(pilot)) + "\n"


def check(pilot: Pilot[int], name: str) -> None:
    """Compare the screen with ``tests/frames/<name>.txt``."""
    path, now = FRAMES / f"{name}.txt", frame(pilot)
    if os.environ.get("UPDATE_FRAMES"):
        path.write_text(now)
    assert path.is_file(), f"no golden frame {path.name}: run once with UPDATE_FRAMES=1 and read it"
    assert now == path.read_text()


def painted_rows(choices: Choices) -> list[int]:
    """Return the list of rows painted from now on; it grows with each."""
    painted: list[int] = []
    original = choices.render_line

    def counted(y: int) -> Strip:
        painted.append(y)
        return original(y)

    choices.render_line = counted  # type: ignore[method-assign]
    return painted


async def settled(_min_s: float = 0, _max_s: float = 0) -> None:
    """Let the app run until it only waits for a timer, a thread or the user.

    Replaces Textual's wait_for_idle, which regards a process without CPU time as finished: on a busy machine it may
    only be runnable.
    """
    await _turns()
    await asyncio.sleep(REPAINT_S)
    await _turns()


async def _turns() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(MOST_TURNS):
        if not loop._ready:  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0)


async def until(pilot: Pilot[int], true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Let the app run until a condition holds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if true():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError(f"the condition did not hold in time; the screen shows\n{frame(pilot)}")


async def shows(pilot: Pilot[int], *texts: str, limit_s: float = LIMIT_S) -> None:
    """Let the app run until the screen shows all of these."""
    await until(pilot, lambda: all(text in frame(pilot) for text in texts), limit_s)


def check_left(directory: str, limit_s: float = 30.0) -> None:
    """Check that no process runs in ``directory`` any more."""
    end = time.monotonic() + limit_s
    while left := [proc.pid for proc in all_processes().values() if proc.state != "Z" and proc.cwd == directory]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.05)
