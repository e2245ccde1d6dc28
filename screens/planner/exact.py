"""What was tracked of a strategy in exact mode, beside what the formulas say: part for part."""

from textual.content import Content

from ...app.plan import exact
from ...app.plan.exact import Parts, Tracked
from ...app.plan.types import GIB, MIB
from ..widgets.words import text

LABEL_WIDTH, COLUMN_WIDTHS = 28, (9, 9, 10)
TITLE = "Exact: what PyTorch allocates at the peak"
MOMENTS = {"loss": "the loss", "backward": "backward", "step": "the step"}


def compared(found: Tracked, width: int) -> list[Content]:
    """Both figures and by how much the formula is off, each part, and what to know of it."""
    seen, parts = found.tracked_peak_bytes_per_gpu, found.tracked_bytes
    if seen is None or parts is None:
        return [text(TITLE, "bold"), *text(f"not tracked: {found.problem}", "$warning").wrap(width)]
    unit, name = (GIB, "GiB") if found.formula_peak_bytes_per_gpu > GIB else (MIB, "MiB")
    formula_moment, tracked_moment = (MOMENTS[phase or ""] for phase in (found.formula_phase, found.tracked_phase))
    shown = [
        text(TITLE, "bold"),
        _row(f"{name} on a GPU", ("formula", "tracked", "off by"), "$muted"),
        *(_part(part, found.formula_bytes, parts, unit, part in found.differs) for part in exact.PARTS),
        _row(
            "in all",
            (
                f"{found.formula_peak_bytes_per_gpu / unit:,.2f}",
                f"{seen / unit:,.2f}",
                f"{found.formula_peak_bytes_per_gpu / seen - 1:+.1%}",
            ),
            "bold",
        ),
        _row("peak in", (formula_moment, tracked_moment, "same" if formula_moment == tracked_moment else ""), ""),
    ]
    most = f"They differ most in {exact.WORDS.get(found.differs[0], found.differs[0])}." if found.differs else ""
    said = [most or f"No part differs by over {exact.SAME:.0%} of the peak.", *found.notes]
    return [*shown, *text(" ".join(said), "$muted").wrap(width)]


def _part(part: str, formula: Parts, tracked: Parts, unit: int, is_far: bool) -> Content:
    sizes = [getattr(parts, part) / unit for parts in (formula, tracked)]
    first, second = (f"{size:,.2f}" for size in sizes)
    off = "same" if first == second else f"{round(sizes[0], 2) - round(sizes[1], 2):+,.2f}"
    return _row(exact.WORDS.get(part, part), (first, second, off), "$warning" if is_far else "")


def _row(label: str, cells: tuple[str, str, str], style: str) -> Content:
    columns = "".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMN_WIDTHS, strict=True))
    return text(f"{label:<{LABEL_WIDTH}}{columns}", style)
