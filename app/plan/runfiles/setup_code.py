"""The set-up code of a plan: a script for its strategy that runs as it is and does what the plan counts on.

The templates (``assets/templates/plan_*.py.in``) are whole scripts whose lines may be tagged: ``  #? tag`` at a line's
end, or ``#? if tag`` and ``#? end`` around several, keeps them only where the plan has the tag (``!tag``: only where
not; ``a|b``: either; several words: all). What no template does is said in the head of the script.
"""

from collections.abc import Iterator

from ...fixes import deepspeed, launch
from ...fixes.box import Box
from ...fixes.code import TEMPLATES
from ..batch import Batch
from ..types import Setting
from .manifest import learning_rate

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
EXAMPLE_RATE = 1e-3  # where none is known
RECOMPUTE = {
    "full": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of each block, and compute the block once more in the backward pass."""
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, block))
''',
    "selective-layer": '''\
def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Keep only the input of every second block, and compute that block once more in the backward pass."""
    chosen = [module for module in model.modules() if isinstance(module, block)][1::2]
    apply_activation_checkpointing(model, check_fn=lambda module: module in chosen)
''',
    "selective-op": '''\
ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)
PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def keep_some() -> tuple:
    """Keep the output of attention and of every second matrix product; the rest is computed once more."""
    seen = {True: 0, False: 0}

    def policy(context, operation, *args, **kwargs) -> CheckpointPolicy:
        if operation in PRODUCTS:
            seen[context.is_recompute] += 1
            kept = seen[context.is_recompute] % 2 == 1
        else:
            kept = operation in ATTENTION
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def recompute(model: torch.nn.Module, block: type[torch.nn.Module]) -> None:
    """Of each block keep its input and what keep_some names, and compute the rest once more in the backward pass."""
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=lambda module: checkpoint_wrapper(module, context_fn=keep_some),
        check_fn=lambda module: isinstance(module, block),
    )
