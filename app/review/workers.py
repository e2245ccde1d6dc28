"""Work on many items in several processes: a process that dies costs the item that it was at.

Processes are forked, so that nothing is loaded again. Ctrl-C ends them at once; they end as well if their parent does.
"""

import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

TICK_S = 0.2
FORK = get_context("fork")

Item = TypeVar("Item")
Result = TypeVar("Result")


def work_on(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    when_killed: Callable[[Item], Result],
    tick: Callable[[int], object],
    workers: int,
) -> list[Result]:
    """Return the result of ``work`` for each item, in order; ``when_killed`` makes it for items that end a process.

    ``tick`` gets the number of items that are done, about every ``TICK_S`` seconds.
    """
    pool = _Pool(items, work, workers)
    results: dict[int, Result] = {}
    try:
        with suppress(OSError):  # as many as there can be
            for part in pool.parts:
                pool.start(part)
        while len(results) < len(items):
            if not pool.workers and (index := pool.take(pool.parts[0])) is not None:
                results[index] = work(items[index])
            for index, answer in pool.answers():
                results[index] = answer[0] if answer else when_killed(items[index])
            tick(len(results))
    finally:
        pool.end()
    return [results[index] for index in range(len(items))]


class _Worker(NamedTuple):
    process: "ForkProcess"
    item: int  # the index of the item that it works on
    part: deque[int]


class _Pool(Generic[Item, Result]):
    """Processes that each work on their own part of the items: neighbours have much in common, which is kept."""

    def __init__(self, items: Sequence[Item], work: Callable[[Item], Result], workers: int) -> None:
        self.items, self.work = items, work
        bounds = [len(items) * number // workers for number in range(workers + 1)]
        self.parts = [deque(range(*pair)) for pair in pairwise(bounds)]
        self.workers: dict[Connection, _Worker] = {}

    def take(self, part: deque[int]) -> int | None:
        """Return the next item of a part, or the last of the longest if it has none left."""
        if part:
            return part.popleft()
        longest = max(self.parts, key=len)
        return longest.pop() if longest else None

    def start(self, part: deque[int]) -> None:
        """Start one more process on the next item of a part, if there is one.

        Raises:
            OSError: There are too many processes or open files.
        """
        if not any(self.parts):
            return
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        process = FORK.Process(target=self._serve, args=(theirs, [ours, *self.workers]), daemon=True)
        # In the middle of a fork an interrupt may be lost, or leave a process that nobody kills: it has to wait.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
            item = self.take(part)
            assert item is not None
            self.workers[ours] = _Worker(process, item, part)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        with suppress(OSError):  # it died at once: the answer is that it did
            ours.send(item)

    def answers(self) -> Iterator[tuple[int, tuple[Result, ...]]]:
        """Yield the items that are done and their answers, () if the process died; after TICK_S at the latest."""
        for channel in wait([*self.workers], TICK_S):
            assert isinstance(channel, Connection)
            process, index, part = self.workers.pop(channel)
            try:
                answer: tuple[Result, ...] = (channel.recv(),)
            except (EOFError, OSError):
                answer = ()
            if not answer:
                channel.close()
                process.join()
                with suppress(OSError):
                    self.start(part)
            elif (following := self.take(part)) is not None:
                self.workers[channel] = _Worker(process, following, part)
                with suppress(OSError):  # it died meanwhile: the next answer is that it did
                    channel.send(following)
            else:
                channel.close()  # which ends the process
                process.join()
            yield index, answer

    def end(self) -> None:
        """Kill the processes that are left."""
        for worker in self.workers.values():
            worker.process.kill()
        for worker in self.workers.values():
            worker.process.join()

    def _serve(self, channel: Connection, of_others: Sequence[Connection]) -> None:
        """Answer in a forked process, until the parent closes its end or is gone."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, which gets it as well, kills this process
        for each in of_others:
            each.close()
        try:
            while True:
                channel.send(self.work(self.items[channel.recv()]))
        except (EOFError, OSError):
            return
