"""The training project of a plan: a program, its model, data, layout and checkpoints, which runs as it is.

The files are rendered from ``assets/templates``. A part of the plan that no template does is refused
(``write._program_refusals``), so the files do what the plan counted.
"""

import re
from collections.abc import Mapping, Sequence, Set
from math import ceil
from typing import NamedTuple

import msgspec

from ...hardware.machine import Machine
from ...launchers import deepspeed
from ...text.templates import render_template, template_functions
from ...text.units import gib_text
from ..batch_scaling import BatchScaling
from ..memory.model_states import model_states
from ..memory.peak import estimate_candidate
from ..model.parameter_counts import expert_width, has_gated_mlp, is_encoder_decoder
from ..model_source import SCRIPT
from ..spec import BLOCK_WEIGHTS
from ..strategies.evaluate import gpu_of
from ..timing.communication import Links
from ..timing.step_time import step_time
from ..types import Model, TrainingSetup
from . import manifest, optimizer_snippets

LEAST_SHARE = 0.05  # of a step: an estimate is no better than that


class Accumulation(NamedTuple):
    """A choice: gradients stay unreduced until the last micro-batch or not, and the reason."""

    unreduced: bool
    reason: str


def weigh_accumulation(setting: TrainingSetup, links: Links | None = None) -> Accumulation:
    """Choose for a complete setting. A choice in its strategy stays; without links only memory is known."""
    strategy = setting.layout
    if not strategy.is_fully_shard or (setting.train.grad_accum or 1) == 1:
        return Accumulation(False, "")
    kept, reduced = setting.with_layout(sync_each_batch=False), setting.with_layout(sync_each_batch=True)
    bytes_more = gib_text(max(0.0, model_states(kept).total - model_states(reduced).total))
    whole_s, kept_s = (step_time(each, gpu_of(each), links).step_s if links else 0.0 for each in (reduced, kept))
    saved_s = whole_s - kept_s
    pays = bool(whole_s) and saved_s > LEAST_SHARE * whole_s and estimate_candidate(kept).fits is True
    if strategy.sync_each_batch is False or (strategy.sync_each_batch is None and pays):
        faster = "" if strategy.sync_each_batch is False else f", about {saved_s:.2g} s of {whole_s:.2g} s saved"
        return Accumulation(True, f"Reduced with the last micro-batch only: {bytes_more} more on each GPU{faster}.")
    time = f" and save about {saved_s:.2g} s of a step of {whole_s:.2g} s" if whole_s else ""
    return Accumulation(False, f"Each micro-batch reduces its gradients: else they would take {bytes_more} more{time}.")


ACCELERATE_SCRIPT = "train_accelerate.py"
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
FROM_RESUME = ("_random_state", "_set_random_state", "_write")  # of the template of review --to resume
STEPS = 1000  # as in the templates
WARM_UP_STEPS = 100  # without a reference run
WIDTH = 120  # of a line
HIDDEN, HEAD_DIM, VOCAB = 2048, 128, 32000  # of a model that is known by its parameters only
TINY_HEADS, TINY_EXPERTS = 4, 3
CONTEXTS = {  # managers of the forward pass
    "autocast": "torch.autocast(tokens.device.type, dtype=torch.{{DTYPE}})",
    "act-offload": "torch.autograd.graph.save_on_cpu(pin_memory=True)",
}
RANK_ALPHA = 8  # PEFT's default, independent of the rank
LAYERS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}  # as in Llama and similar models


class ProjectOptions(NamedTuple):
    """Circumstances of a project in addition to its setting."""

    machine: Machine
    accumulation: Accumulation
    batch: BatchScaling | None = None
    stateful_loader: bool = False  # torchdata is installed where the project runs


def render_project(setting: TrainingSetup, options: ProjectOptions) -> dict[str, str]:
    """Render the Python files of a setting, name to content."""
    kind = template_kind(setting)
    tags = _tags(setting, kind, options)
    values = _values(setting, kind, tags, options)
    made = {SCRIPT: render_template("deepspeed_train.py.in" if kind == "deepspeed" else "train.py.in", tags, values)}
    made |= {name: render_template(f"{name}.in", tags, values) for name in ("model.py", "data.py")}
    if kind == "deepspeed":
        return made
    made["parallel.py"] = render_template(f"{kind}_setup.py.in", tags, values)
    own = {"checkpoint.py": True, "sequence.py": "context" in tags, "experts.py": "expert" in tags}
    return made | {name: render_template(f"{name}.in", tags, values) for name, used in own.items() if used}


def render_accelerate_script(setting: TrainingSetup, options: ProjectOptions) -> str:
    """Render the program for ``accelerate launch``, which uses the same model and data."""
    kind = template_kind(setting)
    tags = _tags(setting, kind, options)
    if kind == "fsdp2":  # Accelerate shards and recomputes by its file
        tags -= {"block", "full", "selective-layer", "selective-op"}
    return render_template("accelerate_train.py.in", tags, _values(setting, kind, tags, options))


