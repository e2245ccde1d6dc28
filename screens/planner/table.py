"""The strategies as rows of a table: name, figures, and the memory of a GPU as a bar with a sign for each part."""

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from ...app.plan.strategies.evaluate import rate_text
from ...app.plan.strategies.table import SHORTER
from ...app.plan.types import Breakdown, Candidate, PlanRow
from ...app.text.units import GIB, gib_number, percent_text, seconds_text
from ..shell.base import BROAD, WIDE
from ..widgets.base import BaseWidget
from ..widgets.formatting import safe_content, status_sign, truncate_middle
from ..widgets.segments import paint_line

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
    return sum(getattr(breakdown, name) for name in part.fields)


def gpu_limit_cell(width: int) -> int:
    """Return the cell of a bar with the line of the GPU."""
    return max(1, round(width * (1 - OVER_SHARE)) - 1)


def memory_bar(breakdown: Breakdown, memory_bytes: float, width: int, ascii_only: bool) -> list[tuple[str, str]]:
    """Return a bar of ``width`` cells, as signs with their style; one that is too long ends with an arrow."""
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
    """Return the cells of each part, at least one of a visible part, taken from the largest part."""
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


STATUS = {True: "ok", "tight": "warn", False: "fail", None: "unknown"}
NAME_WIDTHS = ((BROAD, 36), (WIDE, 24), (0, 22))  # from which width of the screen on
AGAIN, AGAIN_WIDTH = "recompute", 5  # cells at the end of the name
SHORT = SHORTER | {"ZeRO optimizer": "ZeRO optim.", ", optim. on ": ", opt. ", " offload": ""}
LIST_MARGIN = 4  # including the two columns of the marker
FIGURES_WIDTH = 14  # sign and memory of a row
STEP_WIDTH, NARROW_STEP_WIDTH = 8, 10  # step time, or the missing memory
WAITS_WIDTH = 6  # share of a step that waits, if there is room
RATE_WIDTH = 10  # tokens per second, if there is room
ASCII_MARK_WIDTH = 3  # additional cells of a status in ASCII
MOST_BAR_WIDTH = 60


class StrategyTable:
    """Layout of the rows on a screen of ``width`` columns; ``memory_bytes`` is the memory of one GPU."""

    def __init__(self, width: int, memory_bytes: float, ascii_only: bool) -> None:
        self._memory_bytes, self._ascii_only = memory_bytes, ascii_only
        self._rate_width = RATE_WIDTH if width >= BROAD else 0
        self._name_width = next(name for least, name in NAME_WIDTHS if width >= least)
        self._waits_width = WAITS_WIDTH if width >= WIDE else 0
        self._step_width = STEP_WIDTH if self._waits_width else NARROW_STEP_WIDTH - ascii_only
        self._width = max(1, width - LIST_MARGIN)
        figures = FIGURES_WIDTH + self._step_width + self._waits_width + self._rate_width
        room = self._width - figures - ASCII_MARK_WIDTH * ascii_only
        self._bar_width = min(MOST_BAR_WIDTH, max(8, room - self._name_width))

    def head(self, what: str) -> Content:
        """Return the names of the columns; ``what`` is the first."""
        again = AGAIN if self._name_width > len(AGAIN) + len(what) else ""
        names = f"{what:<{self._name_width - len(again)}}{again}"
        bar = bar_header(self._memory_bytes / GIB, self._bar_width)
        rate = f" {'tokens/s':>{RATE_WIDTH - 1}}" if self._rate_width else ""
        lead = " " * (4 + ASCII_MARK_WIDTH * self._ascii_only)
        waits = f" {'waits':>5}" if self._waits_width else ""
        return safe_content(f"{lead}{names} {bar} {'per GPU':>9} {'step':>{self._step_width}}{waits}{rate}", "$muted")

    def row(self, row: PlanRow, is_marked: bool) -> Content:
        """Return the row of a strategy; ``is_marked`` marks it for a comparison."""
        found = row.candidate
        over = found.device_used_bytes_per_gpu > self._memory_bytes
        made = Content.assemble(
            status_sign(STATUS[found.fits] if found.in_practice or not found.fits else "warn", self._ascii_only),
            f"{'•' if is_marked else ' '}{_short(row, self._name_width)} ",
            *memory_bar(found.breakdown, self._memory_bytes, self._bar_width, self._ascii_only),
            (f" {_five(found.device_used_bytes_per_gpu / GIB)} GiB", "$error" if over else ""),
            self._time(row),
            strip_control_codes=False,  # all texts are our own
        )
        return made if made.cell_length <= self._width else made.truncate(self._width, ellipsis=True)

    def _time(self, row: PlanRow) -> tuple[str, str]:
        """Return the step time or the missing memory, and its style."""
        found = row.candidate
        if found.fits is False:
            over = (found.device_used_bytes_per_gpu - self._memory_bytes) / GIB
            lacks = f"{_five(over).strip()} over" if over > 0 else "host full"
            return f" {lacks:>{self._step_width + self._waits_width}}", "$error"
        waits = percent_text(found.exposed_comm_seconds / found.step_seconds)
        share = f" {waits:>5}" if self._waits_width else ""
        rate = f" {rate_text(found.tokens_per_s):>{RATE_WIDTH - 1}}" if self._rate_width else ""
        return f" {seconds_text(found.step_seconds):>{self._step_width}}{share}{rate}", ""


def row_ids(rows: list[PlanRow]) -> list[str]:
    """Return an id for each row that does not depend on the order."""
    ids: list[str] = []
    for row in rows:
        base = row.candidate.full_name
        ids.append(base if base not in ids else f"{base} {sum(id_.startswith(base) for id_ in ids) + 1}")
    return ids


def as_sentence(text: str) -> str:
    """Capitalise the first letter and drop the final period."""
    return text[:1].upper() + text[1:].rstrip(".")


def _five(size_gib: float) -> str:
    """A size in five cells: ``63.8``, ``1571``."""
    return f"{size_gib:5.1f}" if size_gib < 999.95 else f"{size_gib:5.0f}"


def _short(row: PlanRow, width: int) -> str:
    """Return the name of a strategy and its recomputation in ``width`` cells."""
    again = {"none": "", "full": "all"}.get(row.candidate.recompute, "part")
    name, room = row.candidate.strategy, width - AGAIN_WIDTH
    for long, short in SHORT.items():
        if len(name) > room:
            name = name.replace(long, short)
    return f"{truncate_middle(name, room):<{room}}{again:>{AGAIN_WIDTH}}"


class TextRows(BaseWidget):
    """Rows of text, as many as the style gives it height; rows that are too long are cut."""

    DEFAULT_CSS = "TextRows { width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.rows: list[Content] = []

    def show(self, rows: Sequence[Content]) -> None:
        before, self.rows = self.rows, list(rows)
        count = max(len(before), len(rows))
        same = [n < len(before) and n < len(rows) and before[n].is_same(rows[n]) for n in range(count)]
        if not all(same):
            self.refresh(*(Region(0, n, self.size.width, 1) for n in range(count) if not same[n]))

    def render_line(self, y: int) -> Strip:
        return paint_line(self, self.rows[y] if y < len(self.rows) else Content.empty())
