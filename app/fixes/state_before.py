"""The state before a fix, from the events of a session: without it nothing is proved."""

from collections.abc import Sequence

import msgspec

from ...knowledge.schema import Verification
from ..probes.run_probes import judge_snapshot
from ..session import Session
from ..snapshot import Snapshot, snapshot_from_plain


class CheckResult(msgspec.Struct, frozen=True):
    """Findings of the check of a cause: those that show the fault, and all."""

    wrong: list[str]
    shown: list[str]


def wrong_before(verify: Verification, session: Session) -> CheckResult | None:
    """Return the last result of the check that showed the fault; else the last one, None if the check was not made."""
    results = [
        check_result(verify, snapshot)
        for event in session.events
        if event.kind == "snapshot" and (snapshot := _with_section(event.data, verify.probe))
    ]
    return next((result for result in reversed(results) if result.wrong), results[-1] if results else None)


def check_result(verify: Verification, snapshot: Snapshot) -> CheckResult:
    """Judge the probe of a cause: a finding that must be gone is the fault, or the lack of one that must be seen."""
    shown = sorted({check.finding for check in judge_snapshot(snapshot, [verify.probe]) if check.finding})
    present = [id_ for id_ in verify.gone if id_ in shown]
    return CheckResult(present if verify.gone else _missing(verify.seen, shown), shown)


def _missing(wanted: Sequence[str], shown: Sequence[str]) -> list[str]:
    return [f"without {id_}" for id_ in wanted if id_ not in shown]


def _with_section(data: dict[str, object], probe: str) -> Snapshot | None:
    """Return the snapshot of an event if the probe was run for it."""
    if data.get(probe) is None:
        return None
    try:
        return snapshot_from_plain(data)
    except msgspec.ValidationError:  # of another version
        return None
