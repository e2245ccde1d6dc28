"""Options of ``ddpwizard plan``, and their groups in its help."""

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import UserError
from ..plan import spec
from ..plan.types import CHOICES, LORA_TARGETS

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("fp32", "bf16", "fp16", "bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure")
VALUE_NAMES = {"--spec": "given", "--batch": "batch_from"}  # in the code, where they differ from the option's

GROUPS = ("Model", "Training", "Machine", "Output", "General")


class GroupedOption(click.Option):
    """An option that the help lists under a group."""

    def __init__(self, *names: Any, group: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups; those of all commands are under General."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; a word without an option is refused with the option that may be meant."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            option = "--script" if rest[0].endswith(".py") else "--model"
            raise UserError(
                f"{rest[0]}: without an option",
                f"ddpwizard plan {shlex.join([option, rest[0]])} reads the model from it",
            )
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                groups[getattr(parameter, "group", "General")].append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _number(
    parse: Callable[[str], float], form: str
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """Return a callback that parses a number with a unit; ``form`` is an example for the message."""

    def parse_option(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise UserError(f"{parameter.opts[0]} is {value[:40] or 'empty'}", f"give it as {form}") from error

    return parse_option


COUNT, TOKENS = _number(spec.parse_count, "7B, 350M or 7e9"), _number(spec.parse_whole_number, "4096 or 4k")


def _rank(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and not 0 < value < 100_000:
        raise UserError(f"--lora is {value}", "give the rank of the adapters, such as 16")
    return value


# Options by group: their name, what they take (words to choose from, a type, a callback, or FLAG), metavar and help.
FLAG = bool
OPTIONS: dict[str, dict[str, tuple[Any, str, str]]] = {
    "Model": {
        "--model": (str, "NAME", "Name such as Llama-3.1-8B, a path, or PKG.MOD:FN that builds it."),
        "--config": (str, "PATH", "Hugging Face config.json, or a directory with one."),
        "--checkpoint": (str, "PATH", ".safetensors file, an index, or a directory with one."),
        "--params": (COUNT, "N", "Number of parameters, such as 7B or 7e9."),
        "--layers": (int, "N", "Number of layers."),
        "--hidden": (int, "N", "Hidden size."),
        "--heads": (int, "N", "Number of attention heads."),
        "--kv-heads": (int, "N", "Number of key and value heads [default: heads]."),
        "--intermediate": (int, "N", "Width of the feed-forward part."),
        "--vocab": (int, "N", "Size of the vocabulary."),
        "--spec": (str, "FILE", "Specification of the whole setting as JSON; - is stdin."),
        "--script": (
            str,
            "FILE",
            "Training script that the written files start; also read for the model if none is given "
            "[default: train.py].",
        ),
    },
    "Training": {
        "--dtype": (
            DTYPES,
            "",
            "mixed: fp32 weights with 16-bit autocast; pure: 16-bit weights; bf16, fp16: mixed precision as each "
            "framework implements it [default: bf16, fp16 on GPUs without it].",
        ),
        "--optimizer": (CHOICES["optimizer"], "", "Optimizer [default: adamw]."),
        "--optimizer-impl": (("foreach", "fused"), "", "Implementation of AdamW [default: fused]."),
        "--micro-batch": (int, "N", "Sequences per GPU and micro-batch [default: 1]."),
        "--seq-len": (
            TOKENS,
            "N",
            "Tokens of a sequence, such as 4096 or 4k [default: 2048, at most the positions of the model].",
        ),
        "--target-len": (TOKENS, "N", "Target length for encoder-decoder models [default: seq-len / 4]."),
        "--images": (int, "N", "Pictures per sequence, for models that take them [default: 1]."),
        "--grad-accum": (int, "N", "Micro-batches per optimizer step [default: 1]."),
        "--global-batch": (int, "N", "Sequences per optimizer step over all GPUs."),
        "--act-ckpt": (CHOICES["act_ckpt"], "", "Activation checkpointing. If omitted, several kinds are compared."),
        "--attention": (CHOICES["attention"], "", "Attention implementation."),
        "--packed": (FLAG, "", "With --lora: the sequences are packed, or all have --seq-len tokens."),
        "--compile": (FLAG, "", "Use torch.compile."),
        "--fp8": (FLAG, "", "Compute the products of blocks in fp8 (torchao), with --compile."),
        "--optimizer-in-bwd": (FLAG, "", "Step each weight in the backward pass and free its gradient."),
        "--act-offload": (FLAG, "", "Keep saved activations in host memory."),
        "--reference-model": (FLAG, "", "A frozen copy of the model computes too, as for DPO or RL."),
        "--loss": (CHOICES["loss"], "", "Implementation of the cross-entropy [default: eager]."),
        "--lora": (_rank, "R", "Train LoRA adapters of this rank only."),
        "--lora-target": (LORA_TARGETS, "", "Layers that get adapters."),
        "--quant": (CHOICES["quant"], "", "Quantization of the frozen weights under LoRA."),
        "--frozen": (str, "SHARE", "Share or number of the weights that are not trained, such as 0.9, 90% or 6B."),
        "--alloc": (("expandable_segments",), "", "Setting of PYTORCH_ALLOC_CONF to plan with."),
        "--reference-gpus": (
            int,
            "N",
            "Number of GPUs of an earlier run; shows how batch size and learning rate change.",
        ),
        "--lr": (float, "RATE", "Learning rate of the earlier run."),
        "--keep-global-batch": (
            FLAG,
            "",
            "Choose the gradient accumulation that keeps the global batch of the earlier run.",
        ),
    },
    "Machine": {
        "--gpus": (int, "N", "Total number of GPUs [default: those of this machine]."),
        "--nodes": (int, "N", "Number of nodes [default: one per 8 GPUs]."),
        "--gpu": (str, "NAME", "GPU, such as H100 or A100-80G."),
        "--gpu-memory": (str, "GB", "Memory of one GPU, such as 80GB or 24GiB [default: that of --gpu]."),
        "--host-memory": (str, "GB", "Memory of one host, for offloading."),
        "--intra-gbps": (float, "GB/s", "Bus bandwidth within a node."),
        "--inter-gbps": (float, "GB/s", "Bus bandwidth between nodes."),
        "--machine": (str, "NAME", "Machine such as p5.48xlarge, a3-highgpu-8g or dgx-h100."),
        "--machine-snapshot": (str, "FILE", "Snapshot of a machine, written by ddpwizard doctor --bench --save."),
    },
    "Output": {
        "--curve": (FLAG, "", "Plot tokens per second over 1 to 64 GPUs."),
        "--strategy": (str, "NAME", "Show only this strategy, such as FSDP2 or ZeRO-3."),
        "--write": (str, "DIR", "Write the job files of the best strategy: launch script, configs, code."),
        "--exact": (FLAG, "", "Also train the module on fake tensors and track its peak memory."),
        "--batch": (
            str,
            "PKG.MOD:FN",
            "With --exact: function that returns the inputs of a micro-batch [default: token ids].",
        ),
    },
}


def plan_options(command: F) -> F:
    """Add all options of the command but those of every command."""
    for group, options in reversed(OPTIONS.items()):
        for name, (takes, metavar, text) in reversed(options.items()):
            names = (name, VALUE_NAMES[name]) if name in VALUE_NAMES else (name,)
            add = click.option(*names, cls=GroupedOption, group=group, help=text, **_taking(takes, metavar or None))
            command = add(command)
    return command


def _taking(takes: Any, metavar: str | None) -> dict[str, Any]:
    """Return the settings of click for what an option takes."""
    if takes is FLAG:
        return {"is_flag": True}
    if isinstance(takes, tuple):
        return {"type": click.Choice(takes)}
    if isinstance(takes, type):
        return {"type": takes, "metavar": metavar}
    return {"type": int if takes is _rank else str, "callback": takes, "metavar": metavar}
