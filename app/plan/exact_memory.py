"""``plan --exact``: compare the peak of the user's own module, as tracked by torch, with that of the formulas.

The agent ``exact_peak.py`` runs in the user's interpreter on fake tensors. This module starts it with limits, passes it
the setting, and compares its result with the candidate.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UserError
from ..system.files import read_regular_file
from ..system.subprocesses import run_process
from .memory.activations import logits_terms
from .memory.formula import Factor, Term, term, total_bytes
from .memory.peak import Phase, strategy_name
from .model.from_code import OFFLINE, names_function
from .model_source import ModelSource
from .types import Candidate, Checkpointing, PlanRow, TrainingSetup

AGENT = Path(__file__).parent.parent / "agents" / "exact_peak.py"
SOURCE_LIMIT_BYTES = 10_000_000
LIMIT_S = 150.0  # of one strategy; a model of 7 B takes 15 to 25 s on two cores
TRACKED_KINDS = ("single", "ddp", "fsdp2", "hsdp")
OPTIMIZERS = ("adamw", "adam", "sgd")  # of torch.optim; steps of others are not torch's, or read values
SAME = 0.01  # of the peak: smaller differences count as equal


class ModuleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Source of the module: ``factory`` or ``config``; ``batch`` returns the inputs of a micro-batch."""

    python: str
    directory: Path
    factory: str = ""
    config: str = ""
    batch: str = ""

    @property
    def imports(self) -> str:
        """Return what is imported from where, as text."""
        names = {spec.partition(":")[0] for spec in (self.factory, self.batch) if spec}
        if self.config:
            names.add("transformers")
        return f"{', '.join(sorted(names))} in {self.directory} with {self.python}"


class PeakParts(msgspec.Struct, frozen=True, kw_only=True):
    """The peak by part; ``activations`` include the loss and temporary tensors of the backward pass."""

    params: float
    grads: float
    optimizer: float
    activations: float
    buffers: float
    temporaries: float


class PeakSnapshot(msgspec.Struct, frozen=True):
    """The highest memory of one phase according to the tracker, bytes."""

    total: int
    categories: dict[str, int]
    parts: PeakParts


class SteadyState(msgspec.Struct, frozen=True):
    """Memory that rank 0 keeps between two steps, bytes."""

    params: int
    grads: int
    optimizer: int


class TrackerResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the agent. ``used`` is the peak memory of the agent itself, bytes; ``block`` the repeated class."""

    problem: str = ""
    used: int = 0
    moments: dict[Phase, PeakSnapshot] = {}
    kept: SteadyState = SteadyState(0, 0, 0)
    block: str = ""
    blocks: int = 0


class TrackedStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy by formula and tracked, bytes per GPU as PyTorch allocates them.

    ``problem`` is why it was not tracked. ``differs`` lists the parts in which both differ, the largest difference
    first. ``categories_bytes`` are those of the tracker. ``tracker_*`` is the cost of the tracking itself.
    """

    strategy: str
    recompute: Checkpointing
    formula_peak_bytes_per_gpu: float
    formula_phase: str
    formula_bytes: PeakParts
    problem: str = ""
    tracked_peak_bytes_per_gpu: float | None = None
    tracked_phase: str | None = None
    tracked_bytes: PeakParts | None = None
    tracked_phase_peaks_bytes: dict[str, int] = {}
    tracked_phases_bytes: dict[Phase, PeakParts] = {}
    state_bytes: SteadyState | None = None
    categories_bytes: dict[str, int] = {}
    differs: list[str] = []
    notes: list[str] = []
    tracker_seconds: float = 0.0
    tracker_memory_bytes: int = 0


