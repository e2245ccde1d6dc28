"""The answer to a plan request: the ranked strategies, what was tracked, what more GPUs give, and the scaling curve."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from . import exact_memory, spec
from .exact_memory import TrackedStrategy
from .rank_share import data_parallel_ranks
from .request import PlanRequest
from .spec import PER_NODE
from .strategies.evaluate import PlanContext, rate_text
from .strategies.explain import explain_candidate
from .strategies.search import context_of, planning_assumptions, rank_candidates, replan_with_tracked
from .timing.communication import Links
from .types import PlanRow, TrainingSetup

MOST_TRIED = 2048  # GPUs, if fewer are not enough


class PlanAnswer(NamedTuple):
    """The strategies with their figures, the best first.

    ``more`` is the best strategy with more GPUs, None until it is computed. ``enough`` is the best one on the fewest
    GPUs that were tried, if nothing fits on those.
    """

    request: PlanRequest
    rows: list[PlanRow]
    more: PlanRow | None = None
    enough: PlanRow | None = None


def make_answer(request: PlanRequest) -> PlanAnswer:
    """Plan for the GPUs of the request."""
    return PlanAnswer(request, ranked_rows(request.setting, request, request.links))


def add_scaling(found: PlanAnswer) -> PlanAnswer:
    """Plan for more GPUs as well, if they fill their nodes."""
    request = found.request
    if why_no_scaling(request):
        return found
    more = ranked_rows(with_more_gpus(request), request, request.scaled_links)[0]
    return found._replace(more=more, enough=None if more.candidate.works else _enough(request))


def wants_more(row: PlanRow) -> bool:
    """Return whether the GPUs are too few for the best strategy: it does not work, or only with all on a drive."""
    return not row.candidate.works or row.candidate.binds == "NVMe"


def _enough(request: PlanRequest) -> PlanRow | None:
    """Return the best strategy on twice, four times … as many full nodes, the first that works."""
    gpus = request.per_node * max(1, with_more_gpus(request).nodes)
    while (gpus := 2 * gpus) <= MOST_TRIED:
        scaled = msgspec.structs.replace(request.setting, gpus=gpus, nodes=gpus // request.per_node)
        best = ranked_rows(scaled, request, request.scaled_links)[0]
        if best.candidate.works:
            return best
    return None


def with_tracked(found: PlanAnswer, tracked: Mapping[str, TrackedStrategy]) -> PlanAnswer:
    """Return the answer in which what was tracked decides: memory, verdict and order; by the full name of a row."""
    rows = explain_rows(found)
    phases = {
        at: exact_memory.tracked_terms(tracked[row.candidate.full_name], row.setting)
        for at, row in enumerate(rows)
        if row.candidate.full_name in tracked
    }
    known = {at: each for at, each in phases.items() if each}
    return found._replace(rows=replan_with_tracked(rows, known, _context(found.request))) if known else found


def assumptions(found: PlanAnswer) -> list[str]:
    """Return everything that a plan assumes."""
    request, best = found.request, found.rows[0].candidate
    groups = data_parallel_ranks(found.rows[0].setting)
    who = "GPU" if groups == request.setting.gpus else "group of GPUs"
    sequences = best.micro_batch * best.grad_accum * groups
    whole = f"{best.grad_accum} accumulated × {groups} {who.partition(' ')[0]}s = {sequences}"
    batch = [f"batch: {best.micro_batch} per {who} × {whole}, the smallest micro-batch within 2% of the fastest"]
    return [
        *request.assumed,
        *(batch if request.chooses_micro_batch else []),
        *planning_assumptions(found.rows, request.links, request.host_bytes),
    ]


def explain_row(found: PlanAnswer, at: int) -> PlanRow:
    """Return one strategy with its explanation; explaining all of them makes a plan three times as slow."""
    return explain_candidate(found.rows, at, _context(found.request))


def explain_rows(found: PlanAnswer) -> list[PlanRow]:
    """Return all strategies with their explanations."""
    return [explain_row(found, at) for at in range(len(found.rows))]


def _context(request: PlanRequest) -> PlanContext:
    return context_of(request.setting, request.links, request.host_bytes)


def ranked_rows(setting: TrainingSetup, request: PlanRequest, links: Links) -> list[PlanRow]:
    """Return the ranked strategies of the request on the GPUs and links of another setting."""
    context = context_of(setting, links, request.host_bytes)
    return rank_candidates(setting, context, request.recompute, request.nvme_bytes, request.chooses_micro_batch)


def with_more_gpus(request: PlanRequest) -> TrainingSetup:
    """Return the setting with the additional GPUs, on nodes of the same size, with the same work for each GPU."""
    gpus = request.setting.gpus + request.more_gpus
    return msgspec.structs.replace(request.setting, gpus=gpus, nodes=-(-gpus // request.per_node))


def why_no_scaling(request: PlanRequest) -> str:
    """Return why the additional GPUs cannot be planned, or "" if they can."""
    gpus = request.setting.gpus + request.more_gpus
    if gpus > spec.MOST:
        return f"not planned, more than {spec.MOST:,} GPUs."
    if gpus > request.per_node and gpus % request.per_node:
        return f"not planned, {gpus:,} GPUs do not fill nodes of {request.per_node}."
    return ""


WIDTH = 80
BAR_WIDTH = 20


class ScalePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The best strategy on a number of GPUs.

    ``tokens_per_s`` is over all GPUs, None if nothing fits in practice. ``ideal_tokens_per_s`` counts the arithmetic
    alone, without waits, offloading or recomputation.
    """

    gpus: int
    nodes: int
    ideal_tokens_per_s: float
    tokens_per_s: float | None = None
    strategy: str = ""


