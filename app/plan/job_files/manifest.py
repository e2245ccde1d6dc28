"""The manifest of a run: the values that make it comparable with another run, and the versions of its packages."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .... import __version__
from ...launchers.deepspeed import GRADIENT_CLIPPING
from ...review.launch_files.read_files import SCHEMA
from ...system.subprocesses import run_process
from ..batch_scaling import BatchScaling, scaled_learning_rate
from ..rank_share import data_parallel_ranks, sequences_per_step
from ..types import TrainingSetup
from .optimizer_snippets import steps_in_backward

FILE = "manifest.json"
PACKAGES = ("torch", "torchdata", "accelerate", "deepspeed", "transformers")
LIMIT_S = 20.0
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
    """Render sizes, batch, learning rate, precision and versions of a complete setting as JSON.

    ``versions``: of python and PACKAGES in the interpreter of the run. Unknown values are null; so is the learning rate
    without a reference run (``batch``).
    """
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


def read_package_versions(python: Path | str) -> dict[str, str | None]:
    """Return the versions of python and PACKAGES, read from metadata; {} if the interpreter does not answer."""
    outcome = asyncio.run(run_process([str(python), "-c", READ_VERSIONS, *PACKAGES], limit_s=LIMIT_S))
    try:
        found = json.loads(outcome.log.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return {str(name): value if isinstance(value, str) else None for name, value in found.items()}
