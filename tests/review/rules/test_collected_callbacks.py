"""Callbacks that only some ranks collect, and those that all have."""

import pytest
from helpers.review_snippets import lines

START = """
class Norms:
    def on_end(self, loss):
        t = torch.tensor(loss)
        dist.all_reduce(t)

class Log:
    def on_end(self, loss):
        print(loss)

class Runner:
    def __init__(self):
        self.callbacks = []
        SETUP

    def add(self, callback):
        \"\"\"Keep a callback.\"\"\"
        self.callbacks.append(callback)
        return self

    def run(self):
        for each in self.callbacks:
            each.on_end(0.5)

dist.init_process_group("gloo")
rank = dist.get_rank()
runner = Runner()
ADD
runner.run()
"""
OF_FIRST = (
    "if dist.get_rank() == 0:\n            self.callbacks.append(Log())\n            self.callbacks.append(NAME())"
)


def program(setup: str = "pass", add: str = "pass") -> str:
    return START.replace("SETUP", setup).replace("ADD", add)


FOUND = {
    "two in the constructor": program(OF_FIRST.replace("NAME", "Norms")),
    "by a method": program(add="runner.add(Log())\nif rank == 0:\n    runner.add(Norms())"),
    "by a method alone": program(add="if rank == 0:\n    runner.add(Norms())"),
}
HEALTHY = {
    "the log of one rank": program(OF_FIRST.replace("NAME", "Log"), "runner.add(Norms())"),
    "by a method on all ranks": program(add="runner.add(Norms())\nif rank == 0:\n    runner.add(Log())"),
    "one after the other": program(add="runner.add(Log()).add(Norms())"),
    "under an option": program(add="if os.environ.get('NORMS'):\n    runner.add(Norms())"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert lines(code, "DW401") == ["each.on_end(0.5)"]


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW401") == []
