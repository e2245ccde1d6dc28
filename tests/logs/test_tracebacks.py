"""Tracebacks are reassembled, however the lines of the ranks are interleaved."""

import json
import random
from collections.abc import Callable, Iterable

import pytest
from ddpwizard.app.logs.lines import PrefixStyle, split_line
from ddpwizard.app.logs.tracebacks import TracebackAssembler
from ddpwizard.app.logs.types import UNKNOWN_WRITER, Traceback, TracebackFrame
from hypothesis import given, settings
from hypothesis import strategies as st

SITE = "/opt/conda/lib/python3.11/site-packages"
PLAIN = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 30, in <module>
    main()
  File "/home/me/train.py", line 21, in main
    model(batch)
    ^^^^^^^^^^^^
  File "{SITE}/torch/nn/modules/module.py", line 1778, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
ValueError: bad batch 7
"""
CHAINED = f"""\
Traceback (most recent call last):
  File "/home/me/data.py", line 5, in load
    return table[key]
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{SITE}/torch/utils/data/dataloader.py", line 7, in __next__
    raise
RuntimeError: cannot load
"""
WORKER = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 14, in <module>
    for batch in loader:
  File "{SITE}/torch/_utils.py", line 794, in reraise
    raise exception
RuntimeError: Caught OSError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{SITE}/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 9, in __getitem__
    open(path)
OSError: [Errno 28] No space left on device
"""
BOXED = """\
╭───────────── Traceback (most recent call last) ─────────────╮
│ /home/me/train.py:88 in main                                │
│ /opt/conda/lib/python3.11/site-packages/typer/main.py:2 in x │
╰──────────────────────────────────────────────────────────────╯
ImportError: no flash_attn
"""
LIBRARY_ONLY = f"""\
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "{SITE}/torch/distributed/run.py", line 879, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
SYNTAX = """\
  File "/home/me/train.py", line 12
    if rank == 0
                ^
SyntaxError: expected ':'
"""


def found(lines: Iterable[str]) -> list[Traceback]:
    assembler, style, whole = TracebackAssembler(), PrefixStyle(), []
    for number, raw in enumerate(lines, 1):
        for line in split_line(raw, style, UNKNOWN_WRITER):
            whole += assembler.feed(line, number)
    return whole + list(assembler.end())


@pytest.mark.parametrize(
    ("text", "exception", "message", "frame", "outer"),
    [
        (PLAIN, "ValueError", "bad batch 7", TracebackFrame("/home/me/train.py", 21, "main", "model(batch)"), ""),
        (
            CHAINED,
            "KeyError",
            "'x'",
            TracebackFrame("/home/me/data.py", 5, "load", "return table[key]"),
            "RuntimeError",
        ),
        (
            WORKER,
            "OSError",
            "[Errno 28] No space left on device",
            TracebackFrame("/home/me/data.py", 9, "__getitem__", "open(path)"),
            "",
        ),
        (BOXED, "ImportError", "no flash_attn", TracebackFrame("/home/me/train.py", 88, "main"), ""),
        (
            SYNTAX,
            "SyntaxError",
            "expected ':'",
            TracebackFrame("/home/me/train.py", 12, "<module>", "if rank == 0"),
            "",
        ),
        (
            LIBRARY_ONLY,
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
            "",
            TracebackFrame(f"{SITE}/torch/distributed/run.py", 879, "main", "run(args)"),
            "",
        ),
    ],
)
def test_traceback_fields(text: str, exception: str, message: str, frame: TracebackFrame, outer: str):
    (traceback,) = found(text.splitlines())
    assert (traceback.exception, traceback.message, traceback.frame) == (exception, message, frame)
    assert traceback.outer == outer


def test_two_tracebacks_of_the_same_writer():
    two = found((PLAIN + "step 1\n" + PLAIN.replace("7", "8")).splitlines())
    assert [t.message for t in two] == ["bad batch 7", "bad batch 8"]
    assert len(found((PLAIN * 3).splitlines())) == 3


def test_collective_in_which_the_exception_was_raised():
    text = PLAIN.replace(f"{SITE}/torch/nn/modules/module.py", f"{SITE}/torch/distributed/distributed_c10d.py")
    (traceback,) = found(text.replace("_wrapped_call_impl", "barrier").splitlines())
    assert traceback.collective == "barrier"


def test_unrelated_lines_within_a_traceback():
    lines = PLAIN.splitlines()
    (traceback,) = found([*lines[:4], "W1120 13:08:28.9 1 run.py:1] Sending", "10%|#  | 3/30", *lines[4:]])
    assert traceback.message == "bad batch 7"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 16), st.randoms(use_true_random=False), st.sampled_from([PLAIN, CHAINED, WORKER]))
def test_interleaved_tracebacks_are_separated(ranks: int, random_: random.Random, text: str):
    """Each traceback equals the one found without the other ranks."""
    left = {
        rank: [f"[rank{rank}]: {line}" for line in text.replace("7", str(rank)).splitlines()] for rank in range(ranks)
    }
    mixed: list[str] = []
    while left:
        rank = random_.choice(sorted(left))
        mixed.append(left[rank].pop(0))
        if not left[rank]:
            del left[rank]
    alone = {rank: found(text.replace("7", str(rank)).splitlines())[0] for rank in range(ranks)}
    whole = {t.writer.rank: t for t in found(mixed)}
    assert set(whole) == set(alone)
    for rank, traceback in whole.items():
        assert rank is not None
        assert (traceback.exception, traceback.message) == (alone[rank].exception, alone[rank].message)
        assert traceback.frame == alone[rank].frame


@given(st.text(max_size=600))
def test_any_text_after_a_traceback_header_is_accepted(text: str):
    found(("Traceback (most recent call last):\n" + text).split("\n"))


@pytest.mark.parametrize("quoted", [repr, json.dumps], ids=["repr", "json"])
@pytest.mark.parametrize(
    ("text", "exception", "place"),
    [(PLAIN, "ValueError", ("/home/me/train.py", 21)), (CHAINED, "KeyError", ("/home/me/data.py", 5))],
)
def test_traceback_in_one_line(quoted: Callable[[str], str], text: str, exception: str, place: tuple[str, int]) -> None:
    """As a logger writes it: the message ends with the string that holds it."""
    line = f'{{"level": "error", "error": {quoted(text.strip())}, "step": 3}}'
    (traceback,) = found([line, "step 4"])
    where = traceback.frame
    assert where and (traceback.exception, (where.file, where.line)) == (exception, place)
    assert traceback.message in ("bad batch 7", "'x'")
