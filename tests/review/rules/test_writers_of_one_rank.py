"""DW269: writers of every rank in classes that write with them on one rank only."""

import pytest
from helpers.review_snippets import lines

LOGGER = """
from torch.utils.tensorboard import SummaryWriter
from library.distributed import {decorator}, is_main_process

class Logger:
    def __init__(self, folder):
        {made}

    @{decorator}
    def log_stats(self, stats, step):
        for name, value in stats.items():
            self.writer.add_scalar(name, value, step)
        self.log_rest(stats)

    def log_rest(self, stats):
        self.writer.add_text("rest", str(stats))

    {method}
"""
MADE = "self.writer = SummaryWriter(folder)"
GUARDED = "self.writer = SummaryWriter(folder) if is_main_process() else None"
FIGURE = "def log_figure(self, name, figure):\n        self.writer.add_figure(name, figure)"
DECORATORS = ["main_process_only", "rank_zero_only", "on_main_process", "master_only"]
GUARDED_METHODS = {
    "decorated": "@main_process_only\n    " + FIGURE,
    "under a condition": "def log_figure(self, name, figure):\n        if is_main_process():\n"
    "            self.writer.add_figure(name, figure)",
    "behind a return": "def log_figure(self, name, figure):\n        if not is_main_process():\n            return\n"
    "        self.writer.add_figure(name, figure)",
    "without the writer": "def reset(self):\n        self.step = 0",
}


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_writer_that_every_rank_makes_is_found(decorator: str) -> None:
    code = LOGGER.format(decorator=decorator, made=MADE, method=GUARDED_METHODS["without the writer"])
    assert lines(code, "DW269") == [MADE]


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_method_that_writes_on_every_rank_is_found(decorator: str) -> None:
    code = LOGGER.format(decorator=decorator, made=GUARDED, method=FIGURE)
    assert lines(code, "DW269") == ["self.writer.add_figure(name, figure)"]


@pytest.mark.parametrize("method", GUARDED_METHODS.values(), ids=GUARDED_METHODS.keys())
def test_methods_that_one_rank_runs_are_not(method: str) -> None:
    assert lines(LOGGER.format(decorator="main_process_only", made=GUARDED, method=method), "DW269") == []


def test_a_class_without_such_a_method_is_not() -> None:
    code = LOGGER.format(decorator="main_process_only", made=MADE, method=FIGURE)
    assert lines(code.replace("    @main_process_only\n", ""), "DW269") == []


def test_a_constructor_of_one_rank_is_not() -> None:
    method = GUARDED_METHODS["without the writer"]
    code = LOGGER.format(decorator="main_process_only", made=MADE, method=method)
    assert lines(code.replace("    def __init__", "    @main_process_only\n    def __init__"), "DW269") == []