def resolve_module_source(python: str, model: ModelSource, batch: str = "") -> ModuleSource:
    """Return the source of the module to track.

    Raises:
        UserError: There is no module to track, or a name is no function.
    """
    directory, config = model.directory.absolute(), "" if model.factory else model.config
    if not (model.factory or config):
        raise UserError(
            "--exact needs the module itself", "give --model NAME or PKG.MOD:FN, or --config; not --spec or --params"
        )
    if batch:
        module, _, function = batch.partition(":")
        if not names_function(batch):
            raise UserError(f"--batch {batch} names no function", "give it as package.module:function")
        file, name = directory.joinpath(*module.split(".")).with_suffix(".py"), function.partition(".")[0]
        text = read_regular_file(file, SOURCE_LIMIT_BYTES, "name a module with --batch") if file.is_file() else b""
        if text and not re.search(rf"\b{name}\b|import +\*|__getattr__", text.decode("utf-8", "replace")):
            raise UserError(f"--batch {batch}: {module}.py has no {function}", "name the function that makes a batch")
    if config and not config.startswith("{"):
        config = str(Path(config).absolute())
    return ModuleSource(python=python, directory=directory, factory=model.factory, config=config, batch=batch)


def unsupported_reason(setting: TrainingSetup, source: ModuleSource) -> str:
    """Return why a setting cannot be tracked, or "" if it can."""
    train, strategy = setting.train, setting.layout
    name = "DeepSpeed" if strategy.kind == "deepspeed" else strategy_name(strategy)
    other_weights = train.lora or train.quant or train.frozen
    reasons = {
        "of activation checkpointing only all or none is tracked": train.act_ckpt not in (None, "none", "full"),
        f"of optimizers only {', '.join(OPTIMIZERS)} are tracked, not {train.optimizer}": (
            train.optimizer not in OPTIMIZERS
        ),
        f"torch's trackers do not know {name}": strategy.kind not in TRACKED_KINDS,
        "ranks with different parts of the model or of a sequence are not tracked": strategy.splits_model,
        "the trackers do not separate offloaded tensors from those on the GPU": strategy.cpu_offload,
        "an optimizer that steps in the backward pass is not tracked": train.optimizer_in_bwd,
        "adapters, quantized and frozen weights are tracked only if --model builds them": (
            other_weights and not source.factory
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def candidates_to_track(rows: Sequence[PlanRow], source: ModuleSource) -> list[PlanRow]:
    """Return the best candidate that can be tracked, and DDP, or if DDP is the best, the next one of another kind.

    Raises:
        UserError: No candidate can be tracked.
    """
    able = [row for row in rows if not unsupported_reason(row.setting, source)]
    able.sort(key=lambda row: bool(row.candidate.dominated_by))
    if not able:
        raise UserError(f"--exact: {unsupported_reason(rows[0].setting, source)}", "leave --exact out, or change that")
    best = able[0]
    kind, recompute = best.setting.layout.kind, best.setting.train.act_ckpt
    others = [row for row in able[1:] if row.setting.layout.kind != kind and row.setting.train.act_ckpt == recompute]
    other = next((row for row in others if row.setting.layout.kind == "ddp"), next(iter(others), None))
    return [best, other] if other else [best]


async def track_candidate(row: PlanRow, source: ModuleSource) -> TrackedStrategy:
    """Track the setting of one candidate; a failure of any kind becomes its ``problem``."""
    setting, found = row.setting, row.candidate
    tracked = TrackedStrategy(
        strategy=found.strategy,
        recompute=found.recompute,
        formula_peak_bytes_per_gpu=found.peak_allocated_bytes_per_gpu,
        formula_phase=found.peak_phase,
        formula_bytes=estimate_by_part(found),
    )
    outcome = await run_process(
        [source.python, str(AGENT), msgspec.json.encode(_request(setting, source)).decode()],
        limit_s=LIMIT_S,
        cwd=source.directory,
        env=os.environ | OFFLINE | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        answers=True,
    )
    answer = TrackerResult(problem=outcome.why)
    if outcome.answer:
        try:
            answer = msgspec.json.decode(outcome.answer, type=TrackerResult)
        except msgspec.MsgspecError as error:
            answer = TrackerResult(problem=f"no readable answer: {error}")
    cost = {"tracker_seconds": outcome.elapsed_s, "tracker_memory_bytes": answer.used}
    if answer.problem:
        return msgspec.structs.replace(tracked, problem=answer.problem, **cost)
    phase = max(answer.moments, key=lambda moment: answer.moments[moment].total)
    seen = answer.moments[phase]
    return msgspec.structs.replace(
        tracked,
        tracked_peak_bytes_per_gpu=float(seen.total),
        tracked_phase=phase,
        tracked_bytes=seen.parts,
        tracked_phase_peaks_bytes={moment: each.total for moment, each in answer.moments.items()},
        tracked_phases_bytes={moment: each.parts for moment, each in answer.moments.items()},
        state_bytes=answer.kept,
        categories_bytes={kind: size for kind, size in seen.categories.items() if size},
        differs=_differs(tracked.formula_bytes, seen.parts, seen.total),
        notes=_notes(setting, answer),
        **cost,
    )


def tracked_terms(found: TrackedStrategy, setting: TrainingSetup) -> dict[Phase, tuple[Term, ...]]:
    """Return the phases of a tracked strategy as terms; {} if it was not tracked.

    The tracker does not separate the loss from activations: the formula's share of it is taken.
    """
    phases: dict[Phase, tuple[Term, ...]] = {}
    for phase, parts in found.tracked_phases_bytes.items():
        sizes = msgspec.structs.asdict(parts)
        sizes["loss"] = min(sizes["activations"], total_bytes(logits_terms(setting)) if phase == "loss" else 0.0)
        sizes["activations"] -= sizes["loss"]
        phases[phase] = tuple(term(part, "as tracked", Factor(size, "MiB")) for part, size in sizes.items())
    return phases


def estimate_by_part(found: Candidate) -> PeakParts:
    """Return the breakdown of a candidate in the parts of the tracker."""
    parts, steps = found.breakdown, found.peak_phase == "step"
    return PeakParts(
        params=parts.params,
        grads=parts.grads,
        optimizer=parts.optimizer,
        activations=parts.activations + parts.loss + (0.0 if steps else parts.temporaries),
        buffers=parts.buffers,
        temporaries=parts.temporaries if steps else 0.0,
    )


def _differs(formula: PeakParts, seen: PeakParts, peak: float) -> list[str]:
    by = {part: abs(getattr(formula, part) - getattr(seen, part)) for part in PeakParts.__struct_fields__}
    return sorted((part for part, size in by.items() if size > SAME * peak), key=lambda part: -by[part])


def _notes(setting: TrainingSetup, answer: TrackerResult) -> list[str]:
    """Return notes on what the tracked figure leaves out, or treats differently from the setting."""
    train = setting.train
    units = setting.layout.is_fully_shard or train.act_ckpt == "full"
    notes = {
        "Tracked are the bytes of tensors: no gaps of the allocator, no CUDA context, no buffers of NCCL.": True,
        f"Units of sharding and recomputation: the {answer.blocks} {answer.block} modules.": answer.block and units,
        "torch.compile is not tracked: the module runs without it.": train.compile,
        f"The loss is tracked as plain cross-entropy, not {train.loss}.": train.loss in ("compiled", "fused-linear"),
        "Adapters, quantized and frozen weights are tracked as --model builds them.": (
            train.lora or train.quant or train.frozen
        ),
    }
    return [line for line, applies in notes.items() if applies]


def _request(setting: TrainingSetup, source: ModuleSource) -> dict[str, Any]:
    """Return what the agent tracks: the training options and the layout by their own names, and the module."""
    layout = setting.layout
    of_module = {name: getattr(source, name) for name in ("factory", "config", "batch")}
    sizes = {"ranks": setting.gpus, "shard_size": layout.shard_size or setting.gpus // setting.nodes}
    return msgspec.structs.asdict(setting.train) | msgspec.structs.asdict(layout) | of_module | sizes
