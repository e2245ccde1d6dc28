"""Waiting with a limit."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import InspectionError

T = TypeVar("T")


async def wait_for(limit_s: float, work: Awaitable[T]) -> T:
    """Return the result of ``work``; cancel it after the limit, and when the caller is cancelled.

    asyncio.wait_for, before Python 3.12, loses a cancellation that arrives together with the result: a Ctrl-C was lost
    that way on a busy machine.

    Raises:
        asyncio.TimeoutError: It took longer.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    raise asyncio.TimeoutError


async def run_in_thread(function: Callable[[], T], *, limit_s: float, subject: str) -> T:
    """Call ``function`` in a thread of its own, which is left behind when it takes longer.

    Raises:
        InspectionError: It did not return within the limit. ``subject`` names what was read.
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
        return await wait_for(limit_s, done)
    except asyncio.TimeoutError:
        raise InspectionError(
            f"{subject}: no answer within {limit_s:g} s", "look at the file system it is on (df, mount)"
        ) from None
