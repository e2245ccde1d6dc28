"""Compare the tracked peak of a strategy with that of the formulas, part by part."""

from textual.content import Content

from ...app.plan import exact_memory
from ...app.plan.exact_memory import PeakParts, TrackedStrategy
from ...app.text.units import GIB, MIB
from ..widgets.formatting import safe_content

LABEL_WIDTH, COLUMN_WIDTHS = 28, (9, 9, 10)
TITLE = "Exact: what PyTorch allocates at the peak"
MOMENTS = {"loss": "the loss", "backward": "backward", "step": "the step"}


def tracked_comparison(found: TrackedStrategy, width: int) -> list[Content]:
    """Return both figures and the error of the formula, for each part, with notes."""
    seen, parts = found.tracked_peak_bytes_per_gpu, found.tracked_bytes
    if seen is None or parts is None:
        return [safe_content(TITLE, "bold"), *safe_content(f"not tracked: {found.problem}", "$warning").wrap(width)]
    unit, name = (GIB, "GiB") if found.formula_peak_bytes_per_gpu > GIB else (MIB, "MiB")
    formula_moment, tracked_moment = (MOMENTS[phase or ""] for phase in (found.formula_phase, found.tracked_phase))
    shown = [
        safe_content(TITLE, "bold"),
        _row(f"{name} per GPU", ("formula", "tracked", "off by"), "$muted"),
        *(_part(part, found.formula_bytes, parts, unit, part in found.differs) for part in exact_memory.PARTS),
        _row(
            "total",
            (
                f"{found.formula_peak_bytes_per_gpu / unit:,.2f}",
                f"{seen / unit:,.2f}",
                f"{found.formula_peak_bytes_per_gpu / seen - 1:+.1%}",
            ),
            "bold",
        ),
        _row("peak in", (formula_moment, tracked_moment, "same" if formula_moment == tracked_moment else ""), ""),
    ]
    most = f"They differ most in {exact_memory.WORDS.get(found.differs[0], found.differs[0])}." if found.differs else ""
    notes = [most or f"No part differs by over {exact_memory.SAME:.0%} of the peak.", *found.notes]
    return [*shown, *safe_content(" ".join(notes), "$muted").wrap(width)]


def _part(part: str, formula: PeakParts, tracked: PeakParts, unit: int, is_far: bool) -> Content:
    sizes = [getattr(parts, part) / unit for parts in (formula, tracked)]
    first, second = (f"{size:,.2f}" for size in sizes)
    off = "same" if first == second else f"{round(sizes[0], 2) - round(sizes[1], 2):+,.2f}"
    return _row(exact_memory.WORDS.get(part, part), (first, second, off), "$warning" if is_far else "")


def _row(label: str, cells: tuple[str, str, str], style: str) -> Content:
    columns = "".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMN_WIDTHS, strict=True))
    return safe_content(f"{label:<{LABEL_WIDTH}}{columns}", style)
