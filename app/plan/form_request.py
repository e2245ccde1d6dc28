"""What the planner's form asks, what stands there at first, and what its values come to."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import UserError
from ..hardware import gpu_catalog, server_catalog
from ..hardware.machine import machine_from_snapshot
from ..snapshot import Snapshot
from ..text.units import GIB
from . import form_model as models
from . import spec, summary
from .machine import detected, resolve
from .memory.activations import has_known_shape
from .model import catalog, hf_config
from .model_source import ModelSource
from .summary import FormRequest
from .timing.communication import Links
from .types import Lora, TrainingOptions, TrainingSetup

CONFIG = "config.json"
MODEL, GPU = "Llama-3.1-8B", "H100"
ANY, NO = "any", "no"
NO_LORA = ("none", NO, "0")  # as well as an empty field
LEAST_OF_WORD = 30  # letters of what somebody wrote, in a message


class FormField(NamedTuple):
    """One field of the form. ``choices``: one of these, the first at first; ``names``: words that are known, others go
    as well; ``hint``: what can stand there."""

    label: str
    value: str = ""
    choices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    hint: str = ""


GPUS = (*(key.upper() for key in gpu_catalog.GPUS), *server_catalog.SERVERS)
MODELS = tuple(model.name for model in catalog.MODELS.values())
FIELDS = {
    "model": FormField(
        "model",
        MODEL,
        names=MODELS,
        hint="a name, a path, pkg.mod:build, or 7b 32 4096 32000",
    ),
    "seq_len": FormField("sequence", str(spec.SEQ_LEN), hint="tokens of a sequence; 8k is 8,192"),
    "gpus": FormField("GPUs in all", "8", hint="over all nodes"),
    "dtype": FormField("precision", choices=("bf16-mixed", "bf16-pure", "fp16-mixed", "fp32")),
    "micro_batch": FormField("per GPU", "1", hint="sequences per GPU and micro-batch"),
    "nodes": FormField("nodes", hint="empty: as many as the GPUs need"),
    "optimizer": FormField("optimizer", choices=("adamw", "adamw-8bit", "adafactor", "muon", "lion", "sgd")),
    "grad_accum": FormField("accumulate", "1", hint="micro-batches of one optimizer step"),
    "gpu": FormField("GPU", GPU, names=GPUS, hint="a GPU such as A100-80G, or a machine: p5.48xlarge"),
}
MORE_FIELDS = {
    "act_ckpt": FormField("recompute", choices=(ANY, "none", "full", "selective-op", "selective-layer")),
    "lora": FormField("LoRA rank", hint="empty: all weights are trained; else such as 16"),
    "gpu_memory": FormField("GPU memory", hint="what is free of it, such as 80GB or 24GiB; empty: as the GPU has"),
    "attention": FormField("attention", choices=("flash", "eager")),
    "lora_on": FormField("LoRA on", choices=("q,v", "all-linear")),
    "host_memory": FormField("host memory", hint="of a host, for what is offloaded, such as 512GB; empty: as is usual"),
    "loss": FormField("loss", choices=("eager", "compiled", "chunked", "fused-linear")),
    "quant": FormField("base weights", choices=("16 bit", "nf4", "nf4-dq", "gptq-int4")),
    "inter_gbps": FormField("between nodes", hint="GB/s of bus bandwidth between nodes"),
    "compile": FormField("torch.compile", choices=(NO, "yes")),
    "step": FormField("optim. step", choices=("fused", "foreach")),
    "more": FormField("more GPUs", hint="what if there were so many more; empty: twice as many"),
}
ALL = FIELDS | MORE_FIELDS
WHAT = {
    "dtype": "what is computed in, and kept; mixed: float32 weights",
    "act_ckpt": "any: what is worth it",
    "attention": "flash keeps no attention scores; eager keeps them all",
    "loss": "how the cross-entropy is computed",
    "lora_on": "which layers have adapters",
    "quant": "of the frozen base under LoRA",
    "step": "foreach: by lists of tensors, with copies; fused: none",
    "compile": "fused operations keep fewer activations",
}


class FormMachine(NamedTuple):
    """What is known of the GPUs of a run: empty, 0 or None where it is not. ``per_node``: GPUs of one host;
    ``inter_gbps``: between nodes of a machine that is known."""

    gpu: str = ""
    per_node: int = 0
    nodes: int = 1
    gpu_memory_gib: float | None = None
    host_bytes: float | None = None
    nvme_bytes: float | None = None
    links: Links | None = None
    inter_gbps: float | None = None


def form_machine_from_snapshot(snapshot: Snapshot | None) -> FormMachine:
    """What a look at the box found: the GPUs that are to be seen and what is free on each, the host, the nodes of the
    job that the variables tell of, the links as they were measured or are usual."""
    if snapshot is None:
        return FormMachine()
    machine = machine_from_snapshot(snapshot)
    memory_gib = detected.free_gpu_memory_gib(machine)
    gpu = _short(machine.gpu_name, memory_gib)
    links = resolve.default_links(gpu, memory_gib, machine.nvlinks)
    bench = resolve.links_from_bench(snapshot.allreduce, "") if snapshot.allreduce else None
    if bench and snapshot.allreduce and snapshot.allreduce.backend in resolve.GPU_BACKENDS:
        links = links._replace(intra_gbps=bench.intra_gbps, intra_latency_s=bench.hop_s, measured=True)
    nodes = machine.nodes if machine.listed_gpus else 1
    drive_bytes = detected.free_nvme()[0] if machine.listed_gpus else None
    host_bytes = float(machine.memory_free_bytes) or None
    return FormMachine(gpu, machine.listed_gpus, nodes, memory_gib, host_bytes, drive_bytes, links)


def machine_for_gpu(gpu: str, box: FormMachine) -> FormMachine:
    """What is known of the GPUs that the form names: those of this box, of a machine that is known, of a kind."""
    if box.per_node and gpu == box.gpu:
        return box
    server = server_catalog.SERVERS.get(gpu.lower().removeprefix("standard_"))
    if server is None:
        fitting = gpu_catalog.matching_gpus(gpu)
        memory_gib = gpu_catalog.GPUS[fitting[0]].memory_gib if len(fitting) == 1 else None
        return FormMachine(gpu, 0, 1, memory_gib)
    hardware = server.hardware
    links = resolve.default_links(server.gpu, hardware.memory_gib)
    host_bytes, drive_bytes = server.host_gib * GIB, server.nvme_gb * 1e9
    gpus, own = server.gpus, server.inter_gbps
    return FormMachine(server.gpu.upper(), gpus, 1, hardware.memory_gib, host_bytes, drive_bytes, links, own)


def _short(name: str, memory_gib: float | None) -> str:
    """The short name of a GPU that is known, else its own."""
    found = gpu_catalog.find_gpu(name, memory_gib)
    return next((key.upper() for key in gpu_catalog.matching_gpus(name) if gpu_catalog.GPUS[key] == found), name)


def initial_values(box: FormMachine, directory: Path) -> dict[str, str]:
    """The value of each field before anything is typed: of the box and of the directory, else a usual one."""
    values = {name: field.value or (field.choices[0] if field.choices else "") for name, field in ALL.items()}
    if box.per_node:
        values |= {"gpus": str(box.per_node * box.nodes), "gpu": box.gpu}
        values["nodes"] = str(box.nodes) if box.nodes > 1 else ""
        values["dtype"] = "fp16-mixed" if not gpu_catalog.has_bf16(box.gpu) else values["dtype"]
    if _is_config(directory / CONFIG):
        values["model"] = CONFIG
    return values


def _is_config(path: Path) -> bool:
    try:
        return path.is_file() and bool(hf_config.read_config(path))
    except (UserError, OSError):
        return False


def placeholders(values: Mapping[str, str], box: FormMachine) -> dict[str, str]:
    """What an empty field means, as it stands there in grey."""
    there = machine_for_gpu(values.get("gpu", ""), box)
    shown = {"lora": "none"}
    if there.gpu_memory_gib:
        shown["gpu_memory"] = f"{there.gpu_memory_gib:.1f} GiB"
    try:
        gpus = parse_field_number("gpus", values["gpus"])
        nodes = _asked_nodes(values, gpus, there)
        memory_gib = _size_gib("gpu_memory", values["gpu_memory"]) or _usable_gib(values["gpu"], there)
    except UserError:
        return shown
    per_node = _per_node(gpus, nodes, there)
    host = server_catalog.assume_host(there.gpu, memory_gib, gpus // nodes or 1)
    if host_bytes := there.host_bytes or (host.bytes if host else None):
        shown["host_memory"] = f"{host_bytes / GIB:.0f} GiB"
    shown["inter_gbps"] = f"{_inter_gbps(there, memory_gib, per_node):.0f} GB/s"
    return shown | {"nodes": str(_nodes(gpus, there)), "more": str(summary.nearest_full_nodes(gpus, per_node, gpus))}


def assumption_note(values: Mapping[str, str], box: FormMachine) -> str:
    """That the GPUs of the form are nobody's, where they stand there by themselves; empty where they do not."""
    if box.per_node or (values["gpus"], values["gpu"]) != (ALL["gpus"].value, ALL["gpu"].value):
        return ""
    return f"No GPU is seen here: {values['gpus']} × {values['gpu']} are assumed."


