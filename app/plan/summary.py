"""Three answers of a plan, a line each: which strategy to use, how many fit, what more GPUs would give."""

from collections.abc import Sequence
from typing import NamedTuple

from ..text.units import GIB, gbps_text, gib_number, gib_text, ratio_text, seconds_text, speed_gain_text
from .memory.computation import has_known_shape
from .plan_answer import PlanAnswer, why_no_scaling
from .strategies.evaluate import rate_text
from .strategies.ranking import shortage_text
from .timing.communication import Links
from .types import Model, PlanRow, TrainingSetup


class SummaryLine(NamedTuple):
    """One answer: ``lead`` names the question, ``ways`` are sentences that answer it, each shorter than the last."""

    lead: str
    ways: tuple[str, ...]

    def within(self, width: int) -> str:
        """Return the longest answer that fits into ``width`` after the lead."""
        room = width - len(self.lead) - 2
        return next((way for way in self.ways if len(way) <= room), self.ways[-1])

    def __str__(self) -> str:
        return f"{self.lead}: {self.ways[0]}"


def summary_lines(found: PlanAnswer) -> list[SummaryLine]:
    """Return the three answers; the third is "…" until it is computed."""
    more_gpus = found.request.more_gpus
    return [
        SummaryLine("Use", recommendation(found.rows)),
        SummaryLine("Fits", fit_answer(found.rows)),
        SummaryLine(f"With {more_gpus:,} more GPU{'s' * (more_gpus != 1)}", scaling_answer(found)),
    ]


