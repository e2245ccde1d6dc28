"""Setup scripts of a plan: whole scripts for its strategy, which run unchanged and do what the plan assumes.

They are rendered from ``assets/templates/*_setup.py.in``. What no template does is listed in the docstring of the
script (``header.manual_steps``).
"""

from ...hardware.machine import Machine
from ...launchers import deepspeed, torchrun
from ...text.templates import render_template
from ...text.units import gib_text
from ..batch_scaling import BatchScaling
from ..types import TrainingSetup
from . import header, lora_snippets, optimizer_snippets
from .checkpointing_snippets import RECOMPUTE

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def render_fsdp2(setting: TrainingSetup, machine: Machine, batch: BatchScaling | None = None) -> str:
    """Render ``fsdp2_setup.py`` with the plan's mesh, resharding, offload, precision, checkpointing and optimizer."""
    strategy, tags = setting.layout, _tags(setting, "fsdp2")
    reshard = strategy.reshard_after_forward
    common = ["mesh=mesh"]
    if "mixed" in tags:
        common.append("mp_policy=precision")
    if "offload" in tags:
        common.append("offload_policy=offload")
    of_blocks = [*common, *([f"reshard_after_forward={reshard}"] if reshard is not None else [])]
    values = {
        "OF_BLOCKS": ", ".join(of_blocks),
        "OF_ROOT": ", ".join(common),
        "SHARD_SIZE": str(strategy.shard_size or machine.ranks),
        "BUILT_BYTES": f"{machine.ranks} × {gib_text(4 * setting.model.params)}",
    }
    return _render("fsdp2", setting, machine, tags, values, batch)


def render_ddp(setting: TrainingSetup, machine: Machine, batch: BatchScaling | None = None) -> str:
    """Render ``ddp_setup.py`` with the plan's precision, buckets, checkpointing, accumulation and optimizer."""
    return _render("ddp", setting, machine, _tags(setting, "ddp"), {}, batch)


def render_deepspeed(setting: TrainingSetup, machine: Machine, batch: BatchScaling | None = None) -> str:
    """Render ``deepspeed_setup.py``: a script contexts ``deepspeed.initialize``, which reads the JSON next to it."""
    return _render("deepspeed", setting, machine, _tags(setting, "deepspeed"), {"CONFIG": deepspeed.FILE}, batch)


def _tags(setting: TrainingSetup, kind: str) -> set[str]:
    train, strategy = setting.train, setting.layout
    width, _, how = (train.dtype or "fp32").partition("-")
    mixed = width in ("bf16", "fp16") and how != "pure"
    tags = {
        "view": strategy.gradient_as_bucket_view,
        "offload": strategy.cpu_offload,
        "hybrid": strategy.kind == "hsdp",
        "stage3": strategy.stage == 3,
        "mixed": mixed,
        "autocast": mixed and kind == "ddp",
        "pure": how == "pure",
        "scaler": mixed and width == "fp16",
        "accumulate": (train.grad_accum or 1) > 1,
        "compile": train.compile,
        train.act_ckpt or "none": True,
        "act-offload": train.act_offload,
        "lora": train.lora is not None,
    }
    return {name for name, held in tags.items() if held} | optimizer_snippets.optimizer_tags(setting, kind)


def _render(
    kind: str,
    setting: TrainingSetup,
    machine: Machine,
    tags: set[str],
    values: dict[str, str],
    batch: BatchScaling | None,
) -> str:
    train = setting.train
    name = f"{kind}_setup.py"
    width, _, _ = (train.dtype or "fp32").partition("-")
    values = values | {
        "TITLE": header.strategy_title(setting),
        "MADE_FOR": f" for {header.run_summary(setting)}",
        "LEFT": header.manual_steps(setting, kind),
        "NEEDS": header.requirements(setting, kind),
        "IN_JSON": ", optimizer" if "named" in tags else "",
        "START": deepspeed.launch_line(machine, [name])
        if kind == "deepspeed"
        else torchrun.torchrun_line(machine, [name]),
        "MICRO_BATCH": str(train.micro_batch or 1),
        "ACCUMULATION": str(train.grad_accum or 1),
        "LEARNING_RATE": header.learning_rate_line(setting, batch),
        "AROUND": _forward_contexts(tags),
        "DTYPE": DTYPES.get(width, "float32"),
        "FLOAT": "" if width == "fp32" else ".float()",
        "RECOMPUTE": RECOMPUTE.get(train.act_ckpt or "", ""),
        "ADAPT": lora_snippets.render_adapter_function(setting),
        "ADAPTED": lora_snippets.render_target_modules(setting),
        "OPTIMIZER": optimizer_snippets.optimizer_lines(train, kind, tags),
        "OPTIMIZER_CLASS": optimizer_snippets.optimizer_classes(tags),
        "OPTIMIZER_DOC": optimizer_snippets.optimizer_docstring(train, kind, tags),
        "OPTIMIZER_TYPE": optimizer_snippets.optimizer_return_type(tags),
    }
    return render_template(f"{name}.in", tags, values)


def _forward_contexts(tags: set[str]) -> str:
    """Return the context managers of the forward pass."""
    contexts = ["torch.autocast(features.device.type, dtype=torch.{{DTYPE}})"] if "autocast" in tags else []
    if "act-offload" in tags:
        contexts.append("torch.autograd.graph.save_on_cpu(pin_memory=True)")
    return ", ".join(contexts)
