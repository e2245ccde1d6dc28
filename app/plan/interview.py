"""Five questions for people who do not know the words of distributed training, each answer with its figure.

Which model, which GPUs, what is trained, how long the texts are, which strategy. The first four fill fields of the
planner's form, so the plan is the one that the form makes; the last is a choice among its rows.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UserError
from ..hardware.server_catalog import find_server
from ..text.units import GIB, gib_number, gib_text
from . import form_fields, plan_answer, summary
from .request import option_name
from .strategies.ranking import shortage_text
from .strategies.table import worth_choosing
from .tables import read_table
from .types import PlanRow

Values = Mapping[str, str]
INTERVIEW = read_table("interview.jsonc", dict[str, Any])
QUESTIONS: dict[str, str] = INTERVIEW["questions"]
ANSWERS: dict[str, dict[str, dict[str, str]]] = INTERVIEW["answers"]  # fields of the form by the text of an answer
USUAL_LENGTH = 1  # the second of them
GPUS = re.compile(r"(?:(\d{1,4})(?:\s*[x×*]\s*|\s+))?(\S.*)|(\d{1,3})")


class Choice(NamedTuple):
    """An answer that can be chosen: its text, its figure, and the fields that it sets."""

    label: str
    figure: str
    fields: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.label}: {self.figure}"


def parse_gpus(text: str, values: Values, machine: form_fields.FormMachine) -> dict[str, str]:
    """Return the fields for an answer such as ``8 H100``, ``8``, ``4090`` or ``p5.48xlarge``.

    Raises:
        UserError: It names no GPU that is known.
    """
    plain = text.strip()
    if plain.isdecimal() and len(plain) <= 3:
        return {"gpus": str(form_fields.parse_field_number("gpus", plain)), "nodes": ""}
    found = GPUS.fullmatch(plain)
    count, name = (found[1], found[2].strip()) if found and found[2] else (None, plain)
    form_fields.gpu_values(name, machine)
    server = find_server(name)
    gpus = str(form_fields.parse_field_number("gpus", count)) if count else str(server.gpus if server else 1)
    return {"gpus": gpus, "gpu": name, "nodes": values["nodes"] if gpus == values["gpus"] else ""}


def gpus_text(values: Values) -> str:
    """Return the answer that the fields already have: ``8 H100``."""
    return f"{values['gpus']} {values['gpu']}"


def answers(question: str, values: Values, machine: form_fields.FormMachine) -> list[Choice]:
    """Return the answers to a question, with the best strategy for each, its memory and its speed on the given GPUs."""
    return [_answer(label, fields, values, machine) for label, fields in ANSWERS[question].items()]


def strategy_answers(rows: Sequence[PlanRow]) -> list[tuple[int, str]]:
    """Return the strategies worth choosing, by their place in the rows: the best, and why not each of the others."""
    candidates = [row.candidate for row in rows]
    return [
        (candidates.index(each), f"{each.full_name}: {each.why_not or _figure(rows[candidates.index(each)])}")
        for each in worth_choosing(candidates)
    ]


def plan_command(values: Values, row: PlanRow, directory: str) -> str:
    """Return the command that makes the same plan and writes the files of a row."""
    gpu = values["gpu"]
    given = form_fields.given_values(values, form_fields.FormMachine(gpus=1, gpu=gpu))  # which is not checked again
    given |= {"machine" if find_server(gpu) else "gpu": gpu, "strategy": row.candidate.strategy, "write": directory}
    words = ["ddpwizard", "plan"]
    for name, value in given.items():
        if value and name != "more_gpus":
            text = f"{value:.12g}" if isinstance(value, float) else str(value)
            words += [option_name(name)] if value is True else [option_name(name), text]
    return shlex.join(words)


def _answer(label: str, fields: Values, values: Values, machine: form_fields.FormMachine) -> Choice:
    try:
        request = form_fields.request_from_form({**values, **fields}, machine)
        best = plan_answer.make_answer(request).rows[0]
        return Choice(label, f"{best.candidate.full_name}: {_figure(best)}", fields)
    except UserError as error:
        return Choice(label, error.message, fields)


def _figure(row: PlanRow) -> str:
    found, memory_gib = row.candidate, row.setting.gpu_memory_gib
    used = gib_number(found.device_used_bytes_per_gpu)
    memory = f"{used} of {gib_text(memory_gib * GIB, 0)} on each GPU" if memory_gib else f"{used} GiB on each GPU"
    if found.fits is False:
        return f"does not fit, {shortage_text(row)} ({memory})"
    just = "only just fits, " if found.fits == "tight" else "" if found.in_practice else "too slow in practice, "
    return f"{just}{memory}, {summary.speed_text(row)}"
