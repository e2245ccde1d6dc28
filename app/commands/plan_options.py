"""Options of ``ddpwizard plan`` that describe the model, the training and the machine, and their groups in its help."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from ..errors import UserError
from ..plan import spec

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("fp32", "bf16", "fp16", "bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure")
OPTIMIZERS = ("adamw", "adam", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd", "lion")
FORMER_NAMES = ("--box",)  # still accepted


GROUPS = ("Model", "Training", "Machine", "Output", "General")


class GroupedOption(click.Option):
    """An option that the help lists under a group."""

    def __init__(self, *names: Any, group: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Leave out former names of the option."""
        record = super().get_help_record(ctx)
        for former in FORMER_NAMES:
            record = record and (record[0].replace(f", {former}", ""), record[1])
        return record


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups; those of all commands are under General."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                groups[getattr(parameter, "group", "General")].append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def grouped_option(group: str, *names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option of a group."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


model_option, training_option, machine_option, output_option = (partial(grouped_option, group) for group in GROUPS[:4])


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


MODEL = (
    model_option("--model", metavar="NAME", help="Name such as Llama-3.1-8B, a path, or PKG.MOD:FN that builds it."),
    model_option("--config", metavar="PATH", help="Hugging Face config.json, or a directory with one."),
    model_option("--checkpoint", metavar="PATH", help=".safetensors file, an index, or a directory with one."),
    model_option("--params", callback=COUNT, metavar="N", help="Number of parameters, such as 7B or 7e9."),
    model_option("--layers", type=int, metavar="N", help="Number of layers."),
    model_option("--hidden", type=int, metavar="N", help="Hidden size."),
    model_option("--heads", type=int, metavar="N", help="Number of attention heads."),
    model_option("--kv-heads", type=int, metavar="N", help="Number of key and value heads [default: heads]."),
    model_option("--intermediate", type=int, metavar="N", help="Width of the feed-forward part."),
    model_option("--vocab", type=int, metavar="N", help="Size of the vocabulary."),
)
TRAINING = (
    training_option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="mixed: fp32 weights with 16-bit autocast; pure: 16-bit weights; bf16, fp16: mixed precision as each "
        "framework implements it [default: bf16, fp16 on GPUs without it].",
    ),
    training_option("--optimizer", type=click.Choice(OPTIMIZERS), help="Optimizer [default: adamw]."),
    training_option(
        "--optimizer-impl", type=click.Choice(["foreach", "fused"]), help="Implementation of AdamW [default: fused]."
    ),
    training_option("--micro-batch", type=int, metavar="N", help="Sequences per GPU and micro-batch [default: 1]."),
    training_option(
        "--seq-len",
        callback=TOKENS,
        metavar="N",
        help="Tokens of a sequence, such as 4096 or 4k [default: 2048, at most the positions of the model].",
    ),
    training_option(
        "--target-len",
        callback=TOKENS,
        metavar="N",
        help="Target length for encoder-decoder models [default: seq-len / 4].",
    ),
    training_option(
        "--images", type=int, metavar="N", help="Pictures per sequence, for models that take them [default: 1]."
    ),
    training_option("--grad-accum", type=int, metavar="N", help="Micro-batches per optimizer step [default: 1]."),
    training_option("--global-batch", type=int, metavar="N", help="Sequences per optimizer step over all GPUs."),
    training_option(
        "--act-ckpt",
        type=click.Choice(["none", "full", "selective-op", "selective-layer"]),
        help="Activation checkpointing. If omitted, several kinds are compared.",
    ),
    training_option("--attention", type=click.Choice(["flash", "eager"]), help="Attention implementation."),
    training_option(
        "--packed", is_flag=True, help="With --lora: the sequences are packed, or all have --seq-len tokens."
    ),
    training_option("--compile", is_flag=True, help="Use torch.compile."),
    training_option("--fp8", is_flag=True, help="Compute the products of blocks in fp8 (torchao), with --compile."),
    training_option(
        "--optimizer-in-bwd", is_flag=True, help="Step each weight in the backward pass and free its gradient."
    ),
    training_option("--act-offload", is_flag=True, help="Keep saved activations in host memory."),
    training_option(
        "--reference-model", is_flag=True, help="A frozen copy of the model computes too, as for DPO or RL."
    ),
    training_option(
        "--loss",
        type=click.Choice(["eager", "compiled", "chunked", "fused-linear"]),
        help="Implementation of the cross-entropy [default: eager].",
    ),
    training_option("--lora", type=int, callback=_rank, metavar="R", help="Train LoRA adapters of this rank only."),
    training_option("--lora-target", type=click.Choice(["q,v", "all-linear"]), help="Layers that get adapters."),
    training_option(
        "--quant",
        type=click.Choice(["nf4", "nf4-dq", "gptq-int4"]),
        help="Quantization of the frozen weights under LoRA.",
    ),
    training_option(
        "--frozen", metavar="SHARE", help="Share or number of the weights that are not trained, such as 0.9, 90% or 6B."
    ),
    training_option(
        "--alloc", type=click.Choice(["expandable_segments"]), help="Setting of PYTORCH_ALLOC_CONF to plan with."
    ),
)
MACHINE = (
    machine_option("--gpus", type=int, metavar="N", help="Total number of GPUs [default: those of this machine]."),
    machine_option("--nodes", type=int, metavar="N", help="Number of nodes [default: one per 8 GPUs]."),
    machine_option("--gpu", metavar="NAME", help="GPU, such as H100 or A100-80G."),
    machine_option(
        "--gpu-memory", metavar="GB", help="Memory of one GPU, such as 80GB or 24GiB [default: that of --gpu]."
    ),
    machine_option("--host-memory", metavar="GB", help="Memory of one host, for offloading."),
    machine_option("--intra-gbps", type=float, metavar="GB/s", help="Bus bandwidth within a node."),
    machine_option("--inter-gbps", type=float, metavar="GB/s", help="Bus bandwidth between nodes."),
    machine_option("--machine", metavar="NAME", help="Machine such as p5.48xlarge, a3-highgpu-8g or dgx-h100."),
    machine_option(
        "--machine-snapshot",
        "--box",
        "machine_snapshot",
        metavar="FILE",
        help="Snapshot of a machine, written by ddpwizard doctor --bench --save.",
    ),
)


def request_options(command: F) -> F:
    """Add the options that describe the model, the training and the machine."""
    for decorate in reversed((*MODEL, *TRAINING, *MACHINE)):
        command = decorate(command)
    return command
