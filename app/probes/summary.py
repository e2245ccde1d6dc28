"""Summary of a snapshot: one line per subject, for the plain wizard and the report."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..evidence import Check, Status
from ..snapshot import Snapshot
from ..text.units import bytes_text

STATUS_SEVERITY: tuple[Status, ...] = ("fail", "warn", "unknown")


COUNT_WORDS: dict[Status, str] = {"ok": "ok", "warn": "warn", "fail": "fail", "unknown": "unknown", "skip": "skipped"}
PROBLEMS: tuple[Status, ...] = ("warn", "fail")


class SubjectSummary(NamedTuple):
    """One subject of the machine with its most severe check ("" if all passed)."""

    name: str
    text: str
    status: str = ""
    problem: str = ""


def machine_summary(snapshot: Snapshot, checks: Sequence[Check]) -> list[SubjectSummary]:
    """Summarise a snapshot in reading order. Failed probes have their reason."""
    found: list[SubjectSummary] = []
    for name, probe, text in (
        ("GPUs", "gpus", _gpus(snapshot)),
        ("network", "network", _network(snapshot)),
        ("memory", "limits", _memory(snapshot)),
        ("torch", "software", _torch(snapshot)),
        ("port", "ports", _port(snapshot)),
    ):
        if probe in snapshot.failed:
            found.append(SubjectSummary(name, "not checked", "unknown", snapshot.failed[probe]))
        elif text:
            bad = worst_check(check for check in checks if check.id.partition(".")[0] == probe)
            found.append(SubjectSummary(name, text, bad.status, bad.title) if bad else SubjectSummary(name, text))
    return found


def worst_check(checks: Iterable[Check]) -> Check | None:
    """Return the most severe check, or None if all passed."""
    bad = [check for check in checks if check.status in STATUS_SEVERITY]
    return min(bad, key=lambda check: STATUS_SEVERITY.index(check.status), default=None)


def shows_nothing(check: Check) -> bool:
    """Return whether a check passed, or was skipped without a finding: it is only counted, unless all are listed."""
    return check.status == "ok" or (check.status == "skip" and not check.finding)


def counts_text(checks: Iterable[Check], statuses: Iterable[Status] = tuple(COUNT_WORDS)) -> str:
    """Return how many checks have each status, ``8 ok · 1 warn``; a status that none has is left out."""
    counts = Counter(check.status for check in checks)
    return " · ".join(f"{counts[status]} {COUNT_WORDS[status]}" for status in statuses if counts[status])


def _gpus(snapshot: Snapshot) -> str:
    section = snapshot.gpus
    if section is None or not section.gpus:
        return "" if section is None else "no GPU" if section.driver else "no working NVIDIA driver"
    names = {gpu.name.removeprefix("NVIDIA ") for gpu in section.gpus}
    memory = {gpu.memory_total_bytes for gpu in section.gpus}
    each = f" {bytes_text(memory.pop())}" if len(memory) == 1 else ""
    return f"{len(section.gpus)} × {names.pop()}{each}" if len(names) == 1 else f"{len(section.gpus)} GPUs, mixed"


def _network(snapshot: Snapshot) -> str:
    section = snapshot.network
    if section is None:
        return ""
    taken = (*section.nccl_would_use, *section.gloo_would_use)
    use = next((i for i in section.interfaces if i.name in taken), None)
    use = use or next((i for i in section.interfaces if i.up and i.kind != "loopback"), None)
    if use is None:
        return "only loopback"
    mbps = use.speed_mbps or 0
    speed = f" {mbps / 1000:g} Gb/s" if mbps >= 1000 else f" {mbps} Mb/s" if mbps > 0 else ""
    return f"{use.name}{speed} mtu {use.mtu}"


def _memory(snapshot: Snapshot) -> str:
    section = snapshot.limits
    if section is None:
        return ""
    shm = "no /dev/shm" if section.shm_total_bytes is None else f"/dev/shm {bytes_text(section.shm_total_bytes)}"
    return f"{shm}, {bytes_text(section.memory_available_bytes)} of {bytes_text(section.memory_total_bytes)} free"


def _torch(snapshot: Snapshot) -> str:
    section = snapshot.software
    if section is None:
        return ""
    if not section.torch:
        return "not importable" if section.problem else "not installed"
    return f"{section.torch}, {', '.join(section.backends) or 'no backend'}"


def _port(snapshot: Snapshot) -> str:
    section = snapshot.ports
    return "" if section is None else f"{section.port} {'free' if section.free else 'taken'}"
