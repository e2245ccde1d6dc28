"""The fields of the planner's form, and the reader that turns their texts into a plan request.

A field that is empty is not given: ``plan.request`` decides on its value, which the form shows in grey
(``placeholders``).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from ..hardware import gpu_catalog, server_catalog
from ..hardware.machine import machine_from_snapshot
from ..snapshot import Snapshot
from ..text.units import GIB, gbps_text, gib_text
from . import machine as machines
from . import model_source, request, spec
from .model import catalog, from_code, hf_config
from .model.from_code import Arguments
from .model_source import ModelSource
from .request import PlanRequest
from .tables import read_table, words_of

CONFIG = "config.json"
ANY, NO, SIXTEEN_BIT = "any", "no", "16 bit"
NO_LORA = ("none", NO, "0")  # mean the same as an empty field
MOST_LETTERS = 30  # of a value in a message


class FormField(msgspec.Struct, frozen=True):
    """One field of the form: its first text, the only words that it takes, and words for its hint."""

    label: str
    value: str = ""
    choices: tuple[str, ...] = ()
    hint: str = ""
    meaning: str = ""


PAGES = {
    page: {
        name: msgspec.structs.replace(field, choices=words_of(name, field.choices)) for name, field in fields.items()
    }
    for page, fields in read_table("form.jsonc", dict[str, dict[str, FormField]]).items()
}
ALL = PAGES["usual"] | PAGES["more-fields"]
NAMES = {  # suggested in a field
    "model": tuple(model.name for model in catalog.MODELS.values()),
    "gpu": (*gpu_catalog.GPU_NAMES, *server_catalog.SERVERS),
}


class FormMachine(NamedTuple):
    """This machine as the form offers it; ``gpus`` is 0 if none was found, ``nodes`` are those of its job."""

    snapshot: Snapshot | None = None
    gpus: int = 0
    gpu: str = ""
    nodes: int = 1
    nvme_bytes: float | None = None


def form_machine(snapshot: Snapshot | None) -> FormMachine:
    """Return the machine of a snapshot."""
    if snapshot is None:
        return FormMachine()
    found = machine_from_snapshot(snapshot)
    if not found.listed_gpus:
        return FormMachine(snapshot)
    gpu = gpu_catalog.find_gpu(found.gpu_name, machines.free_gpu_memory_gib(found))
    keys = [key for key in gpu_catalog.matching_gpus(found.gpu_name) if gpu_catalog.GPUS[key] == gpu]
    name = keys[0].upper() if keys else found.gpu_name
    return FormMachine(snapshot, found.listed_gpus, name, found.nodes, nvme_bytes=machines.free_nvme()[0])


def initial_values(machine: FormMachine, directory: Path) -> dict[str, str]:
    """Return the first text of each field: that of the machine or the directory, else a default."""
    values = {name: field.value for name, field in ALL.items()}
    if machine.gpus:
        values |= {"gpus": str(machine.gpus * machine.nodes), "gpu": machine.gpu}
        values["nodes"] = str(machine.nodes) if machine.nodes > 1 else ""
    if _is_config(directory / CONFIG):
        values["model"] = CONFIG
    return values


def _is_config(path: Path) -> bool:
    try:
        return path.is_file() and bool(hf_config.read_config(path))
    except (UserError, OSError):
        return False


def assumption_note(values: Mapping[str, str], machine: FormMachine) -> str:
    """Return a note if the GPUs of the form are a default because none was found, else ""."""
    gpus, gpu = ALL["gpus"].value, ALL["gpu"].value
    if machine.gpus or (values["gpus"], values["gpu"]) != (gpus, gpu):
        return ""
    return f"No GPU found on this machine: {gpus} × {gpu} assumed."


def placeholders(found: PlanRequest) -> dict[str, str]:
    """Return the default of each empty field, as text."""
    setting, train = found.setting, found.setting.train
    host = server_catalog.assume_host(setting.gpu, setting.gpu_memory_gib, setting.gpus // setting.nodes)
    host_bytes = found.host_bytes or (host.bytes if host else None)
    shown = {name: str(getattr(train, name) or "") for name in ALL if hasattr(train, name)}
    return shown | {
        "nodes": str(setting.nodes),
        "act_ckpt": found.recompute or ANY,
        "lora": str(train.lora.r) if train.lora else "none",
        "lora_target": (train.lora and train.lora.target) or "q,v",
        "quant": train.quant or SIXTEEN_BIT,
        "compile": "yes" if train.compile else NO,
        "gpu_memory": gib_text(setting.gpu_memory_gib * GIB) if setting.gpu_memory_gib else "",
        "host_memory": gib_text(host_bytes, 0) if host_bytes else "",
        "inter_gbps": gbps_text(found.scaled_links.inter_gbps),
        "more_gpus": str(found.more_gpus),
    }


def request_from_form(
    values: Mapping[str, str], machine: FormMachine, built: Mapping[str, ModelSource | UserError] | None = None
) -> PlanRequest:
    """Read a request from the form. ``built`` has the models that the user's code built, or why it did not.

    Raises:
        UserError: A field cannot be read; the message names it.
    """

    def build(factory: str, directory: Path, arguments: Arguments, where: str) -> ModelSource:
        return _built_model(factory, built or {})

    found = request.resolve_request(
        given_values(values, machine), build, request.already_named, lambda name: ALL[name].label
    )
    return found._replace(nvme_bytes=machine.nvme_bytes) if _is_this_machine(values["gpu"], machine) else found


def given_values(values: Mapping[str, str], machine: FormMachine) -> dict[str, Any]:
    """Return the values that the fields give, by the names of ``plan.request``.

    Raises:
        UserError: A field cannot be read; the message names it.
    """
    for name, field in ALL.items():
        if field.choices and values[name] not in ("", *field.choices):
            shown = f"{field.label} is {values[name][:MOST_LETTERS]}: not known"
            raise UserError(shown, f"one of {', '.join(field.choices)}")
    chosen = {name: value for name, value in values.items() if value and ALL[name].choices}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value not in (ANY, NO, SIXTEEN_BIT)}
    given["compile"] = "compile" in given
    given |= _model(values["model"]) | gpu_values(values["gpu"], machine)
    given["gpus"] = parse_field_number("gpus", values["gpus"])
    numbers = ("seq_len", "micro_batch", "nodes", "grad_accum", "lora", "more_gpus")
    others = {"gpu_memory": _size, "host_memory": _size, "inter_gbps": _rate}
    for name, parse in (dict.fromkeys(numbers, parse_field_number) | others).items():
        if values[name] and not (name == "lora" and values[name].lower() in NO_LORA):
            given[name] = parse(name, values[name])
    if "lora" not in given:
        given.pop("lora_target", None)
    return given


def check_model(value: str) -> str:
    """Return the text of the field ``model`` if it names a model.

    Raises:
        UserError: It does not.
    """
    model_source.resolve_model(_model(value), lambda factory, *_: _built_model(factory, {}))
    return value


def _model(value: str) -> dict[str, Any]:
    """Return the given values of the field ``model``: a name or a path, or sizes for four numbers."""
    if value.endswith(".py"):
        way = (
            f"ddpwizard plan --script {value[:MOST_LETTERS]} reads it; or name what builds the model: train:build_model"
        )
        raise UserError("the form reads no scripts", way)
    try:
        sizes = [spec.parse_count(word) for word in value.split()]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 4 or not all(0 < size < 1e14 for size in sizes) or Path(value).exists():
        return {"model": value}
    layers, hidden, vocab = (int(size) or None for size in (*sizes[1:], 0, 0, 0)[:3])
    return {"params": sizes[0], "layers": layers, "hidden": hidden, "vocab": vocab}


def _built_model(factory: str, built: Mapping[str, ModelSource | UserError]) -> ModelSource:
    """Return the model that a function of the user's own built when Enter was pressed."""
    from_code.check_factory(factory)
    found = built.get(factory) or UserError(
        f"{factory[:MOST_LETTERS]} is a Python function and has not been imported yet",
        "press Enter in that field to import it and build the model",
    )
    if isinstance(found, UserError):
        raise found
    return found


