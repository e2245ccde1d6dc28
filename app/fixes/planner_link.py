"""The way from a case to the planner: what the case shows of the GPUs and the script."""

import shlex

from ..text.units import gib_number
from .facts import CaseFacts
from .log_facts import gpu_memory_bytes

GIB_FORM = "{}GiB"


def planner_fields(facts: CaseFacts) -> dict[str, str]:
    """Return the fields of the planner's form that the case determines: GPUs in all and the memory of one."""
    fields: dict[str, str] = {}
    if ranks := facts.values.get("ranks"):
        fields["gpus"] = ranks
    if total_bytes := gpu_memory_bytes(facts.context.timeline):
        fields["gpu_memory"] = GIB_FORM.format(gib_number(total_bytes))
    return fields


def planner_command(facts: CaseFacts) -> str:
    """Return the command line of ``ddpwizard plan`` for the case; MODEL is to be filled in if no script is known."""
    fields = planner_fields(facts)
    script = next((word for word in facts.target if not word.startswith("-")), "")
    words = [
        "ddpwizard",
        "plan",
        *(["--script", script] if script.endswith(".py") else ["--model", "MODEL"]),
    ]
    words += ["--gpus", fields["gpus"]] if "gpus" in fields else []
    words += ["--gpu-memory", fields["gpu_memory"]] if "gpu_memory" in fields else []
    return shlex.join(words)
