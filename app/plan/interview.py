"""Five questions for people who do not know the words of distributed training, each answer with its figure.

Which model, which GPUs, what is trained, how long the texts are, which strategy. The first four fill fields of the
planner's form, so the plan is the one that the form makes; the last is a choice among its rows.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import UserError
from ..hardware.server_catalog import find_server
from ..text.units import GIB, gib_number, gib_text
from . import form_fields, plan_answer, summary
from .strategies.ranking import shortage_text
from .strategies.table import worth_choosing
from .types import PlanRow

Values = Mapping[str, str]
QUESTIONS = {
    "model": "1. Which model? A name, the path of a config.json, or numbers such as 7b 32 4096 32000",
    "gpus": "2. On which GPUs? Such as 8 H100, or a machine such as p5.48xlarge",
    "trained": "3. What should be trained?",
    "length": "4. How long are the texts?",
    "strategy": "5. Which strategy?",
}
ADAPTERS = {"lora": "16", "lora_target": "all-linear"}
ANSWERS = {
    "trained": {
        "all weights": {"lora": "", "quant": form_fields.SIXTEEN_BIT},
        "small adapters on fixed weights (LoRA)": ADAPTERS | {"quant": form_fields.SIXTEEN_BIT},
        "small adapters on fixed weights in 4 bit (QLoRA)": ADAPTERS | {"quant": "nf4"},
    },
    "length": {
        "a question and its answer, 512 tokens": {"seq_len": "512"},
        "a page or two, 2,048 tokens": {"seq_len": "2048"},
        "a report, 8,192 tokens": {"seq_len": "8192"},
        "a book chapter, 32,768 tokens": {"seq_len": "32768"},
    },
}
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
    """Return the fields for an answer such as ``8 H100``, ``8``, ``4090`` or ``p5.48xlarge``."""
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
    sizes = values["model"].split()
    is_sizes = len(sizes) > 1 and all(word[:1].isdigit() for word in sizes)
    names = ("params", "layers", "hidden", "vocab")
    model = dict(zip(names, sizes, strict=False)) if is_sizes else {"model": values["model"]}
    given = model | {
        "gpus": values["gpus"],
        "nodes": values["nodes"],
        "gpu": values["gpu"],
        "seq-len": values["seq_len"],
        "lora": values["lora"],
        "lora-target": values["lora_target"] if values["lora"] else "",
        "quant": values["quant"] if values["quant"] != form_fields.SIXTEEN_BIT else "",
        "strategy": row.candidate.strategy,
        "write": directory,
    }
    if find_server(given["gpu"]):
        given["machine"] = given.pop("gpu")
    words = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    return shlex.join(["ddpwizard", "plan", *words])


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
