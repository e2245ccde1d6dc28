"""Read files beside the event loop, with a limit: a file system that does not answer must not hold us."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from ...errors import CouldNotLook
from ...within import within

T = TypeVar("T")


async def aside(function: Callable[[], T], *, limit_s: float, subject: str) -> T:
    """Call ``function`` in a thread of its own, which is left behind when it takes longer.

    Raises:
        CouldNotLook: It did not come back within the limit. ``subject`` says what was read.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as failure:
            error = failure
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop has ended: nobody waits any more
            return

    threading.Thread(target=work, daemon=True).start()
    try:
        return await within(limit_s, done)
    except asyncio.TimeoutError:
        raise CouldNotLook(
            f"{subject}: no answer within {limit_s:g} s", "look at the file system it lies on (df, mount)"
        ) from None
