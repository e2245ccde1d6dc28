"""Numbers with their unit, as people read them. KiB, MiB and GiB are powers of two."""

from collections.abc import Sequence


def size_text(size_bytes: float) -> str:
    """``65536`` as ``64 KiB``; at most one decimal."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if size_bytes >= 100 else f"{round(size_bytes, 1):g} {unit}"
        size_bytes /= 1024
    return f"{round(size_bytes, 1):g} TiB"


def seconds_text(seconds: float) -> str:
    """``0.00012`` as ``120 µs``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def count_text(number: int, noun: str) -> str:
    """``3, "GPU"`` as ``3 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rank_ranges(ranks: Sequence[int]) -> str:
    """``1–3, 7`` for 1, 2, 3, 7; two in a row stay apart (``0, 1``)."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def ranks_text(ranks: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``ranks 0–2, 5``; one rank as ``rank 5``."""
    return f"rank{'s' * (len(ranks) > 1)} {rank_ranges(ranks)}"


MIB = 2**20


GIB = 2**30
