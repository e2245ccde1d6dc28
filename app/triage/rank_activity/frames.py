"""Stack frames: which belong to the user's code."""

import re
from collections.abc import Sequence

from ...training_script.frame import StackFrame

NOT_THE_USERS = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?/|^<(?!string>|stdin>|ipython-input|cell)"
    r"|/torch/(_\w+\.py$|(_\w+|autograd|cuda|distributed|fx|multiprocessing|nn|optim|utils)/)|/s?bin/[^/.]+$"
)


NOT_OURS_EITHER = re.compile(
    r"/lib(64)?/python3(\.\d+)?/(?!(site|dist)-packages/)|/torch/|^<(?!string>|stdin>|ipython-input|cell)|/s?bin/[^/.]+$"
)


SPAWNED = "/multiprocessing/spawn.py"


def function_name(frame: StackFrame) -> str:
    """The name of a frame's function without its class, which is shown from Python 3.11 on."""
    return frame.function.rpartition(".")[2]


def inner_frames(stack: Sequence[StackFrame]) -> list[StackFrame]:
    """The frames below the user's innermost one (``stack`` is innermost first)."""
    inner: list[StackFrame] = []
    for frame in stack:
        if not NOT_THE_USERS.search(frame.path):
            break
        inner.append(frame)
    return inner


def user_frames(stack: Sequence[StackFrame]) -> list[StackFrame]:
    """The user's own frames, outermost first; where all code is installed code, that program's own."""
    mine = [frame for frame in reversed(stack) if not NOT_THE_USERS.search(frame.path)]
    if mine:
        return mine[1:] if _is_spawner(mine[0], stack) else mine
    installed = [frame for frame in reversed(stack) if not NOT_OURS_EITHER.search(frame.path)]
    return [frame for frame in installed if _package(frame) == _package(installed[0])]


def _is_spawner(frame: StackFrame, stack: Sequence[StackFrame]) -> bool:
    """Whether this is the line by which multiprocessing starts a process: nobody wrote it."""
    return frame.path == "<string>" and any(inner.path.endswith(SPAWNED) for inner in stack)


def _package(frame: StackFrame) -> str:
    """The installed package a frame's file belongs to."""
    return re.split(r"/(?:site|dist)-packages/", frame.path)[-1].split("/")[0]
