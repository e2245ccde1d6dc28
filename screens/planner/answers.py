"""The three questions one has, each answered in a line: does it fit, which is fastest, what would more GPUs buy."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...app.plan import spec
from ...app.plan.choice.explain import all_explained, explained
from ...app.plan.choice.figures import Around
from ...app.plan.choice.search import ALIKE, around_of, ranked
from ...app.plan.memory.activations import counted
from ...app.plan.sources import Source
from ...app.plan.time.collectives import Links
from ...app.plan.types import GIB, Checkpointing, Model, Row, Setting


class Question(NamedTuple):
    """A complete setting with what else its plan depends on. ``recompute``: only that, None is each that is worth it;
    ``more_gpus``: how many are thought of besides; ``per_node``: GPUs of a node that is full; ``source``: where the
    model is from."""

    setting: Setting
    links: Links
    host_bytes: float | None
    nvme_bytes: float | None
    recompute: Checkpointing | None
    more_gpus: int
    per_node: int
    source: Source


class Answer(NamedTuple):
    """The strategies in figures, the best first, and the best one with more GPUs, once that is known."""

    question: Question
    rows: list[Row]
    more: Row | None = None


class Line(NamedTuple):
    """``lead`` is what was asked, in a word or some; ``said`` the answer, ``short`` it for less room."""

    lead: str
    said: str
    short: str = ""

    def within(self, width: int) -> str:
        """The answer that there is room for."""
        return self.said if len(self.lead) + 2 + len(self.said) <= width else self.short or self.said

    def __str__(self) -> str:
        return f"{self.lead}: {self.said}"


def answer(question: Question) -> Answer:
    """Plan for the GPUs there are."""
    return Answer(question, _ranked(question.setting, question))


def answer_more(found: Answer) -> Answer:
    """Plan for more GPUs as well, where they are whole nodes."""
    asked = found.question
    if uneven(asked):
        return found
    return found._replace(more=_ranked(with_more(asked), asked)[0])


def explained_row(found: Answer, at: int) -> Row:
    """One of the strategies with what is said of it: with all of them a plan takes three times as long."""
    return explained(found.rows, at, _around(found.question.setting, found.question))


def explained_rows(found: Answer) -> list[Row]:
    """All of them with what is said of them."""
    return all_explained(found.rows, _around(found.question.setting, found.question))


def _ranked(setting: Setting, asked: Question) -> list[Row]:
    return ranked(setting, _around(setting, asked), asked.recompute, asked.nvme_bytes)


def _around(setting: Setting, asked: Question) -> Around:
    return around_of(setting, asked.links, asked.host_bytes)


def with_more(asked: Question) -> Setting:
    """The setting with the GPUs that are thought of, on nodes of the size there is, the same work for each GPU."""
    gpus = asked.setting.gpus + asked.more_gpus
    return msgspec.structs.replace(asked.setting, gpus=gpus, nodes=-(-gpus // asked.per_node))


def whole(gpus: int, per_node: int, more: int, up: bool = True) -> int:
    """The number next to ``more``, above or below it, with which all are on one node or fill their nodes; at least
    one."""
    wanted = gpus + more
    if wanted > per_node:
        wanted = (-(-wanted // per_node) if up else wanted // per_node) * per_node
    wanted = min(wanted, max(spec.MOST // per_node * per_node, 1))
    return wanted - gpus if wanted > gpus else max(1, per_node - gpus % per_node)


def uneven(asked: Question) -> str:
    """Why nothing can be said of so many more; empty where it can."""
    gpus = asked.setting.gpus + asked.more_gpus
    if gpus > spec.MOST:
        return f"not planned; {spec.MOST:,} GPUs are the most."
    if gpus > asked.per_node and gpus % asked.per_node:
        return f"not planned; {gpus:,} do not fill nodes of {asked.per_node}."
    return ""


def is_thinking(found: Answer) -> bool:
    """Whether the answer for more GPUs is still to come."""
    return found.more is None and not uneven(found.question)


def tokens_per_s(row: Row) -> float | None:
    """Over all GPUs."""
    return row.candidate.tokens_per_s


def lines(found: Answer) -> list[Line]:
    """The three answers; the third as far as it is known."""
    return [
        Line("Fits", *fits(found.rows)),
        Line("Fastest", fastest(found.rows)),
        Line(f"With {found.question.more_gpus:,} more GPU{'s' * (found.question.more_gpus != 1)}", *bought(found)),
    ]


def fits(rows: Sequence[Row]) -> tuple[str, str]:
    """How many strategies fit, and the simplest of them; and the same in short."""
    model = rows[0].setting.model
    names = {row.candidate.strategy for row in rows}
    fitting = [row for row in rows if row.candidate.fits is True and row.candidate.in_practice]
    tight = {row.candidate.strategy for row in rows if row.candidate.fits == "tight" and row.candidate.in_practice}
    slow = next((row for row in rows if row.candidate.fits is not False and not row.candidate.in_practice), None)
    if not counted(model):
        least = rows[0].candidate.device_used_bytes_per_gpu / GIB
        said = f"not known without layers and hidden size; {name(rows[0])} needs {least:,.1f} GiB and more."
        return said, "not known without layers and hidden size."
    loss = "" if counts_loss(model) else " without the loss (no vocab given)"
    if fitting:
        held = {row.candidate.strategy for row in fitting}
        only_just = f" ({len(tight - held)} more only just)" if tight - held else ""
        simplest = min(fitting, key=_complexity)
        said = f"{len(held)} of {len(names)} strategies{loss}{only_just}; the simplest is {name(simplest)}."
        if loss:
            return said, f"{len(held)} of {len(names)}{loss}{only_just}; {name(simplest)}."
        return said, f"{len(held)} of {len(names)}{only_just}; simplest: {name(simplest)}."
    if tight:
        nearest = next(row for row in rows if row.candidate.fits == "tight" and row.candidate.in_practice)
        said = f"{len(tight)} of {len(names)} strategies{loss}, only just: {name(nearest)}."
        return said, f"{len(tight)} of {len(names)}{loss}, only just: {name(nearest)}."
    if slow:
        took = f"{seconds(slow.candidate.step_seconds)} a step"
        said = f"none of {len(names)} strategies in practice; {name(slow)} takes {took}."
        return said, f"none of {len(names)} in practice: {took}, {slow.candidate.strategy}."
    said = f"none of {len(names)} strategies; nearest is {name(rows[0])}, {missing(rows[0])}."
    return said, f"none of {len(names)}; nearest {name(rows[0])}, {missing(rows[0])}."


def counts_loss(model: Model) -> bool:
    """Whether what the loss takes is in the figures; a vision model has no vocabulary."""
    return bool(model.vocab) or model.kind == "vision"


def uncounted(model: Model) -> str:
    """What is missing in the memory of every strategy, and what would bring it in; empty where nothing is."""
    if not counted(model):
        return "Not counted: activations and the loss; give layers and hidden size, as in 7b 32 4096 32000."
    return "" if counts_loss(model) else "Not counted: the loss; give the vocabulary as fourth, as in 7b 32 4096 32000."


def fastest(rows: Sequence[Row]) -> str:
    """The fastest that fits, with its time: of those that are alike, which ranks first."""
    if not counted(rows[0].setting.model):
        return "not known without them either."
    fitting = [row for row in rows if row.candidate.fits is not False and row.candidate.step_seconds]
    if not fitting:
        return "nothing fits."
    if not any(row.candidate.in_practice for row in fitting):
        return "nothing fits in practice."
    practical = [row for row in fitting if row.candidate.in_practice]
    surely = [row for row in practical if row.candidate.fits != "tight"] or practical
    least_s = min(row.candidate.step_seconds or 0.0 for row in surely)
    best = next(row for row in surely if (row.candidate.step_seconds or 0.0) <= ALIKE * least_s)
    return f"{name(best)}, {speed(best)}."


def bought(found: Answer) -> tuple[str, str]:
    """What the best strategy on more GPUs does; and the same in short."""
    best, now = found.more, found.rows[0]
    if not counted(now.setting.model):
        return "not known.", ""
    if said := uneven(found.question):
        return said, ""
    if best is None:
        return "…", ""
    if best.candidate.fits is False:
        return f"nothing fits either; {name(best)}, {missing(best)}.", ""
    if not best.candidate.in_practice:
        return f"nothing fits in practice; {name(best)}, {speed(best)}.", "nothing fits in practice."
    rate, rate_now = tokens_per_s(best), tokens_per_s(now)
    if not rate:
        return "no time is known.", ""
    fits_now = now.candidate.fits is not False and now.candidate.in_practice
    times = f"{_times(rate / rate_now)} ×" if fits_now and rate_now else "fits then"
    where = _where(best.setting, found.question.links)
    return f"{speed(best)}, {times} ({where}, {name(best)}).", f"{times}, {_rounded(rate):,.0f} tokens/s ({where})."


def speed(row: Row) -> str:
    """``0.43 s a step, 76,300 tokens/s``."""
    rate = tokens_per_s(row)
    return f"{seconds(row.candidate.step_seconds)} a step, {_rounded(rate or 0.0):,.0f} tokens/s"


def seconds(value: float | None) -> str:
    """A time in its unit: ``0.43 s``, ``12 s``, ``4 ms``."""
    if value is None:
        return "–"
    if value < 0.1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def rounded_s(value: float) -> float:
    """A time as ``seconds`` says it."""
    if value < 0.1:
        return float(f"{value:.3g}")
    return round(value, 2 if value < 100 else 0)


def missing(row: Row) -> str:
    """What a candidate lacks."""
    over = row.candidate.device_used_bytes_per_gpu / GIB - (row.setting.gpu_memory_gib or 0.0)
    return f"{over:,.1f} GiB over" if over > 0 else "too much for the host"


def name(row: Row) -> str:
    """A strategy as one calls it, with what it computes twice."""
    return row.candidate.full_name


def _complexity(row: Row) -> tuple[bool, bool, int, bool]:
    """The less of it, the less is to be set up: no offload, no recomputation, the plainest way of sharding, as it is by
    itself."""
    strategy = row.setting.layout
    kinds = ("single", "ddp", "zero-optimizer", "fsdp2", "hsdp", "deepspeed")
    offloads = bool(strategy.cpu_offload or strategy.offload_optimizer or strategy.offload_param)
    place = kinds.index(strategy.kind) if strategy.kind in kinds else len(kinds)
    return offloads, row.candidate.recompute != "none", place, strategy.reshard_after_forward not in (None, True)


def _where(setting: Setting, links: Links) -> str:
    if setting.nodes == 1:
        return f"{setting.gpus:,} in all"
    return f"{setting.gpus:,} on {setting.nodes:,} nodes, {links.inter_gbps:.0f} GB/s"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def _rounded(value: float) -> float:
    """To three digits: it is an estimate."""
    return float(f"{value:.3g}")
