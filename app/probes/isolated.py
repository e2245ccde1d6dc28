"""Read the machine in a child process, so that a hung file system or a huge /proc cannot block ddpwizard.

The child is ddpwizard's own interpreter under the supervisor. It imports the probe's module and answers with one
section.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

import msgspec

from ..errors import InspectionError, UserError
from ..launchers.known_variables import is_launch_variable
from ..system.subprocesses import run_process
from .context import ProbeContext

T = TypeVar("T", bound=msgspec.Struct)

VALUE_LIMIT = 8192  # characters of one variable; all of them must fit into an argument list
BOOT = (
    "import json, sys; from importlib import import_module; sys.path[:] = json.loads(sys.argv[1]); "
    "import_module(sys.argv[2]).child_main(*sys.argv[3:])"
)


class ChildRequest(msgspec.Struct, frozen=True):
    """Input of the child: the launch variables of the shell, and the pids of the job to read instead."""

    environ: dict[str, str]
    pids: list[int] = []


class ChildAnswer(msgspec.Struct, frozen=True):
    """The section as JSON, or the reason why it is missing."""

    section: msgspec.Raw = msgspec.Raw(b"null")
    problem: str = ""
    next_step: str = ""


async def run_isolated(
    read: Callable[[ChildRequest], T],
    section: type[T],
    context: ProbeContext,
    *,
    limit_s: float,
    subject: str,
    on_timeout: Callable[[], T] | None = None,
) -> T:
    """Call ``read``, a function of a module, in a child, and return its section.

    ``on_timeout`` makes the section of a ``read`` that takes too long.

    Raises:
        InspectionError: ``read`` raised it, failed, or did not answer within the limit. ``subject``: what was read.
    """
    environ = {name: value[:VALUE_LIMIT] for name, value in context.environ.items() if is_launch_variable(name)}
    request = msgspec.json.encode(ChildRequest(environ, context.pids)).decode()
    path = json.dumps([entry for entry in sys.path if entry])
    command = [sys.executable, "-I", "-c", BOOT, path, __name__, read.__module__, read.__name__, request]
    outcome = await run_process(command, limit_s=limit_s, answers=True)
    if outcome.status == "timed_out" and on_timeout:
        return on_timeout()
    if outcome.status != "ok":
        raise InspectionError(f"{subject}: reading it {outcome.why}", "try again; if it stays, see the log file")
    answer = msgspec.json.decode(outcome.answer, type=ChildAnswer)
    if answer.problem:
        raise InspectionError(answer.problem, answer.next_step)
    return msgspec.json.decode(answer.section, type=section)


def child_main(module: str, name: str, request: str) -> None:
    """Entry point of the child that ``run_isolated`` starts."""
    read = getattr(import_module(module), name)
    try:
        section = read(msgspec.json.decode(request.encode(), type=ChildRequest))
        answer = ChildAnswer(section=msgspec.Raw(msgspec.json.encode(section)))
    except UserError as error:
        answer = ChildAnswer(problem=error.message, next_step=error.next_step)
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "wb") as out:
        out.write(msgspec.json.encode(answer))
