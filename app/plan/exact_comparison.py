"""The comparison of ``plan --exact``: what PyTorch allocates at the peak, by formula and as tracked, part by part."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..text.terminal import align_columns
from ..text.units import GIB, MIB
from .exact_memory import SAME, PeakParts, TrackedStrategy
from .memory.peak import PEAK_WORDS

WORDS = {"activations": "activations and loss", "buffers": "buckets and gathered weights"}


class ComparedRow(NamedTuple):
    """A row of the comparison: figures by formula and tracked, and the difference of the formula."""

    label: str
    cells: tuple[str, str, str]
    kind: Literal["head", "same", "differs", "total"] = "same"


def comparison_rows(found: TrackedStrategy) -> list[ComparedRow]:
    """Return both figures of each part and of the whole, in MiB for a small model; [] if it was not tracked."""
    whole, seen, parts = found.formula_peak_bytes_per_gpu, found.tracked_peak_bytes_per_gpu, found.tracked_bytes
    if seen is None or parts is None:
        return []
    unit, name = (GIB, "GiB") if whole > GIB else (MIB, "MiB")
    phases = PEAK_WORDS[found.formula_phase], PEAK_WORDS[found.tracked_phase or ""]
    rows = [ComparedRow(f"{name} per GPU", ("formula", "tracked", "off by"), "head")]
    for part in PeakParts.__struct_fields__:
        sizes = [getattr(each, part) / unit for each in (found.formula_bytes, parts)]
        first, second = (f"{size:,.2f}" for size in sizes)
        off = "same" if first == second else f"{round(sizes[0], 2) - round(sizes[1], 2):+,.2f}"
        kind = "differs" if part in found.differs else "same"
        rows.append(ComparedRow(WORDS.get(part, part), (first, second, off), kind))
    total = f"{whole / unit:,.2f}", f"{seen / unit:,.2f}", f"{whole / seen - 1:+.1%}"
    rows.append(ComparedRow("total", total, "total"))
    return [*rows, ComparedRow("peak in", (*phases, "same" if phases[0] == phases[1] else ""))]


def comparison_notes(found: TrackedStrategy) -> list[str]:
    """Return the part that differs most, and what the tracked figure leaves out."""
    most = f"They differ most in {WORDS.get(found.differs[0], found.differs[0])}." if found.differs else ""
    return [most or f"No part differs by over {SAME:.0%} of the peak.", *found.notes]


def render_comparison(all_tracked: Sequence[TrackedStrategy]) -> list[str]:
    """Render the comparison of each strategy as a table with notes."""
    shown: list[str] = []
    for each in all_tracked:
        name = each.strategy + ", recomputing" * (each.recompute == "full")
        if rows := comparison_rows(each):
            table = align_columns([(row.label, *row.cells) for row in rows])
            shown += ["", f"Exact: what PyTorch allocates at the peak of {name}"]
            shown += ["  " + line for line in (*table, *comparison_notes(each))]
        else:
            shown += ["", f"{name} is not tracked: {each.problem}"]
    return shown
