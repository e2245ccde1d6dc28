"""Waiting with a limit."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(limit_s: float, work: Awaitable[T]) -> T:
    """What ``work`` comes to; it is cancelled after the limit, and with the caller.

    asyncio.wait_for, before Python 3.12, forgets that it was cancelled where the answer comes in the same moment: a
    Ctrl-C got lost that way on a busy machine.

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
