"""The description of a run: the docstring of its program, and its manifest, which makes it comparable with another."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .... import __version__
from ...launchers.deepspeed import GRADIENT_CLIPPING
from ...review.launch_files.read_files import SCHEMA
from ...system.subprocesses import run_process
from ...text.units import percent_text
from ..batch_scaling import BatchScaling, scaled_learning_rate
from ..rank_share import data_parallel_ranks, sequences_per_step
from ..script_changes import WORDS
from ..types import TrainingSetup
from .optimizer_snippets import steps_in_backward

FILE = "manifest.json"
PACKAGES = ("torch", "torchdata", "accelerate", "deepspeed", "transformers")
LIMIT_S = 20.0
EXAMPLE_RATE = 1e-3  # without a reference run
READ_VERSIONS = """
import json, sys
from importlib import metadata
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except Exception:
        found[name] = None
print(json.dumps(found))
"""


def render_manifest(
    setting: TrainingSetup, batch: BatchScaling | None = None, versions: Mapping[str, str | None] | None = None
) -> str:
    """Render a complete setting as JSON, with the versions of its packages; unknown values are null."""
    train = setting.train
    effective_batch = sequences_per_step(setting)
    clips_nothing = setting.layout.is_fully_shard and steps_in_backward(train, "fsdp2")
    plain = {
        "schema": SCHEMA,
        "ddpwizard_version": __version__,
        "versions": {name: (versions or {}).get(name) for name in ("python", *PACKAGES)},
        "model": setting.model.name,
        "parameters": setting.model.params,
        "strategy": msgspec.to_builtins(setting.strategy),
        "world_size": setting.gpus,
        "nodes": setting.nodes,
        "micro_batch": train.micro_batch or 1,
        "grad_accum": train.grad_accum or 1,
        "effective_batch": effective_batch,
        "seq_len": train.seq_len,
        "tokens_per_step": effective_batch * (train.seq_len or 0),
        "precision": train.dtype,
        "optimizer": train.optimizer,
        "act_ckpt": train.act_ckpt,
        "gradient_clipping": None if clips_nothing else GRADIENT_CLIPPING,
        "learning_rate": learning_rate(setting, batch),
    }
    if setting.layout.splits_model:
        plain["data_parallel_ranks"] = data_parallel_ranks(setting)
    if batch:
        plain["warm_up_share"] = batch.warm_up_share if effective_batch > batch.reference_batch else 0.0
        plain["reference"] = {
            "world_size": batch.reference_gpus,
            "effective_batch": batch.reference_batch,
            "learning_rate": batch.lr,
            "same_experiment": effective_batch == batch.reference_batch,
        }
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def learning_rate(setting: TrainingSetup, batch: BatchScaling | None) -> float | None:
    """Return the learning rate for the setting's batch by the rule of ``batch``, in six digits, or None without one."""
    found = scaled_learning_rate(batch, sequences_per_step(setting)) if batch else None
    return None if found is None else float(f"{found:.6g}")


def learning_rate_line(setting: TrainingSetup, batch: BatchScaling | None) -> str:
    """Return the learning rate, with a comment if it differs from that of the reference run."""
    rate = learning_rate(setting, batch)
    if rate is None or batch is None:
        return f"{EXAMPLE_RATE:g}  # an example: put in your own"
    if rate == batch.lr:
        return f"{rate:g}"
    warm_up = (
        f"; warm up to it over the first {percent_text(batch.warm_up_share)} of the run" if batch.warm_up_share else ""
    )
    return f"{rate:g}  # {batch.lr:g} of the reference run, scaled to this batch{warm_up}"


def strategy_title(setting: TrainingSetup) -> str:
    """Return the first line, which names what the strategy does."""
    strategy = setting.layout
    if split := next((name for name, ranks in strategy.splits.items() if ranks > 1), ""):
        return f"FSDP2 with {split} parallelism: {strategy.splits[split]} ranks split {WORDS[split].title}."
    if strategy.kind == "fsdp2" and strategy.reshard_after_forward is False:
        return "FSDP2 that keeps the weights gathered between forward and backward pass."
    return WORDS[strategy.kind].title.format(stage=strategy.stage or 0)


def run_summary(setting: TrainingSetup) -> str:
    """Return the model, the GPUs and the batch of the plan."""
    train = setting.train
    model = " ".join("".join(c if c.isprintable() and c != '"' else " " for c in setting.model.name).split())[:60]
    model = model.replace("\\", "/")
    gpus = f"{setting.gpus} GPU{'s' * (setting.gpus > 1)}"
    nodes = f" of {setting.nodes} nodes" if setting.nodes > 1 else ""
    sizes = f"{train.micro_batch or 1} × {train.grad_accum or 1} × {data_parallel_ranks(setting)}"
    batch = f"{sizes} = {sequences_per_step(setting)} sequences in each optimizer step"
    return f"{model + ' on ' if model else ''}{gpus}{nodes}: {batch}"


def requirements(setting: TrainingSetup, kind: str) -> str:
    """Return the packages needed in addition to torch and DeepSpeed as a line, or ""."""
    train = setting.train
    packages = ["peft"] if train.lora else []
    if train.optimizer == "adamw-8bit":
        packages.append("torchao" if kind == "fsdp2" else "bitsandbytes")
    return f"Required packages: pip install {' '.join(packages)}\n\n" if packages else ""


def read_package_versions(python: Path | str) -> dict[str, str | None]:
    """Return the versions of python and PACKAGES, read from metadata; {} if the interpreter does not answer."""
    outcome = asyncio.run(run_process([str(python), "-c", READ_VERSIONS, *PACKAGES], limit_s=LIMIT_S))
    try:
        found = json.loads(outcome.log.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return {str(name): value if isinstance(value, str) else None for name, value in found.items()}
