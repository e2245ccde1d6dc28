"""The state before a fix, from the events of a session: without it nothing is proved."""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...knowledge.schema import Verification
from ..logs.types import Timeline
from ..probes.run_probes import judge_snapshot
from ..session import Session, SessionEvent, proof_outcome
from ..snapshot import Snapshot, snapshot_from_plain
from ..triage.types import is_failure
from .log_facts import named_hosts

LOG_LIMIT_BYTES = 50_000_000


class CheckResult(msgspec.Struct, frozen=True):
    """Findings of the check of a cause: those that show the fault, and all."""

    wrong: list[str]
    shown: list[str]


def wrong_before(verify: Verification, session: Session, port: str = "") -> CheckResult | None:
    """Return the last result of the check that showed the fault; else the last one, None if the check was not made.

    ``port``: the port of the case, if it is about one; checks of another port do not count.
    """
    results = [
        check_result(verify, snapshot)
        for event in session.events
        if event.kind == "snapshot"
        and (snapshot := _with_section(event.data, verify.probe))
        and (not port or (snapshot.ports is not None and str(snapshot.ports.port) == port))
    ]
    return next((result for result in reversed(results) if result.wrong), results[-1] if results else None)


def check_result(verify: Verification, snapshot: Snapshot) -> CheckResult:
    """Judge the probe of a cause. Only a finding that must be gone is the fault: the lack of another shows none."""
    checks = judge_snapshot(snapshot, [verify.probe])
    shown = sorted({item.id for check in checks if (item := check.evidence())})
    return CheckResult([id_ for id_ in verify.gone if id_ in shown], shown)


def failure_before(session: Session) -> str:
    """Return the failure that the session records: an error of a log, or the verdict on a job; "" if it has none."""
    jobs = [job for event in session.events if event.kind == "triage" for job in event.data.get("jobs", [])]
    states = [job["verdict"] for job in jobs if _has_failed(job)]
    if states:
        return f"the job was {states[-1]['state']}: {states[-1]['why']}"
    return next((str(data.get("what", "")) for data in _log_evidence(session)), "")


def _has_failed(job: Mapping[str, Any]) -> bool:
    """Return whether a recorded job failed."""
    verdict = job.get("verdict", {})
    return is_failure(verdict.get("state", ""), verdict.get("findings", ()))


def last_failure_here(session: Session, script: Path) -> float | None:
    """Return when a script was last seen to fail on this machine (seconds since the epoch), or None.

    It is seen in a job, in a run for proof, or in a log on this machine that names the script and no other host.
    """
    seen: list[float] = []
    for event in session.events:
        if event.kind == "triage" and any(_has_failed(job) for job in event.data.get("jobs", [])):
            seen.append(event.at)
        if event.kind == "proof" and proof_outcome(event) == "still there":
            seen.append(event.at)
    logs = {str(data.get("where", "")).rpartition(":")[0] for data in _log_evidence(session)}
    if not _is_elsewhere(session):
        seen += [at for log in logs if log.startswith("/") and (at := _written_at(Path(log), str(script)))]
    return max(seen, default=None)


def _is_elsewhere(session: Session) -> bool:
    """Return whether the logs of a session name hosts, and none of them is this machine."""
    event = session.last("timeline")
    hosts = named_hosts(msgspec.convert(event.data, Timeline)) if event else set()
    here = os.uname().nodename
    if not hosts or any(_is_same_host(host, here) or host.startswith("localhost") for host in hosts):
        return False
    return socket.getfqdn() not in hosts  # the name that torchrun prints; it may take a name server


def _is_same_host(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def _log_evidence(session: Session) -> Iterator[dict[str, object]]:
    return (event.data for event in reversed(session.events) if _is_error_of_log(event))


def _is_error_of_log(event: SessionEvent) -> bool:
    return event.kind == "evidence" and event.data.get("source") == "log" and event.data["id"].startswith("log:")


def _written_at(log: Path, script: str) -> float | None:
    """Return when a log on this machine was written, if it names the path of the script; else None."""
    name = re.compile(rb"(?<![\w./-])" + re.escape(script.encode()) + rb"(?![\w/-])")
    try:
        with log.open("rb") as file:
            return log.stat().st_mtime if name.search(file.read(LOG_LIMIT_BYTES)) else None
    except OSError:
        return None


def _with_section(data: dict[str, object], probe: str) -> Snapshot | None:
    """Return the snapshot of an event if the probe was run for it."""
    if data.get(probe) is None:
        return None
    try:
        return snapshot_from_plain(data)
    except msgspec.ValidationError:  # of another version
        return None
