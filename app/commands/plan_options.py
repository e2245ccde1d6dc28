"""The options of ``ddpwizard plan`` that say what is asked: which model, trained how, on which box."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import UserError
from ..plan import spec

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = ("fp32", "bf16", "fp16", "bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure")
OPTIMIZERS = ("adamw", "adam", "adamw-8bit", "adafactor", "muon", "sgd", "lion")


def _as(
    parse: Callable[[str], float], way: str
) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    """A callback that reads a number as people write it; ``way``: such as it can be written."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise UserError(f"{parameter.opts[0]} is {value[:40] or 'empty'}", f"give it as {way}") from error

    return read


COUNT, TOKENS = _as(spec.parse_count, "7B, 350M or 7e9"), _as(spec.parse_whole_number, "4096 or 4k")


def _rank(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and not 0 < value < 100_000:
        raise UserError(f"--lora is {value}", "give the rank of the adapters, such as 16")
    return value


MODEL = (
    click.option("--model", metavar="NAME", help="Such as Llama-3.1-8B, a path, or PKG.MOD:FN that builds it."),
    click.option("--config", metavar="PATH", help="A Hugging Face config.json, or a directory with one."),
    click.option("--checkpoint", metavar="PATH", help="A .safetensors file, an index, or a directory with one."),
    click.option("--params", callback=COUNT, metavar="N", help="Parameters, such as 7B or 7e9."),
    click.option("--layers", type=int, metavar="N"),
    click.option("--hidden", type=int, metavar="N", help="Hidden size."),
    click.option("--heads", type=int, metavar="N"),
    click.option("--kv-heads", type=int, metavar="N"),
    click.option("--intermediate", type=int, metavar="N", help="Width of the feed-forward part."),
    click.option("--vocab", type=int, metavar="N"),
)
TRAINING = (
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="mixed: float32 weights, 16-bit arithmetic; bf16: as each does it.",
    ),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS)),
    click.option("--optimizer-impl", type=click.Choice(["foreach", "fused"]), help="How AdamW steps (fused)."),
    click.option("--micro-batch", type=int, metavar="N", help="Sequences per GPU and step."),
    click.option("--seq-len", callback=TOKENS, metavar="N", help="Tokens of a sequence, such as 4096 or 4k."),
    click.option(
        "--target-len", callback=TOKENS, metavar="N", help="Tokens that a T5 or BART writes; else a quarter of them."
    ),
    click.option("--images", type=int, metavar="N", help="Pictures of a sequence, of a model that sees them; else 1."),
    click.option("--grad-accum", type=int, metavar="N", help="Micro-batches of one optimizer step."),
    click.option("--global-batch", type=int, metavar="N", help="Sequences of one optimizer step over all GPUs."),
    click.option(
        "--act-ckpt",
        type=click.Choice(["none", "full", "selective-op", "selective-layer"]),
        help="Activation checkpointing; without a word several are tried.",
    ),
    click.option("--attention", type=click.Choice(["flash", "eager"])),
    click.option("--packed", is_flag=True, help="Sequences are packed, or all as long as --seq-len (for LoRA)."),
    click.option("--compile", is_flag=True, help="With torch.compile."),
    click.option("--loss", type=click.Choice(["eager", "compiled", "chunked", "fused-linear"])),
    click.option("--lora", type=int, callback=_rank, metavar="R", help="Train adapters of this rank only."),
    click.option("--lora-target", type=click.Choice(["q,v", "all-linear"]), help="Which layers have adapters."),
    click.option("--quant", type=click.Choice(["nf4", "nf4-dq", "gptq-int4"]), help="The base under the adapters."),
    click.option("--frozen", metavar="SHARE", help="Of the weights, not trained: 0.9, 90% or parameters such as 6B."),
    click.option("--alloc", type=click.Choice(["expandable_segments"]), help="What PYTORCH_ALLOC_CONF sets."),
)
BOX = (
    click.option("--gpus", type=int, metavar="N", help="GPUs in all; without any word on GPUs those of this machine."),
    click.option("--nodes", type=int, metavar="N", help="Else one for each 8 GPUs."),
    click.option("--gpu", metavar="NAME", help="Such as H100 or A100-80G."),
    click.option("--gpu-memory", metavar="GB", help="Such as 80GB or 24GiB; else that of --gpu."),
    click.option("--host-memory", metavar="GB", help="Of one host, for what is offloaded to it."),
    click.option("--intra-gbps", type=float, metavar="GB/s", help="Bus bandwidth within a node."),
    click.option("--inter-gbps", type=float, metavar="GB/s", help="Bus bandwidth between nodes."),
    click.option("--machine", metavar="NAME", help="Such as p5.48xlarge, a3-highgpu-8g or dgx-h100."),
    click.option("--box", metavar="FILE", help="A look that ddpwizard doctor --bench --save wrote."),
)


def question_options(command: F) -> F:
    """Add them all, in this order."""
    for decorate in reversed((*MODEL, *TRAINING, *BOX)):
        command = decorate(command)
    return command
