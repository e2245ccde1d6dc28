"""``plan --exact``: the peak of the user's own module as torch's trackers see it, beside what the formulas say.

The agent ``exact_peak.py`` runs in the user's interpreter on fake tensors; here it is started with limits, told which
setting to train, and its answer set against the candidate's.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import UserError
from ..system.files import read_regular_file
from ..system.subprocesses import run_process
from ..text.units import GIB, MIB
from .memory.peak import strategy_name
from .model.from_code import names_function
from .types import Candidate, Checkpointing, PlanRow, TrainingSetup

AGENT = Path(__file__).parent.parent / "agents" / "exact_peak.py"
SOURCE_LIMIT_BYTES = 10_000_000
LIMIT_S = 150.0  # of one strategy; a model of 7 B takes 15 to 25 s on two cores
OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
TRACKED_KINDS = ("single", "ddp", "fsdp2", "hsdp")
OPTIMIZERS = ("adamw", "adam", "sgd")  # of torch.optim; the others' steps are not torch's, or read values
SAME = 0.01  # of the peak: parts that differ by less are as good as equal
PARTS = ("params", "grads", "optimizer", "activations", "buffers", "temporaries")
WORDS = {"activations": "activations and loss", "buffers": "buckets and gathered weights"}


class ModuleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the module comes from: ``factory`` or ``config``, a path or its JSON; ``batch`` gives the inputs of a
    micro-batch."""

    python: str
    directory: Path
    factory: str = ""
    config: str = ""
    batch: str = ""

    @property
    def imports(self) -> str:
        """What is imported of whose, in words."""
        names = {spec.partition(":")[0] for spec in (self.factory, self.batch) if spec}
        if self.config:
            names.add("transformers")
        return f"{', '.join(sorted(names))} in {self.directory} with {self.python}"


class PeakParts(msgspec.Struct, frozen=True, kw_only=True):
    """The peak by what it is made of; ``activations``: with the loss and what comes and goes in the backward pass;
    ``temporaries``: what the optimizer step makes for itself."""

    params: float
    grads: float
    optimizer: float
    activations: float
    buffers: float
    temporaries: float


class PeakSnapshot(msgspec.Struct, frozen=True):
    """What the tracker saw at the highest of one moment, bytes."""

    total: int
    categories: dict[str, int]
    parts: PeakParts


class SteadyState(msgspec.Struct, frozen=True):
    """What rank 0 keeps between two steps, bytes."""

    params: int
    grads: int
    optimizer: int


class TrackerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent says. ``used``: the most memory it took itself, bytes; ``block``: the class that is repeated."""

    problem: str = ""
    used: int = 0
    moments: dict[Literal["loss", "backward", "step"], PeakSnapshot] = {}
    kept: SteadyState = SteadyState(0, 0, 0)
    block: str = ""
    blocks: int = 0


class TrackedStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy by formula and tracked, bytes per GPU as PyTorch allocates them.

    ``problem``: why it was not tracked. ``differs``: the parts in which both differ, the one that does most
    first. ``categories_bytes``: the tracker's own. ``tracker_*``: what the tracking itself took.
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
    state_bytes: SteadyState | None = None
    categories_bytes: dict[str, int] = {}
    differs: list[str] = []
    notes: list[str] = []
    tracker_seconds: float = 0.0
    tracker_memory_bytes: int = 0


def resolve_module_source(
    python: str, directory: Path, factory: str | None, config: str | None, batch: str | None
) -> ModuleSource:
    """
    Raises:
        UserError: There is no module to track, or what is given names no function.
    """
    if not (factory or config):
        raise UserError(
            "--exact needs the module itself", "give --model NAME or PKG.MOD:FN, or --config; not --spec or --params"
        )
    if batch:
        module, _, function = batch.partition(":")
        if not names_function(batch):
            raise UserError(f"--batch {batch} names no function", "give it as package.module:function")
        if _lacks(directory.joinpath(*module.split(".")).with_suffix(".py"), function.partition(".")[0]):
            raise UserError(f"--batch {batch}: {module}.py has no {function}", "name the function that makes a batch")
    path = config if config and not factory else ""
    if path and not path.startswith("{"):
        path = str(Path(path).absolute())
    return ModuleSource(python=python, directory=directory, factory=factory or "", config=path, batch=batch or "")


def _lacks(file: Path, name: str) -> bool:
    """Whether a module that is here cannot have the name, as it stands nowhere in it; nothing is imported."""
    if not file.is_file():
        return False
    text = read_regular_file(file, SOURCE_LIMIT_BYTES, "name a module with --batch").decode("utf-8", "replace")
    return not re.search(rf"\b{name}\b|import +\*|__getattr__", text)


def unsupported_reason(setting: TrainingSetup, source: ModuleSource) -> str:
    """Why this setting cannot be tracked; empty where it can."""
    train, strategy = setting.train, setting.layout
    if train.act_ckpt not in (None, "none", "full"):
        return "of activation checkpointing only all or none is tracked"
    if train.optimizer not in OPTIMIZERS:
        return f"of optimizers only {', '.join(OPTIMIZERS)} are tracked, not {train.optimizer}"
    if strategy.kind == "deepspeed":
        return "torch's trackers do not know DeepSpeed"
    if strategy.kind not in TRACKED_KINDS:
        return f"torch's trackers do not know {strategy_name(strategy)}"
    if strategy.cpu_offload:
        return "the trackers do not tell what is offloaded from what is on the GPU"
    if train.optimizer_in_bwd:
        return "an optimizer that steps in the backward pass is not tracked"
    if (train.lora or train.quant or train.frozen) and not source.factory:
        return "adapters, quantised and frozen weights are tracked where --model builds them"
    return ""


def candidates_to_track(rows: Sequence[PlanRow], source: ModuleSource) -> list[PlanRow]:
    """What to track: the best that can be, and DDP beside it, or where that is the best, the next of another kind.

    Raises:
        UserError: None can be.
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
    """Track one candidate's setting; a ``problem`` where that fails in whatever way."""
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
    changes: dict[str, object] = {"tracker_seconds": outcome.elapsed_s}
    try:
        answer = (
            msgspec.json.decode(outcome.answer, type=TrackerResult)
            if outcome.answer
            else TrackerResult(problem=outcome.why)
        )
    except msgspec.MsgspecError as error:
        answer = TrackerResult(problem=f"no readable answer: {error}")
    changes["tracker_memory_bytes"] = answer.used
    if answer.problem:
        return msgspec.structs.replace(tracked, problem=answer.problem, **changes)
    phase = max(answer.moments, key=lambda moment: answer.moments[moment].total)
    seen = answer.moments[phase]
    return msgspec.structs.replace(
        tracked,
        tracked_peak_bytes_per_gpu=float(seen.total),
        tracked_phase=phase,
        tracked_bytes=seen.parts,
        tracked_phase_peaks_bytes={moment: each.total for moment, each in answer.moments.items()},
        state_bytes=answer.kept,
        categories_bytes={kind: size for kind, size in seen.categories.items() if size},
        differs=_differs(tracked.formula_bytes, seen.parts, seen.total),
        notes=_notes(setting, answer),
        **changes,
    )


def estimate_by_part(found: Candidate) -> PeakParts:
    """The candidate's breakdown in the tracker's parts."""
    parts, steps = found.breakdown, found.peak_phase == "step"
    return PeakParts(
        params=parts.params,
        grads=parts.grads,
        optimizer=parts.optimizer,
        activations=parts.activations + parts.loss + (0.0 if steps else parts.temporaries),
        buffers=parts.buffers,
        temporaries=parts.temporaries if steps else 0.0,
    )