def _is_this_machine(gpu: str, machine: FormMachine) -> bool:
    return bool(machine.gpus) and gpu == machine.gpu


def gpu_values(value: str, machine: FormMachine) -> dict[str, Any]:
    """Return the given values of the field ``gpu``: this machine, a machine by name, or a kind of GPU.

    Raises:
        UserError: It is none of them.
    """
    if _is_this_machine(value, machine):
        return {"snapshot": machine.snapshot}
    if server_catalog.find_server(value):
        return {"machine": value}
    if re.fullmatch(r"[0-9.]+ *[gt]i?b?", value, re.IGNORECASE):
        way = f"{value[:MOST_LETTERS]} goes into GPU memory, on the other page (F2); here a name (page down: names)"
        raise UserError(f"GPU {value[:MOST_LETTERS]}: a size, no name", way)
    try:
        gpu_catalog.get_gpu(value)
    except UserError as error:
        raise UserError(error.message, f"page down: names; {error.next_step}") from error
    return {"gpu": value}


def parse_field_number(name: str, value: str) -> int:
    """Parse a whole number of a field: ``4096``, ``4,096`` or ``4k``.

    Raises:
        UserError: It is none, or too small or too large.
    """
    most = spec.MOST if name in ("gpus", "nodes", "more_gpus") else spec.MOST_COUNTED
    way, problem = f"give 1 to {most:,}", f"{ALL[name].label} is {value[:20] or 'empty'}"
    try:
        count = spec.parse_whole_number(value)
    except ValueError as error:
        raise UserError(f"{problem}: a whole number is needed", way) from error
    if not 0 < count <= most:
        raise UserError(f"{problem}: not between 1 and {most:,}", way)
    return count


def _size(name: str, value: str) -> str:
    try:
        machines.parse_gib(value, ALL[name].label)
    except UserError as error:
        raise UserError(f"{ALL[name].label} is {value[:MOST_LETTERS]}: no size", error.next_step) from error
    return value


def _rate(name: str, value: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e6:
        raise UserError(f"{ALL[name].label} is {value[:20]}", "give GB/s, such as 90")
    return rate


def field_hint(name: str, width: int) -> str:
    """Return a line of at most ``width`` cells on what can be entered in a field."""
    field = ALL[name]
    if field.choices:
        meaning = f"; {field.meaning}" if field.meaning else ""
        words = f"{field.label}: {' · '.join(field.choices)}"
        ways = (f"{words}{meaning} (space)", f"{words} (space)", f"{field.label}: space takes the next word")
    else:
        hint = f"{field.label}: {field.hint}"
        ways = (f"{hint} (page down: names)", hint) if name in NAMES else (hint,)
    return next((way for way in ways if len(way) <= width), ways[-1][:width])
