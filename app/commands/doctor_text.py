"""Text output of ``ddpwizard doctor``: failed checks first, passed checks folded, 80 columns."""

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

import click

from ..evidence import Check
from ..probes.summary import counts_text, shows_nothing
from ..snapshot import BenchRow, Snapshot
from ..text.terminal import status_glyph, strip_control, terminal_width
from ..text.units import bytes_text, count_text, gbps_text, seconds_text

WIDTH = 80
BENCH = "allreduce"  # the id of the check of the all-reduce test
COLUMN_TEXTS = (
    "time:  median of the calls, of the slowest rank",
    "algbw: size / time",
    "busbw: algbw x 2 (n - 1) / n for n ranks: what each link carries. Compare the largest size with the bandwidth of "
    "the link.",
)
COLOURS = {"fail": "red", "warn": "yellow", "unknown": "yellow", "ok": "green"}


def print_checks(snapshot: Snapshot, checks: Sequence[Check], *, full: bool, ascii_only: bool) -> None:
    """Print the checks in the given order (worst first) and the rows of the all-reduce test.

    Checks that passed are counted, except that of the all-reduce test, which was asked for, and what a machine lacks.
    """
    worst = next((check.status for check in checks if check.status in ("fail", "warn", "unknown")), "ok")
    folded = [] if full else [check for check in checks if shows_nothing(check) and check.id != BENCH]
    counts = Counter(check.status for check in folded)
    summary = counts_text(checks)
    _line(f"Machine  {snapshot.host}".ljust(WIDTH - len(summary) - 1) + " " + summary, worst)
    for check in checks:
        if check not in folded:
            _check(check, ascii_only)
    if folded:
        parts = [f"{counts[status]} {name}" for status, name in (("ok", "ok"), ("skip", "skipped")) if counts[status]]
        sign = status_glyph("ok" if counts["ok"] else "skip", ascii_only)
        _line(f"{sign} {', '.join(parts)} (--full shows them)", "")
    if snapshot.allreduce and snapshot.allreduce.rows:
        _bench(snapshot.allreduce.rows, ascii_only)


def _check(check: Check, ascii_only: bool) -> None:
    sign = status_glyph(check.status, ascii_only)
    indent = " " * (len(sign) + 1)
    _wrapped(check.title, f"{sign} ", indent, check.status)
    for line in check.detail.splitlines():
        _wrapped(line, indent, indent, "")
    if check.fix:
        _wrapped(check.fix, f"{indent}→ ", f"{indent}  ", "")


def _bench(rows: Sequence[BenchRow], ascii_only: bool) -> None:
    first = rows[0]
    _line(f"\n{first.operation} of float32, {count_text(first.ranks, 'rank')}, {first.backend}", "")
    _line(f"  {'size':>9}  {'time':>9}  {'algbw':>11}  {'busbw':>11}", "")
    for row in rows:
        speed = f"{gbps_text(row.algbw_gbps):>11}  {gbps_text(row.busbw_gbps):>11}"
        right = "" if row.correct else f"  {status_glyph('fail', ascii_only)} wrong data"
        _line(f"  {bytes_text(row.bytes):>9}  {seconds_text(row.seconds):>9}  {speed}{right}", "")
    for line in COLUMN_TEXTS:
        _wrapped(line, "  ", "         ", "")


def _wrapped(text: str, first: str, following: str, status: str) -> None:
    width = min(WIDTH, terminal_width(sys.stdout) or WIDTH) - len(first)
    lines = textwrap.wrap(strip_control(text), width, break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        _line((following if number else first) + line, status)


def _line(text: str, status: str) -> None:
    """Print one line, coloured only on a terminal that supports it."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    text = strip_control(text)
    sys.stdout.write((click.style(text, fg=COLOURS[status]) if coloured and status in COLOURS else text) + "\n")
