"""The memory of a GPU as a bar: a sign and a colour for each part, a line where the GPU ends."""

from typing import NamedTuple

from textual.content import Content

from ...app.plan.types import Breakdown, Candidate
from ...app.text.units import gib_number

LEAST_SEEN = 0.2  # of a cell: smaller parts are not shown
MOST_CELLS = 1000
MOST_GIVEN = 0.25  # of the largest part, given up so that small ones are visible
OVER_SHARE = 0.2  # of the bar, beyond the line of the GPU


class BarSegment(NamedTuple):
    """Parts of the breakdown that share a sign; ``letter`` is the sign in ASCII."""

    name: str
    fields: tuple[str, ...]
    sign: str
    letter: str
    style: str


# All signs are in the character set of the Linux console (CP437), so every terminal shows them one cell wide.
PARTS = (
    BarSegment("params", ("params",), "█", "P", "$accent"),
    BarSegment("grads", ("grads",), "▄", "G", "$blue"),
    BarSegment("optimizer", ("optimizer",), "▓", "O", "$violet"),
    BarSegment("activations", ("activations",), "▒", "A", "$success"),
    BarSegment("loss", ("loss",), "░", "L", "$foreground"),
    BarSegment("buffers", ("buffers", "temporaries"), "≡", "B", "$muted"),
    BarSegment("context", ("context",), "─", "C", "$muted"),
    BarSegment("gaps", ("gaps",), "═", "S", "$muted"),
)


def segment_bytes(breakdown: Breakdown, part: BarSegment) -> float:
    """Return the bytes of a segment."""
    return sum(getattr(breakdown, name) for name in part.fields)


def gpu_limit_cell(width: int) -> int:
    """Return the cell of a bar with the line of the GPU."""
    return max(1, round(width * (1 - OVER_SHARE)) - 1)


def memory_bar(breakdown: Breakdown, memory_bytes: float, width: int, ascii_only: bool) -> list[tuple[str, str]]:
    """Return a bar of ``width`` cells, as signs with their style.

    It shows the parts in their order, free memory, and the line of the GPU; memory beyond it is red. A bar that is too
    long ends with an arrow.
    """
    line = gpu_limit_cell(width)
    sizes = [max(0.0, segment_bytes(breakdown, part)) for part in PARTS]
    fits = sum(sizes) <= memory_bytes
    pieces: list[tuple[str, str]] = []
    signs = ""  # of all cells
    for part, count in zip(PARTS, _cells(sizes, memory_bytes / line), strict=True):
        cells = (part.letter if ascii_only else part.sign) * count
        pieces.append((cells[: max(0, line - len(signs))], part.style))
        signs += cells
    pieces.append((("." if ascii_only else "·") * (line - len(signs)), "$rule"))
    pieces.append(("|" if ascii_only else "│", "$foreground bold" if fits else "$error bold"))
    beyond, room = "" if fits else signs[line:] or signs[-1:], width - line - 1
    if len(beyond) > room:
        beyond = beyond[: room - 1] + (">" if ascii_only else "›")
    return _joined([*pieces, (beyond, "$error"), (" " * (room - len(beyond)), "")])


def _cells(sizes: list[float], cell_bytes: float) -> list[int]:
    """Return the cells of each part; a visible part has at least one.

    To keep the sum right, cells are taken from the largest part, at most a quarter of its own, then from small ones.
    """
    shares = [min(size / cell_bytes, float(MOST_CELLS)) for size in sizes]
    counts = [max(round(share), int(share > LEAST_SEEN)) for share in shares]
    largest, parts = shares.index(max(shares)), range(len(shares))
    while sum(counts) < round(sum(shares)):
        counts[max(parts, key=lambda n: shares[n] - counts[n])] += 1
    while sum(counts) > round(sum(shares)):
        gives = counts[largest] - 1 >= (1 - MOST_GIVEN) * shares[largest]
        counts[largest if gives else max(parts, key=lambda n: counts[n] - shares[n])] -= 1
    return counts


def _joined(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbours of the same style, to send fewer bytes to the terminal."""
    joined: list[tuple[str, str]] = []
    for signs, style in pieces:
        if joined and (joined[-1][1] == style or not signs):
            joined[-1] = (joined[-1][0] + signs, joined[-1][1])
        elif signs:
            joined.append((signs, style))
    return joined


def bar_header(memory_gib: float, width: int) -> str:
    """Return the header of the bars: the memory of the GPU, ending above its line."""
    line = gpu_limit_cell(width)
    name = f"{memory_gib:.0f} GiB │"
    return name.rjust(line + 1).ljust(width) if len(name) <= line + 1 else name.ljust(width)


def legend(found: Candidate | None, ascii_only: bool) -> list[Content]:
    """Return each sign with its name and the GiB of one candidate, as pieces that lines can break between."""
    shown: list[Content] = []
    for part in PARTS:
        size = f" {gib_number(segment_bytes(found.breakdown, part))}" if found else ""
        sign = part.letter if ascii_only else part.sign
        shown.append(Content.assemble((sign, part.style), (f" {part.name}{size}", "$muted")))
    if found:
        shown.append(Content.styled(f"= {gib_number(found.device_used_bytes_per_gpu)} GiB", "$muted"))
    return shown


def wrap_pieces(pieces: list[Content], width: int) -> list[Content]:
    """Join pieces to rows of at most ``width`` cells."""
    rows: list[Content] = []
    for piece in pieces:
        if rows and rows[-1].cell_length + 2 + piece.cell_length <= width:
            rows[-1] = Content.assemble(rows[-1], "  ", piece)
        else:
            rows.append(piece)
    return rows
