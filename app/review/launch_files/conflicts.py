"""Find contradictions between the files of one job: processes, nodes, batch sizes, precision, ZeRO stage.

Pure functions over the statements of the files (``read_files``, ``launchers.launch_scripts``); each conflict is a line
with its arithmetic. Settings that the tools themselves refuse are marked as such: DeepSpeed 0.19
(``runtime/config.py``: ``_batch_assertion``, and the check of both 16-bit formats) and Accelerate 1.15
(``_deepspeed_config_checks``, ``ParallelismConfig``).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...launchers.launch_scripts import JobFile, Statement

# Refused by Accelerate in its own file if there is a deepspeed_config_file.
SET_TWICE = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
    "mixed_precision",
)
COMPARED = {"ranks": "ranks", "nodes": "nodes", "stage": "ZeRO stage", "precision": "precision"}
COMPARED |= {"micro_batch": "micro-batch", "accumulation": "accumulation", "batch": "batch"}


class Conflict(NamedTuple):
    """A contradiction; ``where`` lists its lines, each as ``file:line``."""

    message: str
    where: list[str]


def find_conflicts(files: Sequence[JobFile]) -> list[Conflict]:
    """Return every contradiction within and between the files."""
    ranks = _ranks(files)
    batches = [each for file in files if file.kind in ("deepspeed", "manifest") for each in _batch(file, ranks)]
    reported = {each.where[0] for each in batches}  # one line for each batch is enough
    between = [each for each in _between(files) if each.where[0] not in reported]
    return [*(each for file in files for each in _within(file)), *between, *batches]


def _within(file: JobFile) -> Iterator[Conflict]:
    for statement in file.repeated:
        yield Conflict(f"{statement.words}; DeepSpeed refuses the file", [statement.where])
    if file.kind == "deepspeed":
        sections = [file.plain.get(name) for name in ("bf16", "fp16")]
        if all(isinstance(each, dict) and each.get("enabled") is True for each in sections):
            statement = file.of("precision")
            yield Conflict(
                "bf16 and fp16 are both enabled; DeepSpeed takes one", [statement.where if statement else file.path]
            )
    if file.kind == "accelerate":
        yield from _accelerate(file)
    if file.kind == "script":
        yield from _slurm(file)
    if file.kind == "kubernetes":
        yield from _pods(file)


def _accelerate(file: JobFile) -> Iterator[Conflict]:
    ranks, nodes = file.of("ranks"), file.of("nodes")
    if ranks and nodes and nodes.value > 0 and ranks.value % nodes.value:
        share = f"{ranks.value} / {nodes.value} = {ranks.value / nodes.value:.2f}"
        yield Conflict(f"num_processes counts all machines, and {share} is no whole number", [ranks.where, nodes.where])
    section = file.plain.get("deepspeed_config")
    if isinstance(section, dict) and "deepspeed_config_file" in section:
        both = [name for name in SET_TWICE if name in section or name in file.plain]
        if both:
            yield Conflict(
                f"{', '.join(both)} together with deepspeed_config_file, in which they belong; Accelerate refuses both",
                [file.path],
            )
    sizes = file.plain.get("parallelism_config")
    if isinstance(sizes, dict) and ranks:
        parts = {name: sizes.get(f"parallelism_config_{name}_size", 1) for name in ("dp_replicate", "dp_shard")}
        parts |= {name: sizes.get(f"parallelism_config_{name}_size", 1) for name in ("tp", "cp", "sp")}
        counts = [value for value in parts.values() if isinstance(value, int)]
        used = {name: value for name, value in parts.items() if value != 1}
        if len(counts) == len(parts) and used and math.prod(counts) != ranks.value:
            product = " × ".join(f"{value} ({name})" for name, value in used.items())
            yield Conflict(f"{ranks.words} ≠ {product} = {math.prod(counts)}; Accelerate refuses it", [ranks.where])


def _pods(file: JobFile) -> Iterator[Conflict]:
    ranks, gpus = file.of("pod_ranks"), file.of("pod_gpus")
    if ranks and gpus and ranks.value != gpus.value:
        yield Conflict(f"{ranks.words} in a pod that gets {gpus.words}", [gpus.where, ranks.where])
    at_once, pods = file.of("parallelism"), file.of("completions")
    if at_once and pods and at_once.value < pods.value:
        yield Conflict(
            f"{at_once.words} starts {at_once.value} of {pods.value} pods at a time, and each waits for all",
            [at_once.where, pods.where],
        )


def _slurm(file: JobFile) -> Iterator[Conflict]:
    nodes, gpus, tasks = (file.of(f"slurm_{name}") for name in ("nodes", "gpus", "tasks"))
    started, on = file.of("ranks"), file.of("nodes")
    torchrun = file.of("torchrun")
    if torchrun and tasks and tasks.value > 1:
        yield Conflict(
            f"--ntasks-per-node={tasks.value} starts torchrun {tasks.value} times on each node, and each starts all "
            "ranks of it: take 1",
            [tasks.where, torchrun.where],
        )
    if started and gpus:
        on_nodes = nodes.value if nodes else 1
        asked = on_nodes * gpus.value
        if asked != started.value:
            yield Conflict(
                f"Slurm gives {on_nodes} × {gpus.value} = {asked} GPUs ≠ {started.value} ({started.words})",
                [gpus.where, started.where],
            )
    elif nodes and on and nodes.value != on.value:
        yield Conflict(f"Slurm gives {nodes.value} nodes ≠ {on.value} ({on.words})", [nodes.where, on.where])


def _between(files: Sequence[JobFile]) -> Iterator[Conflict]:
    """Compare the same value of all files with that of the first, which is the manifest if there is one."""
    ordered = sorted(files, key=lambda file: file.kind != "manifest")
    for name, words in COMPARED.items():
        statements = [statement for file in ordered if (statement := file.of(name))]
        for other in statements[1:]:
            if other.value != statements[0].value:
                yield Conflict(f"{words}: {other.words} ≠ {statements[0].words}", [other.where, statements[0].where])


def _ranks(files: Sequence[JobFile]) -> Statement | None:
    """Return the number of ranks: that of the launcher, else of the first file with one."""
    order = ("script", "hostfile", "accelerate", "kubernetes", "manifest")
    found = [
        (order.index(file.kind), statement) for file in files if file.kind in order and (statement := file.of("ranks"))
    ]
    return min(found, key=lambda each: each[0])[1] if found else None


def _batch(file: JobFile, launched: Statement | None) -> Iterator[Conflict]:
    """Check train_batch_size = micro-batch × accumulation × ranks, of which those that split layers count once.

    DeepSpeed refuses numbers that do not multiply out; one that is left out is computed and rounded down.
    """
    batch, micro, steps = (file.of(name) for name in ("batch", "micro_batch", "accumulation"))
    ranks = file.of("data_parallel") or file.of("ranks") or launched
    if not batch:
        return
    factors = [statement for statement in (micro, steps, ranks) if statement]
    product = math.prod(statement.value for statement in factors)
    arithmetic = " × ".join(str(statement.value) for statement in factors)
    whole = f"{arithmetic} = {product}" if len(factors) > 1 else arithmetic
    where = list(dict.fromkeys([batch.where, *(statement.where for statement in factors)]))
    names = {"micro_batch": "micro-batch", "data_parallel": "data-parallel ranks"}
    legend = " × ".join(names.get(statement.name, statement.name) for statement in factors)
    if micro and steps and ranks:
        if batch.value != product:
            yield Conflict(f"{batch.words} ≠ {whole} ({legend})", where)
    elif factors and (product <= 0 or batch.value % product):
        yield Conflict(f"{batch.words} is no multiple of {whole} ({legend})", where)
