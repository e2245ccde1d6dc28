"""Ranks that are asked for when a file is read, with those that are asked for in time."""

import pytest
from helpers.review_snippets import lines

ASKS = """
def size():
    if not dist.is_initialized():
        return 1
    return dist.get_world_size()
def number():
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
def from_environment():
    return int(os.environ.get("WORLD_SIZE", 1))
BEFORE
"""
MAIN = """
def main():
    dist.init_process_group("gloo")
    t = torch.ones(1)
    mean(t)
main()
"""
MEAN = "def mean(t, n=VALUE):\n    dist.all_reduce(t)\n    t /= n"


def asked(code: str, before: str = "pass") -> str:
    return ASKS.replace("BEFORE", before) + code + MAIN


FOUND = {
    "a default": asked(MEAN.replace("VALUE", "size()")),
    "a default by name": asked("def mean(t, *, n=size()):\n    dist.all_reduce(t)\n    t /= n"),
    "a rank": asked("def mean(t, rank=number()):\n    if rank == 0:\n        print(t)"),
    "a name of the module": asked("N = size()\ndef mean(t):\n    dist.all_reduce(t)\n    t /= N"),
    "a module of functions": ASKS.replace("BEFORE", "pass") + MEAN.replace("VALUE", "size()"),
    "a computed name": asked("SHARE = 1 / size()\ndef mean(t):\n    dist.all_reduce(t)\n    t *= SHARE"),
    "a method": asked("class M:\n    def mean(self, t, n=size()):\n        t /= n\nmean = M().mean"),
}
HEALTHY = {
    "asked inside": asked("def mean(t, n=None):\n    n = n or size()\n    dist.all_reduce(t)\n    t /= n"),
    "a variable": asked(MEAN.replace("VALUE", "from_environment()")),
    "a group before": asked(MEAN.replace("VALUE", "size()"), "dist.init_process_group('gloo')"),
    "a call before": asked("N = size()\ndef mean(t):\n    t /= N", "start()"),
    "the function itself": asked("def mean(t, n=size):\n    dist.all_reduce(t)\n    t /= n()"),
    "a function inside": asked("def mean(t):\n    def scaled(n=size()):\n        return t / n\n    return scaled()"),
    "a name that nothing reads": asked("N = size()\ndef mean(t):\n    dist.all_reduce(t)"),
}

BY_THE_GROUP = {
    "a default": "def log(text, rank=dist.get_rank()):\n    print(rank, text)",
    "a name": "IS_MAIN = dist.get_rank() == 0",
    "a class": "class Config:\n    batch_size = 64 // dist.get_world_size()",
    "an object": "class Log:\n    def __init__(self):\n        self.rank = dist.get_rank()\nlog = Log()",
}
ASKED_IN_TIME = {
    "with a question": "RANK = dist.get_rank() if dist.is_initialized() else 0",
    "in a try statement": "try:\n    RANK = dist.get_rank()\nexcept ValueError:\n    RANK = 0",
    "behind the group": "dist.init_process_group('gloo')\nRANK = dist.get_rank()",
    "behind a call": "start()\nRANK = dist.get_rank()",
    "in a function": "def is_main():\n    return dist.get_rank() == 0",
    "in a method": "class Log:\n    def is_main(self):\n        return dist.get_rank() == 0\nlog = Log()",
    "an object that asks": (
        "class Log:\n    def __init__(self):\n"
        "        self.rank = dist.get_rank() if dist.is_initialized() else 0\nlog = Log()"
    ),
}


@pytest.mark.parametrize("code", BY_THE_GROUP.values(), ids=BY_THE_GROUP)
def test_calls_that_raise_errors(code: str) -> None:
    assert len(lines(code + MAIN, "DW118")) == 1


@pytest.mark.parametrize("code", ASKED_IN_TIME.values(), ids=ASKED_IN_TIME)
def test_calls_in_time(code: str) -> None:
    assert lines(code + MAIN, "DW118") == []


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(lines(code, "DW118")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW118") == []
