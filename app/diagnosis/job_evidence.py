"""The triage of running jobs, and the review of their scripts, as evidence of a case."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...knowledge.schema import Knowledge
from ..errors import UserError
from ..evidence import SCRIPT_ERROR, Evidence
from ..jobs.script_path import script_of_job
from ..logs.analyse import analyse_logs
from ..logs.read import LogInput, source_of_text
from ..logs.script_error import script_error_findings
from ..logs.types import Timeline
from ..review.types import ReviewFinding
from ..session import Session
from ..triage import rank_groups
from ..triage.saved import encode_bundle
from ..triage.triage import evidence_of_report
from ..triage.types import JobReport, Observation
from ..triage.verdict import judge_job
from .case import Case

FAILED_FIRST = "log.one-rank-failed-first"
OBSERVED_LIMIT_BYTES = 4_000_000  # of the observations that a session keeps of one triage


def add_triage(case: Case, reports: Sequence[JobReport]) -> None:
    """Record a triage in the session; the verdict on the first job becomes evidence and replaces earlier ones."""
    case.take_triage(**_event_data(reports))
    for report in reports[:1]:
        case.add(evidence_of_report(report, case.knowledge.findings()))
        _add_new(case, evidence_of_output(report, case.knowledge))


def evidence_of_output(report: JobReport, knowledge: Knowledge) -> list[Evidence]:
    """Return what the last output of the culprits shows: the errors that they printed before they stopped.

    If the others wait for a rank that has failed, the exception of its script is the error of that rank.
    """
    found: list[Evidence] = []
    is_awaited = "job.rank-dead" in report.verdict.findings
    for source in _output_of_culprits(report):
        analysis = analyse_logs([source], knowledge)
        errors = script_error_findings(analysis.timeline, of_job=True) if analysis.timeline else ()
        items = [item for item in (*analysis.evidence, *errors) if not item.id.startswith("message:")]
        if is_awaited:
            items = [msgspec.structs.replace(i, id=FAILED_FIRST) if i.id == SCRIPT_ERROR else i for i in items]
        found += items
    return found


def timeline_of_output(report: JobReport, knowledge: Knowledge) -> Timeline | None:
    """Return the events in the last output of ranks that have failed; None if none has, or they printed nothing."""
    sources = _output_of_culprits(report) if "job.rank-dead" in report.verdict.findings else []
    return analyse_logs(sources, knowledge).timeline if sources else None


def _output_of_culprits(report: JobReport) -> list[LogInput]:
    found: list[LogInput] = []
    for seen in report.observed.seen:
        rank = seen.process.rank
        if rank in report.verdict.culprits and seen.output:
            text = "\n".join(f"[rank{rank}]: {line}" for line in seen.output)
            found.append(source_of_text(text, seen.output_from or f"output of rank {rank}"))
    return found


def add_review(case: Case, findings: Iterable[ReviewFinding]) -> None:
    """Add the review of a job's script as evidence; what is known already is not added twice."""
    from ..review.review import evidence_of_findings

    _add_new(case, evidence_of_findings(findings))


def _add_new(case: Case, evidence: Iterable[Evidence]) -> None:
    """Add what the case does not have at this place."""
    known = {(item.id, item.where) for item in case.evidence}
    case.add(item for item in evidence if (item.id, item.where) not in known)


def review_job_script(report: JobReport | None, knowledge: Knowledge) -> list[ReviewFinding]:
    """Return the findings in the script at which the verdict points, or [] if it names none or is not readable."""
    return review_script(script_of_verdict(report), knowledge)


def review_script(script: Path | None, knowledge: Knowledge) -> list[ReviewFinding]:
    """Return the findings in a script, or [] if there is none or it is not readable."""
    from ..review.file_review import review_file

    try:
        return review_file(script, knowledge) if script else []
    except UserError:
        return []


def script_of_verdict(report: JobReport | None) -> Path | None:
    """Return the file of the line at which the verdict points, or None."""
    path = (report.verdict.where or "").rpartition(":")[0] if report else ""
    return Path(path) if path else None


def script_of_report(report: JobReport) -> Path | None:
    """Return the file at which the verdict points, else the script of the job, or None."""
    path = script_of_job(report.job)
    return script_of_verdict(report) or (Path(path) if path else None)


def script_of_session(session: Session) -> Path | None:
    """Return the file at which the last verdict of a session points, else its evidence, if it is on this machine."""
    places: list[str] = []
    for event in reversed(session.events):
        if event.kind == "triage":
            places += [job.get("verdict", {}).get("where") or "" for job in event.data.get("jobs", [])]
        elif event.kind == "evidence" and event.data.get("source") in ("job", "review"):
            places.append(event.data.get("where", ""))
    paths = (Path(place.rpartition(":")[0]) for place in places if place.rpartition(":")[0].endswith(".py"))
    return next((path for path in paths if path.is_absolute() and path.is_file()), None)


def launch_of_session(session: Session) -> list[str]:
    """Return the command line that ``ddpwizard run`` started in a session, or []."""
    return [str(word) for word in _opened(session).get("command", [])]


def launch_directory(session: Session) -> Path | None:
    """Return the directory in which ``ddpwizard run`` started its command, None if it is no longer there."""
    opened = _opened(session)
    directory = Path(str(opened.get("cwd", "")))
    return directory if opened.get("command") and directory.is_absolute() and directory.is_dir() else None


def _opened(session: Session) -> dict[str, Any]:
    return next((event.data for event in session.events if event.kind == "opened"), {})


def _event_data(reports: Sequence[JobReport]) -> dict[str, Any]:
    """Return what a session keeps of a triage: the public fields of each job, and the source around its verdict."""
    jobs: list[dict[str, Any]] = []
    source: list[str] = []
    for report in reports:
        plain = msgspec.to_builtins(report)
        kept = {key: plain[key] for key in ("launcher", "world_size", "nodes", "ranks", "verdict")}
        rows = [
            f"{'>' if line.mark else ' '} {line.number or '…':>5}  {line.text}"
            for line in rank_groups.source_excerpt(report)
        ]
        jobs.append(kept | {"id": report.job.id})
        source += ["\n".join(rows)] if rows else []
    return {"jobs": jobs, "source": source, "observed": _kept_observations(reports)}


def _kept_observations(reports: Sequence[JobReport]) -> list[dict[str, Any]]:
    """Return the observations of the jobs without secrets, or [] if they are too large to keep."""
    encoded = encode_bundle([report.observed for report in reports])
    return msgspec.json.decode(encoded)["observations"] if len(encoded) <= OBSERVED_LIMIT_BYTES else []


def recorded_job(session: Session, cause: str) -> JobReport | None:
    """Return the last job of a session with this cause, judged again from what was observed of it, or None."""
    for event in reversed(session.events):
        for plain in event.data.get("observed", []) if event.kind == "triage" else []:
            try:
                report = judge_job(msgspec.convert(plain, Observation, strict=False, str_keys=True))
            except msgspec.ValidationError:  # of another version
                continue
            if report.verdict.cause == cause:
                return report
    return None