def template_kind(setting: TrainingSetup) -> str:
    """Return the name of the templates for a strategy; a single GPU uses those of DDP without its wrapper."""
    strategy = setting.layout
    return "deepspeed" if strategy.kind == "deepspeed" else "fsdp2" if strategy.is_fully_shard else "ddp"


def _tags(setting: TrainingSetup, kind: str, options: ProjectOptions) -> set[str]:
    train, strategy = setting.train, setting.layout
    width, _, how = (train.dtype or "fp32").partition("-")
    mixed = width in ("bf16", "fp16") and how != "pure"
    recomputes = train.act_ckpt not in (None, "none")
    tags = {
        "project": True,
        "single": strategy.kind == "single",
        "ddp": strategy.replicates,
        "fsdp": kind == "fsdp2",
        "block": recomputes or kind == "fsdp2",
        "view": strategy.gradient_as_bucket_view,
        "offload": strategy.cpu_offload,
        "hybrid": strategy.kind == "hsdp",
        "tensor": strategy.splits["tensor"] > 1,
        "context": strategy.splits["context"] > 1,
        "expert": strategy.splits["expert"] > 1,
        "stage3": strategy.stage == 3,
        "mixed": mixed,
        "autocast": mixed and kind == "ddp",
        "pure": how == "pure",
        "scaler": mixed and width == "fp16",
        "accumulate": (train.grad_accum or 1) > 1,
        "unreduced": options.accumulation.unreduced,
        "zero-stage": kind == "deepspeed",
        "numbered": options.accumulation.unreduced or strategy.replicates,  # micro-batches
        "compile": train.compile,
        train.act_ckpt or "none": True,
        "act-offload": train.act_offload,
        "lora": train.lora is not None,
        "cast": train.dtype in ("bf16", "fp16"),  # of frozen weights, as in the plan; PEFT keeps its own in float32
        "frozen": bool(train.frozen),
        "part": train.lora is not None or bool(train.frozen),
        "chunked": train.loss == "chunked",
        "compiled": train.loss == "compiled",
        "stateful": options.stateful_loader,
        "experts": bool(setting.model.experts),
        "tied": setting.model.tied,
        "gated": has_gated_mlp(setting.model),
    }
    return {name for name, is_held in tags.items() if is_held} | optimizer_snippets.optimizer_tags(setting, kind)


