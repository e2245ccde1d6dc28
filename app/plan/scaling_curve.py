"""Scaling curve of a plan: tokens per second of the best strategy over the number of GPUs, as a text plot."""

import msgspec

from .plan_answer import ranked_rows
from .request import PlanRequest
from .spec import PER_NODE
from .strategies.evaluate import rate_text

COUNTS = (1, 2, 4, 8, 16, 32, 64)
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
    """Return powers of two up to 64 and to twice the GPUs of the setting, and that number itself."""
    found: list[int] = [*COUNTS]
    while found[-1] < 2 * gpus:
        found.append(2 * found[-1])
    return sorted({*found, gpus})


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