def scaling_points(request: PlanRequest) -> list[ScalePoint]:
    """Return the best strategy for each number of GPUs; each GPU keeps its micro-batch, so the batch grows."""
    setting = request.setting
    per_node = setting.gpus // setting.nodes if setting.nodes > 1 else PER_NODE
    found: list[ScalePoint] = []
    for count in gpu_counts(setting.gpus):
        nodes = -(-count // per_node)
        if count % nodes:
            continue
        scaled = msgspec.structs.replace(setting, gpus=count, nodes=nodes)
        best = ranked_rows(scaled, request._replace(nvme_bytes=None), request.links)[0].candidate
        ideal = best.tokens_per_s * (1 + best.slower_than_ideal)
        rate = best.tokens_per_s if best.works else None
        name = best.full_name if rate else ""
        found.append(ScalePoint(gpus=count, nodes=nodes, ideal_tokens_per_s=ideal, tokens_per_s=rate, strategy=name))
    return found


def gpu_counts(gpus: int) -> list[int]:
    """Return powers of two up to 64 or to twice the GPUs of the setting, and that number itself."""
    most = max(64, 2 * gpus)
    return sorted({gpus, *(2**n for n in range((most - 1).bit_length() + 1))})


def draw_curve(found: list[ScalePoint], ascii_only: bool = False) -> list[str]:
    """Plot the points in 80 columns: a bar for the expected rate, a mark at the ideal, and the share of it."""
    full, mark, cut = ("#", "|", "...") if ascii_only else ("█", "┊", "…")
    most = max((each.ideal_tokens_per_s for each in found), default=1.0)
    wide = max([4, *(len(f"{each.gpus}") for each in found)])
    shown = [f"  {'GPUs':>{wide}}  {'tokens/s':>11}  {'(' + mark + ' ideal)':<{BAR_WIDTH + 1}}  ideal  strategy"]
    for each in found:
        lead = f"  {each.gpus:>{wide}}  "
        if each.tokens_per_s is None:
            shown.append(f"{lead}{'-':>11}  does not fit")
            continue
        ideal = max(1, round(each.ideal_tokens_per_s / most * BAR_WIDTH))
        filled = min(ideal, max(1, round(each.tokens_per_s / most * BAR_WIDTH)))
        bar = full * filled + " " * (ideal - filled) + mark
        share = f"{each.tokens_per_s / each.ideal_tokens_per_s:>5.0%}"
        line = f"{lead}{rate_text(each.tokens_per_s):>11}  {bar:<{BAR_WIDTH + 1}}  {share}  {each.strategy}"
        shown.append(line if len(line) <= WIDTH else line[: WIDTH - len(cut)] + cut)
    return shown
