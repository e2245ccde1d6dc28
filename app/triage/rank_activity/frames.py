"""Separate the frames of the user's code from those of installed packages."""

import re
from collections.abc import Sequence

from ...training_script.frame import StackFrame

NOT_THE_USERS = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?/|^<(?!string>|stdin>|ipython-input|cell)"
    r"|/torch/(_\w+\.py$|(_\w+|autograd|cuda|distributed|fx|multiprocessing|nn|optim|utils)/)|/s?bin/[^/.]+$"
)


NOT_A_PROGRAM = re.compile(
    r"/lib(64)?/python3(\.\d+)?/(?!(site|dist)-packages/)|/torch/|^<(?!string>|stdin>|ipython-input|cell)|/s?bin/[^/.]+$"
)


SPAWNED = "/multiprocessing/spawn.py"
IMPORTING = "<frozen importlib._bootstrap>"


def function_name(frame: StackFrame) -> str:
    """Return the name of a frame's function without the class name, which Python 3.11 and later include."""
    return frame.function.rpartition(".")[2]


def is_importing(stack: Sequence[StackFrame]) -> bool:
    """Return whether a module is being imported, at the start of the script or within a function."""
    return any(frame.path == IMPORTING for frame in stack)


def inner_frames(stack: Sequence[StackFrame]) -> list[StackFrame]:
    """Return the frames called from the user's innermost one (``stack`` is innermost first)."""
    inner: list[StackFrame] = []
    for frame in stack:
        if not NOT_THE_USERS.search(frame.path):
            break
        inner.append(frame)
    return inner


def user_frames(stack: Sequence[StackFrame]) -> list[StackFrame]:
    """Return the frames of the user's code, outermost first.

    If all code is installed code, these are the frames of the installed program.
    """
    frames = [frame for frame in reversed(stack) if not NOT_THE_USERS.search(frame.path)]
    if frames:
        return frames[1:] if _is_spawn_line(frames[0], stack) else frames
    installed = [frame for frame in reversed(stack) if not NOT_A_PROGRAM.search(frame.path)]
    return [frame for frame in installed if _package(frame) == _package(installed[0])]


def _is_spawn_line(frame: StackFrame, stack: Sequence[StackFrame]) -> bool:
    """Return whether this is the generated line by which multiprocessing starts a process."""
    return frame.path == "<string>" and any(inner.path.endswith(SPAWNED) for inner in stack)


def _package(frame: StackFrame) -> str:
    """Return the installed package that a frame's file belongs to."""
    return re.split(r"/(?:site|dist)-packages/", frame.path)[-1].split("/")[0]
