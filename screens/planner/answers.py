"""The three questions one has, each answered in a line: does it fit, which is fastest, what would more GPUs buy."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...app.plan import spec
from ...app.plan.choice.explain import all_explained, explained
from ...app.plan.choice.figures import Around, rounded
from ...app.plan.choice.search import ALIKE, around_of, ranked
from ...app.plan.memory.activations import counted
from ...app.plan.sources import Source
from ...app.plan.time.collectives import Links
from ...app.plan.types import GIB, Checkpointing, Model, Row, Setting

MOST_TRIED = 2048  # GPUs, where fewer are not enough


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
    """The strategies in figures, the best first, and the best one with more GPUs, once that is known; ``enough``: the
    best one on the fewest GPUs that were tried, where nothing fits on those."""

    question: Question
    rows: list[Row]
    more: Row | None = None
    enough: Row | None = None


class Line(NamedTuple):
    """``lead`` is what was asked, in a word or some; ``ways`` to say the answer, each shorter than the one before."""

    lead: str
    ways: tuple[str, ...]

    def within(self, width: int) -> str:
        """The answer that there is room for."""
        room = width - len(self.lead) - 2
        return next((said for said in self.ways if len(said) <= room), self.ways[-1])

    def __str__(self) -> str:
        return f"{self.lead}: {self.ways[0]}"


def answer(question: Question) -> Answer:
    """Plan for the GPUs there are."""
    return Answer(question, _ranked(question.setting, question))


def answer_more(found: Answer) -> Answer:
    """Plan for more GPUs as well, where they are whole nodes."""
    asked = found.question
    if uneven(asked):
        return found
    more = _ranked(with_more(asked), asked)[0]
    return found._replace(more=more, enough=None if _works(more) else _enough(asked))


def _works(row: Row) -> bool:
    return row.candidate.fits is not False and row.candidate.in_practice


def _enough(asked: Question) -> Row | None:
    """The best strategy on twice, four times … as many whole nodes, as soon as one works."""
    gpus = asked.per_node * max(1, with_more(asked).nodes)
    while (gpus := 2 * gpus) <= MOST_TRIED:
        there = msgspec.structs.replace(asked.setting, gpus=gpus, nodes=gpus // asked.per_node)
        if _works(best := _ranked(there, asked)[0]):
            return best
    return None


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
        Line("Fits", fits(found.rows)),
        Line("Fastest", fastest(found.rows)),
        Line(f"With {found.question.more_gpus:,} more GPU{'s' * (found.question.more_gpus != 1)}", bought(found)),
    ]


def fits(rows: Sequence[Row]) -> tuple[str, ...]:
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
    nearest = rows[0].candidate.strategy
    return (
        said,
        f"none of {len(names)}; nearest {name(rows[0])}, {missing(rows[0])}.",
        f"none of {len(names)}; {nearest}, {missing(rows[0])}.",
        f"none of {len(names)}; {missing(rows[0])}.",
    )


def counts_loss(model: Model) -> bool:
    """Whether what the loss takes is in the figures; a vision model has no vocabulary."""
    return bool(model.vocab) or model.kind == "vision"


def uncounted(model: Model) -> str:
    """What is missing in the memory of every strategy, and what would bring it in; empty where nothing is."""
    if not counted(model):
        return "Not counted: activations and the loss; give layers and hidden size, as in 7b 32 4096 32000."
    return "" if counts_loss(model) else "Not counted: the loss; give the vocabulary as fourth, as in 7b 32 4096 32000."


def fastest(rows: Sequence[Row]) -> tuple[str, ...]:
    """The fastest that fits, with its time, and the same in short: of those that are alike, which ranks first, with
    what is a little faster."""
    if not counted(rows[0].setting.model):
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
    shorter = (f"{name(best)}, {speed(best)}.", f"{name(best)}, {seconds(_step_s(best))} a step.", f"{name(best)}.")
    ahead = _step_s(best) / _step_s(first) - 1
    if seconds(_step_s(best)) == seconds(_step_s(first)):
        return shorter
    said = f"{name(best)}, {speed(best)} ({name(first)}, less simple, is {ahead:.1%} faster)."
    return said, f"{name(best)}, {speed(best)} ({name(first)}: {ahead:.1%} faster).", *shorter


def _step_s(row: Row) -> float:
    return row.candidate.step_seconds or 0.0


def bought(found: Answer) -> tuple[str, ...]:
    """What the best strategy on more GPUs does; and the same in short."""
    best, now = found.more, found.rows[0]
    if not counted(now.setting.model):
        return ("not known.",)
    if said := uneven(found.question):
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
        f"{speed(best)}, {times} ({where}, {name(best)}).",
        f"{times}, {rounded(rate):,.0f} tokens/s ({where}).",
        f"{times}, {rounded(rate):,.0f} tokens/s.",
        f"{times}.",
    )


def _not_bought(best: Row, enough: Row | None) -> tuple[str, ...]:
    """That nothing works on so many either, what lacks, and how many would do."""
    nothing = "nothing fits either" if best.candidate.fits is False else "nothing fits in practice"
    lacks = missing(best) if best.candidate.fits is False else speed(best)
    if enough is None:
        return f"{nothing}; {name(best)}, {lacks}.", f"{nothing}; {lacks}.", f"{nothing}."
    enough_said = f"{nothing}; {enough.setting.gpus:,} GPUs are enough"
    return f"{enough_said} ({name(enough)}, {speed(enough)}).", f"{enough_said} ({name(enough)}).", f"{enough_said}."


def speed(row: Row) -> str:
    """``0.43 s a step, 76,300 tokens/s``."""
    rate = tokens_per_s(row)
    return f"{seconds(row.candidate.step_seconds)} a step, {rounded(rate or 0.0):,.0f} tokens/s"


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