def limit_warning(setting: TrainingSetup) -> str:
    """What the form asks of the model or of the GPU that it is not made for; empty where there is nothing."""
    positions = setting.model.max_positions
    if positions and (setting.train.seq_len or 0) > positions:
        return f"made for {positions:,} tokens"
    if (setting.train.dtype or "").startswith("bf16") and not gpu_catalog.has_bf16(setting.gpu):
        return f"{setting.gpu} has no bf16"
    return ""


def request_from_form(
    values: Mapping[str, str], box: FormMachine, built: Mapping[str, ModelSource | UserError] | None = None
) -> FormRequest:
    """What the form says. ``built``: the models that code of the user's was asked for, or why there is none.

    Raises:
        UserError: A field is not understood; the message names it.
    """
    for name, field in ALL.items():
        if field.choices and values[name] not in field.choices:
            raise UserError(f"{field.label} is {values[name][:40] or 'empty'}: not known", _one_of(field.choices))
    source, there = models.resolve_form_model(values["model"], built or {}), machine_for_gpu(values["gpu"], box)
    model = source.model
    gpus = parse_field_number("gpus", values["gpus"])
    nodes = _asked_nodes(values, gpus, there)
    if gpus % nodes:
        raise UserError(f"{ALL['gpus'].label} ({gpus}) is no multiple of nodes ({nodes})", "correct one of them")
    memory_gib, host_gib = (_size_gib(name, values[name]) for name in ("gpu_memory", "host_memory"))
    memory_gib = memory_gib or _usable_gib(values["gpu"], there)
    setting = TrainingSetup(
        model=model,
        train=_train(values, source.frozen),
        gpus=gpus,
        nodes=nodes,
        gpu=there.gpu,
        gpu_memory_gib=memory_gib,
    )
    spec.check_setting(setting)
    if setting.train.lora and not has_known_shape(model):
        raise UserError("adapters are counted from layers and hidden size", "give the model as 7b 32 4096 32000")
    links = there.links or resolve.default_links(there.gpu, memory_gib)
    per_node = _per_node(gpus, nodes, there)
    between = _rate("inter_gbps", values["inter_gbps"]) or _inter_gbps(there, memory_gib, per_node)
    return FormRequest(
        spec.fill_defaults(setting)[0],
        links._replace(inter_gbps=between),
        host_gib * GIB if host_gib else there.host_bytes,
        there.nvme_bytes,
        setting.train.act_ckpt,
        parse_field_number("more", values["more"])
        if values["more"]
        else summary.nearest_full_nodes(gpus, per_node, gpus),
        per_node,
        source,
    )


