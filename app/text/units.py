"""Numbers with their unit, as people read them. KiB, MiB and GiB are powers of two."""

from collections.abc import Callable, Sequence

MIB = 2**20
GIB = 2**30
# A unit in seconds, its name, and the number from which the next unit is used.
TIME_UNITS = (
    (1e-6, "µs", 999.5),
    (1e-3, "ms", 99.5),
    (1.0, "s", 99.5),
    (60.0, "min", 100),
    (3600.0, "h", 48),
    (86400.0, "days", float("inf")),
)


def bytes_text(size_bytes: float) -> str:
    """Return a size in the unit that fits it: ``65536`` as ``64 KiB``; at most one decimal."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if size_bytes >= 100 else f"{round(size_bytes, 1):g} {unit}"
        size_bytes /= 1024
    return f"{round(size_bytes, 1):g} TiB"


def gib_number(size_bytes: float, decimals: int = 1) -> str:
    """Return a size in GiB without its unit, for sizes that are compared: ``12.3``, from 1000 on ``1,536``."""
    return f"{size_bytes / GIB:,.{decimals if size_bytes < 1000 * GIB else 0}f}"


def gib_text(size_bytes: float, decimals: int = 1) -> str:
    """Return a size in GiB, as GPU memory is counted: ``12.3 GiB``.

    In MiB if it is below 0.1 GiB, or without decimals below 1 GiB.
    """
    if size_bytes < (0.1 if decimals else 1) * GIB:
        return f"{size_bytes / MIB:,.1f} MiB"
    return f"{gib_number(size_bytes, decimals)} GiB"


def seconds_text(seconds: float | None, *, whole: bool = False) -> str:
    """Return a duration: ``120 µs``, ``4.2 ms``, ``0.43 s``, ``12.3 s``, ``60 min``, ``3 h``, ``4 days``.

    ``whole``: no unit below seconds and no decimals, for durations that are known only roughly. ``–`` if None.
    """
    if seconds is None:
        return "–"
    size, unit, decimals = _time_unit(seconds, whole)
    number = f"{seconds / size:.{decimals}f}"
    # Seconds keep their decimals, so that the step times of a table align.
    return f"{number if unit == 's' or not decimals else number.rstrip('0').rstrip('.')} {unit}"


def round_seconds(seconds: float) -> float:
    """Return the duration that ``seconds_text`` shows."""
    size, _, decimals = _time_unit(seconds, whole=False)
    return round(seconds / size, decimals) * size


def _time_unit(seconds: float, whole: bool) -> tuple[float, str, int]:
    """Return the unit of a duration in seconds, its name, and the decimals that give three digits."""
    for size, unit, limit in TIME_UNITS:
        number = abs(seconds) / size
        if number < limit and not (whole and size < 1):
            return size, unit, 0 if whole or unit == "µs" else 2 if number < 9.995 else 1 if number < 99.95 else 0
    raise AssertionError("the last unit has no limit")


def signed_text(value: float, text: Callable[[float], str]) -> str:
    """Return a difference with its sign: ``+12.3 GiB`` with ``gib_text``."""
    return f"{'-' if value < 0 else '+'}{text(abs(value))}"


def percent_text(share: float) -> str:
    """Return a share of 0 to 1 as ``5%``; ``<1%`` and ``>99%`` instead of a 0% or 100% that is only rounded."""
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "<1%"
    return ">99%" if text == "100%" and share < 1 else text


def probability_text(probability: float) -> str:
    """Return a computed probability: ``62%``, never ``0%`` or ``100%``, as none is certain."""
    return percent_text(min(max(probability, 1e-9), 1 - 1e-9))


def sure_text(confidence: float) -> str:
    """Return how sure a verdict is: ``97% sure``."""
    return f"{probability_text(confidence)} sure"


def ratio_text(ratio: float) -> str:
    """Return a ratio with at most three digits: ``2.4``, ``310``."""
    return f"{ratio:,.1f}" if ratio < 100 else f"{float(f'{ratio:.2g}'):,.0f}"


def speed_gain_text(ratio: float) -> str:
    """Return a speed relative to a slower one, from 1: ``4% faster``, ``2.4 × as fast``."""
    return f"{ratio_text(ratio)} × as fast" if ratio >= 2 else f"{percent_text(ratio - 1)} faster"


def gbps_text(gbps: float) -> str:
    """Return a bandwidth with three digits: ``0.328 GB/s``, ``12.5 GB/s``, ``1,800 GB/s``."""
    return f"{float(f'{gbps:.3g}'):,g} GB/s" if gbps >= 0.001 else "<0.001 GB/s"


def count_text(number: int, noun: str) -> str:
    """Return ``3, "GPU"`` as ``3 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rank_ranges(ranks: Sequence[int]) -> str:
    """Return ``1–3, 7`` for 1, 2, 3, 7; two in a row stay apart (``0, 1``)."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ``[0, 1, 2, 5]`` as ``ranks 0–2, 5``; one rank as ``rank 5``."""
    return f"rank{'s' * (len(ranks) > 1)} {rank_ranges(ranks)}"