def fit_answer(rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """Return how many strategies fit, or the nearest one if none does, in full and in a shorter sentence."""
    model, first = rows[0].setting.model, rows[0].candidate
    if not has_known_shape(model):
        least = gib_text(first.device_used_bytes_per_gpu)
        unknown = "not known without layers and hidden size"
        return f"{unknown}; {first.full_name} needs {least} and more.", f"{unknown}."
    total = len({row.candidate.strategy for row in rows})
    loss = "" if includes_loss(model) else " without the loss (no vocab given)"
    practical = [row.candidate for row in rows if row.candidate.in_practice]
    fits, tight = ({each.strategy for each in practical if each.fits == verdict} for verdict in (True, "tight"))
    if fits:
        only_just = f" ({len(tight - fits)} more only just)" if tight - fits else ""
        return f"{len(fits)} of {total} strategies{loss}{only_just}.", f"{len(fits)} of {total}{only_just}."
    if tight:
        only_just = f"{loss}, only just: {next(each for each in practical if each.fits == 'tight').full_name}."
        return f"{len(tight)} of {total} strategies{only_just}", f"{len(tight)} of {total}{only_just}"
    if first.fits is not False:
        step = f"{seconds_text(first.step_seconds)} a step"
        return (
            f"none of {total} strategies is fast enough; {first.full_name} fits and takes {step}.",
            f"none of {total} is fast enough; {first.strategy}: {step}.",
        )
    shortage = shortage_text(rows[0])
    return (
        f"none of {total} strategies; closest is {first.full_name}, {shortage}.",
        f"none of {total}; closest {first.full_name}, {shortage}.",
        f"none of {total}; {first.strategy}, {shortage}.",
        f"none of {total}; {shortage}.",
    )


def includes_loss(model: Model) -> bool:
    """Return whether the figures include the memory of the loss; a vision model has no vocabulary."""
    return bool(model.vocab) or model.kind == "vision"


def missing_memory(model: Model) -> str:
    """Return which memory no strategy counts, and what to give for it to be counted, or "" if all is counted."""
    if not has_known_shape(model):
        return "Not counted: activations and the loss; give layers and hidden size, as in 7b 32 4096 32000."
    return (
        "" if includes_loss(model) else "Not counted: the loss; give the vocabulary as fourth, as in 7b 32 4096 32000."
    )


def recommendation(rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """Return the strategy to use, with its memory and time, in full and in shorter sentences."""
    if not has_known_shape(rows[0].setting.model):
        return ("not known without layers and hidden size.",)
    best = rows[0]
    if best.candidate.fits is False:
        return ("no strategy fits.",)
    if not best.candidate.in_practice:
        return ("no strategy; all that fit are too slow.",)
    alike = (row for row in rows if row.candidate.works and row.candidate.fits == best.candidate.fits)
    first = min(alike, key=lambda row: row.candidate.step_seconds)
    best_s, first_s = best.candidate.step_seconds, first.candidate.step_seconds
    memory = _memory_text(best)
    shorter = (
        f"{best.candidate.full_name}{memory}, {speed_text(best)}.",
        f"{best.candidate.full_name}, {speed_text(best)}.",
        f"{best.candidate.full_name}, {seconds_text(best_s)} a step.",
        f"{best.candidate.full_name}.",
    )
    if seconds_text(best_s) == seconds_text(first_s):
        return shorter
    ahead = speed_gain_text(best_s / first_s)
    label = f"{best.candidate.full_name}{memory}, {speed_text(best)}"
    return (
        f"{label} ({first.candidate.full_name} is {ahead}, but less simple).",
        f"{label} ({first.candidate.full_name}: {ahead}).",
        *shorter,
    )


def _memory_text(row: PlanRow) -> str:
    """Return ``, 8.7 of 79 GiB``, or "" if the memory of the GPU is not known."""
    if row.setting.gpu_memory_gib is None:
        return ""
    used = gib_number(row.candidate.device_used_bytes_per_gpu)
    return f", {used} of {gib_text(row.setting.gpu_memory_gib * GIB, 0)}"


def scaling_answer(found: PlanAnswer) -> tuple[str, ...]:
    """Return how fast the best strategy on more GPUs is, in full and in shorter sentences."""
    best, now = found.more, found.rows[0]
    if not has_known_shape(now.setting.model):
        return ("not known.",)
    if why := why_no_scaling(found.request):
        return (why,)
    if best is None:
        return ("…",)
    if not best.candidate.works:
        return _no_gain(best, found.enough)
    rate = best.candidate.tokens_per_s
    times = f"{ratio_text(rate / now.candidate.tokens_per_s)} × as fast" if now.candidate.works else "it fits then"
    where = _where(best.setting, found.request.scaled_links)
    return (
        f"{speed_text(best)}, {times} ({where}, {best.candidate.full_name}).",
        f"{times}, {rate_text(rate)} tokens/s ({where}).",
        f"{times}, {rate_text(rate)} tokens/s.",
        f"{times}.",
    )


def _no_gain(best: PlanRow, enough: PlanRow | None) -> tuple[str, ...]:
    """Return that nothing works on more GPUs either, what is missing, and how many would be enough."""
    nothing = "nothing fits either" if best.candidate.fits is False else "what fits is too slow"
    shortage = shortage_text(best) if best.candidate.fits is False else speed_text(best)
    if enough is None:
        return f"{nothing}; {best.candidate.full_name}, {shortage}.", f"{nothing}; {shortage}.", f"{nothing}."
    answer = f"{nothing}; {enough.setting.gpus:,} GPUs are enough"
    return (
        f"{answer} ({enough.candidate.full_name}, {speed_text(enough)}).",
        f"{answer} ({enough.candidate.full_name}).",
        f"{answer}.",
    )


def speed_text(row: PlanRow) -> str:
    """Return the speed of a strategy as ``0.43 s a step, 76,300 tokens/s``."""
    return f"{seconds_text(row.candidate.step_seconds)} a step, {rate_text(row.candidate.tokens_per_s)} tokens/s"


def _where(setting: TrainingSetup, links: Links) -> str:
    if setting.nodes == 1:
        return f"{setting.gpus:,} in total"
    return f"{setting.gpus:,} on {setting.nodes:,} nodes, {gbps_text(links.inter_gbps)}"