def gpu_memory_of(gpu: str, box: FormMachine) -> float:
    """What a program can use of the GPU a field names.

    Raises:
        UserError: It is not known.
    """
    return _usable_gib(gpu, machine_for_gpu(gpu, box))


def _usable_gib(gpu: str, there: FormMachine) -> float:
    if there.gpu_memory_gib:
        return there.gpu_memory_gib
    if re.fullmatch(r"[0-9.]+ *[gt]i?b?", gpu, re.IGNORECASE):
        way = f"{gpu[:LEAST_OF_WORD]} goes into GPU memory, on the other page (F2); here a name (page down: names)"
        raise UserError(f"GPU {gpu[:LEAST_OF_WORD]}: a size, no name", way)
    try:
        return gpu_catalog.get_gpu(gpu).memory_gib
    except UserError as error:
        raise UserError(error.message, f"page down: names; {error.next_step}") from error


def _train(values: Mapping[str, str], frozen: float) -> TrainingOptions:
    numbers = {name: parse_field_number(name, values[name]) for name in ("seq_len", "micro_batch", "grad_accum")}
    rank = "" if values["lora"].lower() in NO_LORA else values["lora"]
    lora = Lora(r=parse_field_number("lora", rank), target=values["lora_on"]) if rank else None
    quant = values["quant"] if values["quant"] != "16 bit" else None
    if quant and lora is None:
        raise UserError(f"base weights in {quant} cannot be trained", "give a LoRA rank, or take 16 bit")
    plain = {name: values[name] for name in ("dtype", "optimizer", "attention", "loss")} | numbers
    plain |= {"act_ckpt": None if values["act_ckpt"] == ANY else values["act_ckpt"], "quant": quant}
    plain |= {"compile": values["compile"] == "yes", "optimizer_impl": values["step"]}
    share = frozen if frozen and not lora else None
    return msgspec.structs.replace(msgspec.convert(plain, TrainingOptions), lora=lora, frozen=share)


