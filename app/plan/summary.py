"""The three questions one has, each answered in a line: does it fit, which is fastest, what would more GPUs buy."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..text.units import GIB, gib_text, seconds_text
from . import spec
from .memory.activations import has_known_shape
from .model_source import ModelSource
from .strategies.evaluate import PlanContext, round_to_three_digits
from .strategies.explain import explain_candidate, explain_candidates
from .strategies.search import ALIKE, context_of, rank_candidates
from .timing.communication import Links
from .types import Checkpointing, Model, PlanRow, TrainingSetup

MOST_TRIED = 2048  # GPUs, where fewer are not enough


class FormRequest(NamedTuple):
    """A complete setting with what else its plan depends on. ``recompute``: only that, None is each that is worth it;
    ``more_gpus``: how many are thought of besides; ``per_node``: GPUs of a node that is full; ``source``: where the
    model is from."""

    setting: TrainingSetup
    links: Links
    host_bytes: float | None
    nvme_bytes: float | None
    recompute: Checkpointing | None
    more_gpus: int
    per_node: int
    source: ModelSource


class PlanSummary(NamedTuple):
    """The strategies in figures, the best first, and the best one with more GPUs, once that is known; ``enough``: the
    best one on the fewest GPUs that were tried, where nothing fits on those."""

    question: FormRequest
    rows: list[PlanRow]
    more: PlanRow | None = None
    enough: PlanRow | None = None


class SummaryLine(NamedTuple):
    """``lead`` is what was asked, in a word or some; ``ways`` to say the answer, each shorter than the one before."""

    lead: str
    ways: tuple[str, ...]

    def within(self, width: int) -> str:
        """The answer that there is room for."""
        room = width - len(self.lead) - 2
        return next((said for said in self.ways if len(said) <= room), self.ways[-1])

    def __str__(self) -> str:
        return f"{self.lead}: {self.ways[0]}"


def make_summary(question: FormRequest) -> PlanSummary:
    """Plan for the GPUs there are."""
    return PlanSummary(question, _ranked(question.setting, question))


def add_scaling(found: PlanSummary) -> PlanSummary:
    """Plan for more GPUs as well, where they are whole nodes."""
    asked = found.question
    if why_no_scaling(asked):
        return found
    more = _ranked(with_more_gpus(asked), asked)[0]
    return found._replace(more=more, enough=None if _works(more) else _enough(asked))


def _works(row: PlanRow) -> bool:
    return row.candidate.fits is not False and row.candidate.in_practice


def _enough(asked: FormRequest) -> PlanRow | None:
    """The best strategy on twice, four times … as many whole nodes, as soon as one works."""
    gpus = asked.per_node * max(1, with_more_gpus(asked).nodes)
    while (gpus := 2 * gpus) <= MOST_TRIED:
        there = msgspec.structs.replace(asked.setting, gpus=gpus, nodes=gpus // asked.per_node)
        if _works(best := _ranked(there, asked)[0]):
            return best
    return None


def explain_row(found: PlanSummary, at: int) -> PlanRow:
    """One of the strategies with what is said of it: with all of them a plan takes three times as long."""
    return explain_candidate(found.rows, at, _around(found.question.setting, found.question))


def explain_rows(found: PlanSummary) -> list[PlanRow]:
    """All of them with what is said of them."""
    return explain_candidates(found.rows, _around(found.question.setting, found.question))


def _ranked(setting: TrainingSetup, asked: FormRequest) -> list[PlanRow]:
    return rank_candidates(setting, _around(setting, asked), asked.recompute, asked.nvme_bytes)


def _around(setting: TrainingSetup, asked: FormRequest) -> PlanContext:
    return context_of(setting, asked.links, asked.host_bytes)


def with_more_gpus(asked: FormRequest) -> TrainingSetup:
    """The setting with the GPUs that are thought of, on nodes of the size there is, the same work for each GPU."""
    gpus = asked.setting.gpus + asked.more_gpus
    return msgspec.structs.replace(asked.setting, gpus=gpus, nodes=-(-gpus // asked.per_node))


def nearest_full_nodes(gpus: int, per_node: int, more: int, up: bool = True) -> int:
    """The number next to ``more``, above or below it, with which all are on one node or fill their nodes; at least
    one."""
    wanted = gpus + more
    if wanted > per_node:
        wanted = (-(-wanted // per_node) if up else wanted // per_node) * per_node
    wanted = min(wanted, max(spec.MOST // per_node * per_node, 1))
    return wanted - gpus if wanted > gpus else max(1, per_node - gpus % per_node)


def why_no_scaling(asked: FormRequest) -> str:
    """Why nothing can be said of so many more; empty where it can."""
    gpus = asked.setting.gpus + asked.more_gpus
    if gpus > spec.MOST:
        return f"not planned; {spec.MOST:,} GPUs are the most."
    if gpus > asked.per_node and gpus % asked.per_node:
        return f"not planned; {gpus:,} do not fill nodes of {asked.per_node}."
    return ""


def is_pending(found: PlanSummary) -> bool:
    """Whether the answer for more GPUs is still to come."""
    return found.more is None and not why_no_scaling(found.question)


def tokens_per_s(row: PlanRow) -> float | None:
    """Over all GPUs."""
    return row.candidate.tokens_per_s


def summary_lines(found: PlanSummary) -> list[SummaryLine]:
    """The three answers; the third as far as it is known."""
    return [
        SummaryLine("Fits", fit_answer(found.rows)),
        SummaryLine("Fastest", fastest_answer(found.rows)),
        SummaryLine(
            f"With {found.question.more_gpus:,} more GPU{'s' * (found.question.more_gpus != 1)}", scaling_answer(found)
        ),
    ]


def fit_answer(rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """How many strategies fit, and the simplest of them; and the same in short."""
    model = rows[0].setting.model
    names = {row.candidate.strategy for row in rows}
    fitting = [row for row in rows if row.candidate.fits is True and row.candidate.in_practice]
    tight = {row.candidate.strategy for row in rows if row.candidate.fits == "tight" and row.candidate.in_practice}
    slow = next((row for row in rows if row.candidate.fits is not False and not row.candidate.in_practice), None)
    if not has_known_shape(model):
        least = rows[0].candidate.device_used_bytes_per_gpu / GIB
        said = f"not known without layers and hidden size; {strategy_label(rows[0])} needs {least:,.1f} GiB and more."
        return said, "not known without layers and hidden size."
    loss = "" if includes_loss(model) else " without the loss (no vocab given)"
    if fitting:
        held = {row.candidate.strategy for row in fitting}
        only_just = f" ({len(tight - held)} more only just)" if tight - held else ""
        simplest = min(fitting, key=_complexity)
        said = f"{len(held)} of {len(names)} strategies{loss}{only_just}; the simplest is {strategy_label(simplest)}."
        if loss:
            return said, f"{len(held)} of {len(names)}{loss}{only_just}; {strategy_label(simplest)}."
        return said, f"{len(held)} of {len(names)}{only_just}; simplest: {strategy_label(simplest)}."
    if tight:
        nearest = next(row for row in rows if row.candidate.fits == "tight" and row.candidate.in_practice)
        said = f"{len(tight)} of {len(names)} strategies{loss}, only just: {strategy_label(nearest)}."
        return said, f"{len(tight)} of {len(names)}{loss}, only just: {strategy_label(nearest)}."
    if slow:
        took = f"{seconds_text(slow.candidate.step_seconds)} a step"
        said = f"none of {len(names)} strategies in practice; {strategy_label(slow)} takes {took}."
        return said, f"none of {len(names)} in practice: {took}, {slow.candidate.strategy}."
    said = f"none of {len(names)} strategies; nearest is {strategy_label(rows[0])}, {shortage_text(rows[0])}."
    nearest = rows[0].candidate.strategy
    return (
        said,
        f"none of {len(names)}; nearest {strategy_label(rows[0])}, {shortage_text(rows[0])}.",
        f"none of {len(names)}; {nearest}, {shortage_text(rows[0])}.",
        f"none of {len(names)}; {shortage_text(rows[0])}.",
    )


def includes_loss(model: Model) -> bool:
    """Whether what the loss takes is in the figures; a vision model has no vocabulary."""
    return bool(model.vocab) or model.kind == "vision"


def missing_memory(model: Model) -> str:
    """What is missing in the memory of every strategy, and what would bring it in; empty where nothing is."""
    if not has_known_shape(model):
        return "Not counted: activations and the loss; give layers and hidden size, as in 7b 32 4096 32000."
    return (
        "" if includes_loss(model) else "Not counted: the loss; give the vocabulary as fourth, as in 7b 32 4096 32000."
    )


def fastest_answer(rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """The fastest that fits, with its time, and the same in short: of those that are alike, which ranks first, with
    what is a little faster."""
    if not has_known_shape(rows[0].setting.model):
        return ("not known without them either.",)
    fitting = [row for row in rows if row.candidate.fits is not False and row.candidate.step_seconds]
    if not fitting:
        return ("nothing fits.",)
    if not any(row.candidate.in_practice for row in fitting):
        return ("nothing fits in practice.",)
    practical = [row for row in fitting if row.candidate.in_practice]
    surely = [row for row in practical if row.candidate.fits != "tight"] or practical
    first = min(surely, key=_step_s)
    best = next(row for row in surely if _step_s(row) <= ALIKE * _step_s(first))
    shorter = (
        f"{strategy_label(best)}, {speed_text(best)}.",
        f"{strategy_label(best)}, {seconds_text(_step_s(best))} a step.",
        f"{strategy_label(best)}.",
    )
    ahead = _step_s(best) / _step_s(first) - 1
    if seconds_text(_step_s(best)) == seconds_text(_step_s(first)):
        return shorter
    said = f"{strategy_label(best)}, {speed_text(best)} ({strategy_label(first)}, less simple, is {ahead:.1%} faster)."
    return said, f"{strategy_label(best)}, {speed_text(best)} ({strategy_label(first)}: {ahead:.1%} faster).", *shorter


def _step_s(row: PlanRow) -> float:
    return row.candidate.step_seconds or 0.0


def scaling_answer(found: PlanSummary) -> tuple[str, ...]:
    """What the best strategy on more GPUs does; and the same in short."""
    best, now = found.more, found.rows[0]
    if not has_known_shape(now.setting.model):
        return ("not known.",)
    if said := why_no_scaling(found.question):
        return (said,)
    if best is None:
        return ("…",)
    if not _works(best):
        return _not_bought(best, found.enough)
    rate, rate_now = tokens_per_s(best), tokens_per_s(now)
    if not rate:
        return ("no time is known.",)
    times = f"{_times(rate / rate_now)} ×" if _works(now) and rate_now else "fits then"
    where = _where(best.setting, found.question.links)
    return (
        f"{speed_text(best)}, {times} ({where}, {strategy_label(best)}).",
        f"{times}, {round_to_three_digits(rate):,.0f} tokens/s ({where}).",
        f"{times}, {round_to_three_digits(rate):,.0f} tokens/s.",
        f"{times}.",
    )


def _not_bought(best: PlanRow, enough: PlanRow | None) -> tuple[str, ...]:
    """That nothing works on so many either, what lacks, and how many would do."""
    nothing = "nothing fits either" if best.candidate.fits is False else "nothing fits in practice"
    lacks = shortage_text(best) if best.candidate.fits is False else speed_text(best)
    if enough is None:
        return f"{nothing}; {strategy_label(best)}, {lacks}.", f"{nothing}; {lacks}.", f"{nothing}."
    enough_said = f"{nothing}; {enough.setting.gpus:,} GPUs are enough"
    return (
        f"{enough_said} ({strategy_label(enough)}, {speed_text(enough)}).",
        f"{enough_said} ({strategy_label(enough)}).",
        f"{enough_said}.",
    )


def speed_text(row: PlanRow) -> str:
    """``0.43 s a step, 76,300 tokens/s``."""
    rate = tokens_per_s(row)
    return f"{seconds_text(row.candidate.step_seconds)} a step, {round_to_three_digits(rate or 0.0):,.0f} tokens/s"


def shortage_text(row: PlanRow) -> str:
    """What a candidate lacks."""
    over_bytes = row.candidate.device_used_bytes_per_gpu - (row.setting.gpu_memory_gib or 0.0) * GIB
    return f"{gib_text(over_bytes)} over" if over_bytes > 0 else "too much for the host"


def strategy_label(row: PlanRow) -> str:
    """A strategy as one calls it, with what it computes twice."""
    return row.candidate.full_name


def _complexity(row: PlanRow) -> tuple[bool, bool, int, bool]:
    """The less of it, the less is to be set up: no offload, no recomputation, the plainest way of sharding, as it is by
    itself."""
    strategy = row.setting.layout
    kinds = ("single", "ddp", "zero-optimizer", "fsdp2", "hsdp", "deepspeed")
    offloads = bool(strategy.cpu_offload or strategy.offload_optimizer or strategy.offload_param)
    place = kinds.index(strategy.kind) if strategy.kind in kinds else len(kinds)
    return offloads, row.candidate.recompute != "none", place, strategy.reshard_after_forward not in (None, True)


def _where(setting: TrainingSetup, links: Links) -> str:
    if setting.nodes == 1:
        return f"{setting.gpus:,} in all"
    return f"{setting.gpus:,} on {setting.nodes:,} nodes, {links.inter_gbps:.0f} GB/s"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
