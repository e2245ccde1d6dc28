"""The command line that starts a job, as a person types it."""

import shlex
from collections.abc import Collection, Sequence

from ..evidence import answer_id
from ..launchers.arguments import LauncherCommand, parse_launcher
from ..launchers.recognise import parse_python
from ..launchers.rewrite import REPLACED, start_again

# How a script is started on one node, by the answer to how it is launched.
STARTS = {
    "torchrun": ["torchrun", "--standalone", "--nproc-per-node=auto"],
    "accelerate": ["accelerate", "launch"],
    "deepspeed": ["deepspeed"],
    "plain-python": ["python"],
}
NOT_BY_ONE_COMMAND = {
    answer_id("how-many-nodes", "several"),
    answer_id("how-launched", "scheduler"),
    answer_id("how-launched", "by-hand"),
}
TYPED = {"torchrun": ["torchrun"], "accelerate": ["accelerate", "launch"], "deepspeed": ["deepspeed"]}


def typed_command(words: Sequence[str]) -> str:
    """Return the command line of a job's process as a person types it, or "" if it starts no script."""
    if not words:
        return ""
    if line := parse_launcher(words):
        return _typed(line, [word for option in line.options for word in option.words])
    python = parse_python(words)
    return shlex.join(["python", *python.script_words]) if python else ""


def usual_command(target: Sequence[str], answers: Collection[str], *, spawns_ranks: bool) -> str:
    """Return the command line that starts a script on one node, "" if the answers name another way.

    ``target`` is the script with its arguments, ``answers`` are ids of answers, and ``spawns_ranks`` tells that the
    script starts its ranks itself.
    """
    if not NOT_BY_ONE_COMMAND.isdisjoint(answers):
        return ""
    usual = "plain-python" if spawns_ranks else "torchrun"
    named = next((each for each in STARTS if answer_id("how-launched", each) in answers), usual)
    return shlex.join([*STARTS[named], *target])


def command_elsewhere(line: LauncherCommand | None) -> str:
    """Return the command line of a job of one node with another rendezvous, or ""."""
    if not line or line.launcher not in REPLACED or (line.value("nnodes") or "1") not in ("1", "1:1"):
        return ""
    return _typed(line, start_again(line)[len(line.head) :])


def _typed(line: LauncherCommand, options: Sequence[str]) -> str:
    return shlex.join([*TYPED.get(line.launcher, line.head), *options, *line.script_words])
