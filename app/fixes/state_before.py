"""The state before a fix, from the events of a session: without it nothing is proved."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Verification
from ..probes.run_probes import judge_snapshot
from ..session import Session, SessionEvent, proof_outcome
from ..snapshot import Snapshot, snapshot_from_plain

FAILED = ("hung", "dead")  # states of a job that is wrong
LOG_LIMIT_BYTES = 50_000_000


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


def failure_before(session: Session) -> str:
    """Return the failure that the session records: an error of a log, or the verdict on a job; "" if it has none."""
    jobs = [job for event in session.events if event.kind == "triage" for job in event.data.get("jobs", [])]
    states = [job["verdict"] for job in jobs if job.get("verdict", {}).get("state") in FAILED]
    if states:
        return f"the job was {states[-1]['state']}: {states[-1]['why']}"
    return next((str(data.get("what", "")) for data in _log_evidence(session)), "")


def failed_here(session: Session, script: Path) -> bool:
    """Return whether the failure of a script was seen on this machine: in a job, a run for proof, or a log of it."""
    for event in session.events:
        if event.kind == "triage" and any(job["verdict"]["state"] in FAILED for job in event.data.get("jobs", [])):
            return True
        if event.kind == "proof" and proof_outcome(event) == "still there":
            return True
    logs = {str(data.get("where", "")).rpartition(":")[0] for data in _log_evidence(session)}
    return any(_names(Path(log), str(script)) for log in logs if log.startswith("/"))


def _log_evidence(session: Session) -> Iterator[dict[str, object]]:
    return (event.data for event in reversed(session.events) if _is_error_of_log(event))


def _is_error_of_log(event: SessionEvent) -> bool:
    return event.kind == "evidence" and event.data.get("source") == "log" and event.data["id"].startswith("log:")


def _names(log: Path, script: str) -> bool:
    """Return whether a log on this machine names the path of the script."""
    try:
        with log.open("rb") as file:
            return script.encode() in file.read(LOG_LIMIT_BYTES)
    except OSError:
        return False


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