def _values(setting: TrainingSetup, kind: str, tags: Set[str], options: ProjectOptions) -> Mapping[str, str]:
    train, strategy, machine = setting.train, setting.layout, options.machine
    width, _, _ = (train.dtype or "fp32").partition("-")
    share = options.batch.warm_up_share if options.batch else 0.0
    functions = template_functions("resume.py.in", set(), FROM_RESUME)
    shard = _shard_arguments(setting, tags)
    tensor, expert = strategy.splits["tensor"], strategy.splits["expert"]
    return _shape_values(setting.model) | {
        "TENSOR": str(tensor),
        "CONTEXT": str(strategy.splits["context"]),
        "EXPERT": str(expert),
        "TINY_HEADS": str(max(TINY_HEADS, 2 * tensor)),
        "TINY_KV_HEADS": str(max(TINY_HEADS // 2, tensor)),
        "TINY_EXPERTS": str(expert * ceil(TINY_HEADS / expert) if expert > 1 else TINY_EXPERTS),
        "TITLE": manifest.strategy_title(setting),
        "MADE_FOR": f" for {manifest.run_summary(setting)}",
        "NEEDS": manifest.requirements(setting, kind),
        "CONFIG": deepspeed.FILE,
        "IN_JSON": ", optimizer" if "named" in tags else "",
        "MICRO_BATCH": str(train.micro_batch or 1),
        "ACCUMULATION": str(train.grad_accum or 1),
        "SEQ_LEN": str(train.seq_len or 1),
        "WARM_UP": str(round(share * STEPS) or WARM_UP_STEPS),
        "LEARNING_RATE": manifest.learning_rate_line(setting, options.batch),
        "SYNC_REASON": options.accumulation.reason,
        "SYNC_EACH": str(not options.accumulation.unreduced),
        "AROUND": ", ".join(context for tag, context in CONTEXTS.items() if tag in tags),
        "DTYPE": DTYPES.get(width, "float32"),
        "FROZEN": f"{train.frozen or 0:.0%}",
        "FROZEN_SHARE": f"{train.frozen or 0:g}",
        "USED": ", ".join(_used_functions(kind, tags)),
        "CHECKPOINTS": _call("Checkpoints", _checkpoint_arguments(tags), "    ", len("checkpoints = ")),
        "FUNCTIONS": "\n\n\n".join(functions),
        "SHARD_BLOCK": _call("fully_shard", ["module", *shard["blocks"]], 12 * " "),
        "SHARD_EXPERTS": _call("fully_shard", ["module", *shard["experts"]], 12 * " "),
        "OF_ROOT": ", ".join(shard["root"]),
        "SHARD_SIZE": str(strategy.shard_size or machine.ranks),
        "BUILT_BYTES": gib_text(4 * setting.model.params),
        "RANK": str(train.lora.r) if train.lora else "",
        "ALPHA": f"{(train.lora and train.lora.alpha) or RANK_ALPHA:g}",
        "ADAPTED": _target_modules(setting),
        **optimizer_snippets.optimizer_values(train, kind, tags),
    }


def _used_functions(kind: str, tags: Set[str]) -> list[str]:
    """Return the names that ``train.py`` imports from ``parallel.py``."""
    makes = "make_optimizers" if "pair" in tags else "step_in_backward" if "in-backward" in tags else "make_optimizer"
    names = ["finish", makes, "save", "set_up", "shard" if kind == "fsdp2" else "wrap"]
    names += ["TENSOR"] if "tensor" in tags else []
    names += ["clip"] if "expert" in tags and "in-backward" not in tags else []
    names += ["adapt"] if "lora" in tags else []
    names += ["recompute"] if {"full", "selective-layer", "selective-op"} & tags else []
    return sorted(names)


def _checkpoint_arguments(tags: Set[str]) -> list[str]:
    """Return the arguments of ``Checkpoints``: ZeroRedundancyOptimizer's states are saved by the rank that has them."""
    several = "several" in tags
    if "zero" in tags:
        parts = ['**{f"optimizer_{n}": each.optim for n, each in enumerate(optimizers)}'] if several else []
        optimizers, parts = "[]", parts or ["optimizer=optimizer.optim"]
    else:
        optimizers, parts = "optimizers" if several else "[optimizer]", []
    parts += ["**schedulers" if several else "scheduler=scheduler"]
    parts += ["scaler=scaler"] if "scaler" in tags else []
    parts = sorted([*parts, "batches=batches"], key=lambda part: part.startswith("**"))
    return ["CHECKPOINTS", "model", optimizers, *parts]


def _shard_arguments(setting: TrainingSetup, tags: Set[str]) -> dict[str, list[str]]:
    """Return the arguments of ``fully_shard`` for blocks, for experts that ranks split, and for the root."""
    common = ["mp_policy=precision"] if "mixed" in tags else []
    common += ["offload_policy=offload"] if "offload" in tags else []
    reshard = setting.layout.reshard_after_forward
    again = [f"reshard_after_forward={reshard}"] if reshard is not None else []
    by_number = ["shard_placement_fn=placement"] if "experts" in tags and "expert" not in tags else []
    return {
        "blocks": ["mesh=mesh", *common, *again, *by_number],
        "experts": ['mesh=meshes["dp_shard"]', *common, *again, "shard_placement_fn=lambda _: Shard(1)"],
        "root": ["mesh=mesh", *common],
    }


def _call(name: str, arguments: Sequence[str], indent: str, used: int = 0) -> str:
    """Return a call in one line, or if it is too long in several. ``used``: characters before it in its line."""
    line = f"{name}({', '.join(arguments)})"
    if len(indent) + used + len(line) <= WIDTH:
        return line
    inner = f"{indent}    {', '.join(arguments)}"
    if len(inner) <= WIDTH:
        return f"{name}(\n{inner}\n{indent})"
    lines = "".join(f"{indent}    {argument},\n" for argument in arguments)
    return f"{name}(\n{lines}{indent})"


def _target_modules(setting: TrainingSetup) -> str:
    """Return the constant that names the layers of the plan."""
    lora = setting.train.lora
    names: list[str] = re.findall(r"[\w.-]+", (lora and lora.target) or "q,v")
    if names in (["all"], ["all-linear"], ["all_linear"]):
        return '"all-linear"'
    return msgspec.json.encode([LAYERS.get(name, name) for name in names]).decode().replace(",", ", ")


def _shape_values(model: Model) -> dict[str, str]:
    hidden = model.hidden or HIDDEN
    heads = model.heads or max(1, hidden // HEAD_DIM)
    values = {
        "VOCAB": model.vocab or VOCAB,
        "HIDDEN": hidden,
        "LAYERS": model.layers or max(1, round(model.params / (BLOCK_WEIGHTS * hidden**2))),
        "HEADS": heads,
        "KV_HEADS": model.kv_heads or heads,
        "HEAD_DIM": model.head_dim or hidden // heads,
        "INTERMEDIATE": expert_width(model) or model.intermediate or 4 * hidden,
        "EXPERTS": model.experts or 0,
        "EXPERTS_PER_TOKEN": model.experts_per_token or 1,
    }
    stand_in = "" if model.layers and model.hidden else " Of the plan's model only the number of parameters is known."
    if model.kind in ("encoder", "vision") or is_encoder_decoder(model):
        stand_in = f" It takes the place of the plan's {model.kind or 'encoder-decoder'}."
    return {name: str(value) for name, value in values.items()} | {"STAND_IN": stand_in}