''',
}
# Optimizers that the scripts make: class, words. The 8-bit one is bitsandbytes', with FSDP2 torchao's, whose states
# can be sharded tensors.
OPTIMIZERS = {
    "adamw": ("torch.optim.AdamW", "AdamW"),
    "adam": ("torch.optim.Adam", "Adam"),
    "sgd": ("torch.optim.SGD", "SGD without momentum, which keeps no state"),
    "adafactor": ("torch.optim.Adafactor", "Adafactor (torch 2.5 or newer)"),
    "adamw-8bit": ("AdamW8bit", "AdamW with states of 8 bit"),
}
FUSED = ("adamw", "adam", "sgd")  # have fused=True


def fsdp2(setting: Setting, box: Box, batch: Batch | None = None) -> str:
    """``fsdp2_setup.py``: mesh, resharding, offload, precision, recomputing, accumulation, optimizer of the plan."""
    strategy, tags = setting.layout, _tags(setting)
    reshard = strategy.reshard_after_forward
    named = {"mixed": "MixedPrecisionPolicy", "offload": "CPUOffloadPolicy"}
    common = ["mesh=mesh"]
    if "mixed" in tags:
        common.append("mp_policy=precision")
    if "offload" in tags:
        common.append("offload_policy=offload")
    of_blocks = [*common, *([f"reshard_after_forward={reshard}"] if reshard is not None else [])]
    mesh = "mesh = init_device_mesh(device.type, (dist.get_world_size(),))"
    if "hybrid" in tags:
        mesh = (
            "copies = dist.get_world_size() // SHARD_SIZE\n"
            '    mesh = init_device_mesh(device.type, (copies, SHARD_SIZE), mesh_dim_names=("replicate", "shard"))'
        )
    values = {
        "FSDP_NAMES": ", ".join(sorted([name for tag, name in named.items() if tag in tags] + ["fully_shard"])),
        "MESH": mesh,
        "OF_BLOCKS": ", ".join(of_blocks),
        "OF_ROOT": ", ".join(common),
        "SHARD_SIZE": str(strategy.shard_size or box.ranks),
    }
    return _render("fsdp2", setting, box, tags, values, batch)


def ddp(setting: Setting, box: Box, batch: Batch | None = None) -> str:
    """``ddp_setup.py``: precision, buckets, recomputing, accumulation, optimizer of the plan."""
    return _render("ddp", setting, box, _tags(setting), {}, batch)


def with_deepspeed(setting: Setting, box: Box, batch: Batch | None = None) -> str:
    """``deepspeed_setup.py``: a script around ``deepspeed.initialize``, which reads the JSON beside it."""
    return _render("deepspeed", setting, box, _tags(setting), {"CONFIG": deepspeed.FILE}, batch)


def _made(setting: Setting, kind: str) -> str:
    """The optimizer that the script makes: the plan's where it can. torch's Adafactor cannot step on sharded tensors
    (torch 2.13)."""
    optimizer = setting.train.optimizer or "adamw"
    return optimizer if optimizer in OPTIMIZERS and (kind, optimizer) != ("fsdp2", "adafactor") else "adamw"


def _tags(setting: Setting) -> set[str]:
    train, strategy = setting.train, setting.layout
    width, _, kind = (train.dtype or "fp32").partition("-")
    mixed = width in ("bf16", "fp16") and kind != "pure"
    tags = {
        "zero": strategy.kind == "zero-optimizer",
        "view": strategy.gradient_as_bucket_view,
        "offload": strategy.cpu_offload,
        "hybrid": strategy.kind == "hsdp",
        "stage3": strategy.stage == 3,
        "cpu-adam": bool(strategy.offload_optimizer) and train.optimizer in (None, "adamw", "adam"),
        "mixed": mixed,
        "autocast": mixed,
        "pure": kind == "pure",
        "scaler": mixed and width == "fp16",
        "accumulate": (train.grad_accum or 1) > 1,
        "compile": train.compile,
        train.act_ckpt or "none": True,
        train.optimizer or "adamw": True,
    }
    return {name for name, held in tags.items() if held}


def _render(kind: str, setting: Setting, box: Box, tags: set[str], values: dict[str, str], batch: Batch | None) -> str:
    train = setting.train
    name = f"{kind}_setup.py"
    width, _, _ = (train.dtype or "fp32").partition("-")
    left = _not_done(setting, kind)
    values = values | {
        "TITLE": _title(setting),
        "WHERE": _where(setting),
        "LEFT": _told(left),
        "START": deepspeed.start(box, [name]) if kind == "deepspeed" else launch.torchrun(box, [name]),
        "MICRO_BATCH": str(train.micro_batch or 1),
        "ACCUMULATION": str(train.grad_accum or 1),
        "LEARNING_RATE": _rate(setting, batch),
        "DTYPE": DTYPES.get(width, "float32"),
        "FLOAT": "" if width == "fp32" else ".float()",
        "RECOMPUTE": RECOMPUTE.get(train.act_ckpt or "", ""),
        "OPTIMIZER": _optimizer(setting, kind, tags),
        "OPTIMIZER_DOC": _optimizer_words(setting, kind, tags),
    }
    template = (TEMPLATES / f"plan_{kind}.py.in").read_text(encoding="utf-8")
    made = "\n".join(kept(template, tags)) + "\n"
    for key, value in values.items():
        made = made.replace("{{" + key + "}}", value)
    return made


def kept(template: str, tags: set[str]) -> Iterator[str]:
    """The lines of a template that the tags keep."""
    inside = True
    for line in template.splitlines():
        directive = line.strip()
        if directive.startswith("#? if "):
            inside = _holds(directive.removeprefix("#? if "), tags)
        elif directive == "#? end":
            inside = True
        else:
            text, _, condition = line.partition("  #? ")
            if inside and _holds(condition, tags):
                yield text


def _holds(condition: str, tags: set[str]) -> bool:
    return all(
        word[1:] not in tags if word.startswith("!") else bool(tags & set(word.split("|")))
        for word in condition.split()
    )


def _optimizer(setting: Setting, kind: str, tags: set[str]) -> str:
    optimizer = _made(setting, kind)
    name, _ = OPTIMIZERS[optimizer]
    if "cpu-adam" in tags:
        mode = "" if optimizer == "adamw" else ", adamw_mode=False"
        return f"return DeepSpeedCPUAdam(model.parameters(), lr=LEARNING_RATE{mode})"
    fused = ", fused=True" if setting.train.optimizer_impl == "fused" and optimizer in FUSED else ""
    if "zero" in tags:
        return f"return ZeroRedundancyOptimizer(model.parameters(), optimizer_class={name}, lr=LEARNING_RATE{fused})"
    return f"return {name}(model.parameters(), lr=LEARNING_RATE{fused})"


def _optimizer_words(setting: Setting, kind: str, tags: set[str]) -> str:
    _, words = OPTIMIZERS[_made(setting, kind)]
    if "cpu-adam" in tags:
        return f"DeepSpeed's {words} that steps on the host, where its states are."
    if "zero" in tags:
        return f"{words}. Each rank keeps the states of its share of the parameters."
    return f"{words}."


def _rate(setting: Setting, batch: Batch | None) -> str:
    rate = learning_rate(setting, batch)
    if rate is None or batch is None:
        return f"{EXAMPLE_RATE:g}  # an example's: put yours"
    if rate == batch.lr:
        return f"{rate:g}"
    rise = f"; rise to it over the first {batch.warm_up_share:.0%} of the run" if batch.warm_up_share else ""
    return f"{rate:g}  # {batch.lr:g} of the run before, for another batch{rise}"


def _title(setting: Setting) -> str:
    strategy = setting.layout
    match strategy.kind:
        case "hsdp":
            return "Hybrid sharding with FSDP2: each group of ranks shards a copy of the model."
        case "fsdp2" if strategy.reshard_after_forward is False:
            return "FSDP2 that keeps the weights whole between forward and backward pass."
        case "fsdp2":
            return "FSDP2: parameters, gradients and optimizer states are sharded over all ranks."
        case "zero-optimizer":
            return "DDP with a sharded optimizer."
        case "deepspeed":
            return f"DeepSpeed with ZeRO stage {strategy.stage or 0}."
        case _:
            return "DDP: a copy of the model on each GPU."


def _where(setting: Setting) -> str:
    train = setting.train
    micro_batch, accumulation = train.micro_batch or 1, train.grad_accum or 1
    model = " ".join("".join(c if c.isprintable() and c != '"' else " " for c in setting.model.name).split())[:60]
    model = model.replace("\\", "/")
    gpus = f"{setting.gpus} GPU{'s' * (setting.gpus > 1)}"
    nodes = f" of {setting.nodes} nodes" if setting.nodes > 1 else ""
    whole = micro_batch * accumulation * setting.gpus
    batch = f"{micro_batch} × {accumulation} × {setting.gpus} = {whole} sequences in each optimizer step"
    return f"{model + ' on ' if model else ''}{gpus}{nodes}: {batch}"


def _not_done(setting: Setting, kind: str) -> list[str]:
    """What the plan counts on and the script does not do."""
    train = setting.train
    left: list[str] = []
    if train.optimizer and _made(setting, kind) != train.optimizer:
        left.append(f"the optimizer {train.optimizer}: it is AdamW here, which may need more memory")
    if train.lora:
        left.append(f"LoRA adapters of rank {train.lora.r}")
    if train.quant:
        left.append(f"frozen weights in {train.quant}")
    if train.optimizer_in_bwd:
        left.append("optimizer steps within the backward pass")
    if train.act_offload:
        left.append("activations kept on the host (torch.autograd.graph.save_on_cpu)")
    if train.loss not in (None, "eager"):
        left.append(f"a {train.loss} loss")
    if kind != "deepspeed" and train.optimizer_state_dtype:
        left.append(f"optimizer states in {train.optimizer_state_dtype}")
    if kind == "deepspeed" and train.compile:
        left.append("torch.compile")
    return left


def _told(left: list[str]) -> str:
    if not left:
        return ""
    lines = "".join(f"- {each}\n" for each in left)
    return f"The plan counts on these as well, which this script does not do:\n{lines}\n"
