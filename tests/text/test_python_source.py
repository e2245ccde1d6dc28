"""Parsing of Python source in several threads."""

import gc
import threading
import time
from collections.abc import Iterator

import pytest
from ddpwizard.app.text.python_source import parse_deep, parse_expression, parse_python

TEXT = "def step(batch):\n    return [item + 1 for item in batch if item]\n" * 200
PARSES = 8


class Cycle:
    """An object that only the garbage collector frees; freeing it lets another thread run."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def frequent_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("frequent_collection")
def test_threads_parse_at_the_same_time() -> None:
    """CPython 3.11.7 fails in this way with ``ast.parse`` (gh-106905); later ones do not."""
    errors: list[BaseException] = []

    def parse_all() -> None:
        try:
            for _ in range(PARSES):
                Cycle()
                parse_python(TEXT)
                parse_deep(TEXT)
                parse_expression("a + b")
        except (SystemError, RecursionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=parse_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