def render_comparison(all_tracked: Sequence[TrackedStrategy]) -> list[str]:
    """The comparison as a small table, and what to know of it; a small model's in MiB."""
    unit = GIB if max(each.formula_peak_bytes_per_gpu for each in all_tracked) > GIB else MIB
    rows = [("strategy", "recompute", "formula", "tracked", "difference", "where they differ")]
    notes: list[str] = []
    for each in all_tracked:
        formula, seen = each.formula_peak_bytes_per_gpu, each.tracked_peak_bytes_per_gpu
        start = (each.strategy, "all" if each.recompute == "full" else "no", f"{formula / unit:.1f}")
        if seen is None:
            rows.append((*start, "—", "", f"not tracked: {each.problem}"))
        else:
            rows.append((*start, f"{seen / unit:.1f}", f"{formula / seen - 1:+.1%}", _where(each, unit)))
        notes += [note for note in each.notes if note not in notes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    name = "GiB" if unit == GIB else "MiB"
    head = f"What PyTorch allocates at the peak, {name} per GPU, by formula and tracked on your module:"
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return ["", head, *("  " + line for line in table), *notes]


def _where(each: TrackedStrategy, unit: int) -> str:
    """The parts that differ, by formula and tracked, and where the peak is for both."""
    if each.tracked_bytes is None or not each.differs:
        return f"nothing by over {SAME:.0%}"
    formula, seen = each.formula_bytes, each.tracked_bytes
    parts = [
        f"{WORDS.get(part, part)} {getattr(formula, part) / unit:.1f}, tracked {getattr(seen, part) / unit:.1f}"
        for part in each.differs
    ]
    phase = f"peak at the {each.formula_phase}, tracked at the {each.tracked_phase}"
    return "; ".join([*parts, *([phase] if each.formula_phase != each.tracked_phase else [])])


def _differs(formula: PeakParts, seen: PeakParts, peak: float) -> list[str]:
    by = {part: abs(getattr(formula, part) - getattr(seen, part)) for part in PARTS}
    return sorted((part for part in PARTS if by[part] > SAME * peak), key=lambda part: -by[part])


def _notes(setting: TrainingSetup, answer: TrackerResult) -> list[str]:
    """What the tracked figure leaves out, or takes otherwise than the setting says."""
    train = setting.train
    units = setting.layout.is_fully_shard or train.act_ckpt == "full"
    told = [
        "Tracked are the bytes of tensors: no gaps of the allocator, no CUDA context, no buffers of NCCL.",
        f"Sharded or computed again as units: the {answer.blocks} {answer.block} modules."
        if answer.block and units
        else "",
        "torch.compile is not tracked: the module is run as it is." if train.compile else "",
        f"The loss is tracked as plain cross-entropy, not {train.loss}."
        if train.loss in ("compiled", "fused-linear")
        else "",
        "Adapters, quantised and frozen weights are tracked as --model builds them."
        if train.lora or train.quant or train.frozen
        else "",
    ]
    return [line for line in told if line]


def _request(setting: TrainingSetup, source: ModuleSource) -> dict[str, object]:
    train, strategy = setting.train, setting.layout
    return {
        "factory": source.factory,
        "config": source.config,
        "batch": source.batch,
        "kind": strategy.kind,
        "ranks": setting.gpus,
        "shard_size": strategy.shard_size or setting.gpus // setting.nodes,
        "reshard": True if strategy.reshard_after_forward is None else strategy.reshard_after_forward,
        "bucket_view": strategy.gradient_as_bucket_view,
        "dtype": train.dtype or "fp32",
        "optimizer": train.optimizer,
        "optimizer_impl": train.optimizer_impl or "foreach",
        "micro_batch": train.micro_batch or 1,
        "seq_len": train.seq_len or 1,
        "grad_accum": train.grad_accum or 1,
        "recompute": train.act_ckpt == "full",
        "loss": train.loss or "eager",
        "attention": "eager" if train.attention == "eager" else "sdpa",
    }
