"""py-spy: its path, and the output of ``py-spy dump --json``."""

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from ..errors import InspectionError


class SpyLocal(msgspec.Struct):
    """A local variable; ``arg`` is true for an argument of the function."""

    name: str
    repr: str | None = None
    arg: bool = False


class SpyFrame(msgspec.Struct):
    """A stack frame; ``locals`` only if they were requested."""

    name: str
    filename: str
    line: int = 0
    locals: list[SpyLocal] | None = None


class SpyThread(msgspec.Struct):
    """A thread, its frames innermost first. ``active``: it used a CPU, or could, when they were read."""

    os_thread_id: int | None
    thread_name: str | None
    frames: list[SpyFrame]
    owns_gil: bool = False
    active: bool = True


def pyspy_path() -> str:
    """Return the path of py-spy next to our interpreter, where its package was installed, or else on the PATH.

    ``pip install --user`` and ``--target`` install programs into other directories than that of the interpreter.

    Raises:
        InspectionError: py-spy is missing.
    """
    directory = str(Path(sys.executable).parent)
    for place in (directory, _installed_in(), None):
        if place != "" and (found := shutil.which("py-spy", path=place)):
            return found
    raise InspectionError(f"py-spy is missing from {directory}", "install ddpwizard again with its dependencies")


def _installed_in() -> str:
    """Return the directory of the program that the package py-spy has installed, or an empty string."""
    try:
        files = metadata.distribution("py-spy").files or []
    except metadata.PackageNotFoundError:
        return ""
    return next((str(Path(str(file.locate())).parent) for file in files if file.name == "py-spy"), "")


def parse_threads(text: str) -> list[SpyThread]:
    """Parse the threads of a document that may have warnings before and after it.

    Raises:
        ValueError: The document is missing or incomplete.
    """
    document, _ = json.JSONDecoder().raw_decode(text, text.index("["))
    return msgspec.convert(document, list[SpyThread])