def _nodes(gpus: int, there: FormMachine) -> int:
    return spec.nodes_for(gpus, there.per_node or spec.PER_NODE)


def _asked_nodes(values: Mapping[str, str], gpus: int, there: FormMachine) -> int:
    return parse_field_number("nodes", values["nodes"]) if values["nodes"] else _nodes(gpus, there)


def _inter_gbps(there: FormMachine, memory_gib: float | None, per_node: int) -> float:
    return there.inter_gbps or server_catalog.assume_network(there.gpu, memory_gib, per_node).gbps


def _per_node(gpus: int, nodes: int, there: FormMachine) -> int:
    """GPUs of a node that is full."""
    return max(1, gpus // nodes) if nodes > 1 else max(there.per_node or spec.PER_NODE, gpus)


def parse_field_number(name: str, value: str) -> int:
    """A whole number of a field: ``4096``, ``4,096`` or ``4k``.

    Raises:
        UserError: It is none, or too small or too large.
    """
    most = spec.MOST if name in ("gpus", "nodes", "more") else 10**7
    way, said = f"give 1 to {most:,}", f"{ALL[name].label} is {value[:20] or 'empty'}"
    try:
        count = spec.parse_whole_number(value)
    except ValueError as error:
        raise UserError(f"{said}: a whole number is needed", way) from error
    if not 0 < count <= most:
        raise UserError(f"{said}: not between 1 and {most:,}", way)
    return count


def _size_gib(name: str, value: str) -> float | None:
    try:
        return resolve.parse_gib(value or None, ALL[name].label)
    except UserError as error:
        raise UserError(f"{ALL[name].label} is {value[:LEAST_OF_WORD]}: no size", error.next_step) from error


def _rate(name: str, value: str) -> float | None:
    if not value:
        return None
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e6:
        raise UserError(f"{ALL[name].label} is {value[:20]}", "give GB/s, such as 90")
    return rate


def _one_of(words: tuple[str, ...]) -> str:
    return f"one of {', '.join(words)}"


def field_hint(name: str, width: int) -> str:
    """What can stand in a field, in a line of ``width``."""
    field = ALL[name]
    if field.choices:
        what = f"; {WHAT[name]}" if name in WHAT else ""
        words = f"{field.label}: {' · '.join(field.choices)}"
        ways = (f"{words}{what} (space)", f"{words} (space)", f"{field.label}: space takes the next word")
    else:
        said = f"{field.label}: {field.hint}"
        ways = (f"{said} (page down: names)", said) if field.names else (said,)
    return next((way for way in ways if len(way) <= width), ways[-1][:width])
