"""py-spy: where it is, and what it writes of a process (``py-spy dump --json``)."""

import json
import shutil
import sys
from pathlib import Path

import msgspec

from ..errors import InspectionError


class SpyLocal(msgspec.Struct):
    """A local variable; ``arg``: it is an argument of its function."""

    name: str
    repr: str | None = None
    arg: bool = False


class SpyFrame(msgspec.Struct):
    """A frame; ``locals`` only where they were asked for."""

    name: str
    filename: str
    line: int = 0
    locals: list[SpyLocal] | None = None


class SpyThread(msgspec.Struct):
    """A thread, its frames innermost first."""

    os_thread_id: int | None
    thread_name: str | None
    frames: list[SpyFrame]
    owns_gil: bool = False


def pyspy_path() -> str:
    """The py-spy of our own environment, else of the PATH.

    Raises:
        CouldNotLook: There is none.
    """
    beside = str(Path(sys.executable).parent)
    if found := shutil.which("py-spy", path=beside) or shutil.which("py-spy"):
        return found
    raise InspectionError(f"py-spy is missing from {beside}", "install ddpwizard again with its dependencies")


def parse_threads(text: str) -> list[SpyThread]:
    """The threads of a document; warnings may stand before and after it.

    Raises:
        ValueError: There is none, or it is torn.
    """
    document, _ = json.JSONDecoder().raw_decode(text, text.index("["))
    return msgspec.convert(document, list[SpyThread])
