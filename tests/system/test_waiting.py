"""Waiting with a limit: the answer, the limit, the cancellation."""

import asyncio

import pytest
from ddpwizard.app.system.waiting import wait_for


def test_wait_for_returns_the_answer() -> None:
    assert asyncio.run(wait_for(5.0, asyncio.sleep(0, "here"))) == "here"


def test_wait_for_raises_the_error_of_the_work() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(wait_for(5.0, fails()))


def test_wait_for_ends_the_work_at_the_limit() -> None:
    ended: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(wait_for(0.01, works()))
    assert ended == ["cleaned up"]


@pytest.mark.parametrize("answered", [True, False])
def test_cancellation_together_with_the_answer_is_kept(answered: bool) -> None:
    async def waits_and_is_cancelled() -> bool:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(wait_for(5.0, answer))
        await asyncio.sleep(0)
        if answered:
            answer.set_result("here")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return answer.cancelled()

    assert asyncio.run(waits_and_is_cancelled()) is not answered
