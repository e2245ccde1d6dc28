"""A session as a page to pass on: answers, observations, causes, fixes, and their proofs."""

import time
from pathlib import Path
from typing import Any

import msgspec

from ..knowledge.loader import read_knowledge
from ..knowledge.schema import Knowledge
from .diagnosis.case import Case
from .diagnosis.dialogue import best_cause_text
from .evidence import Check, Diagnosis, ReasonLine
from .probes import summary
from .session import OUTCOME_STATUS, Session, SessionEvent, proof_outcome
from .snapshot import snapshot_from_plain
from .system.files import write_new_file
from .text import redact
from .text.anonymize import Anonymizer
from .text.markup import Block, Bullets, Code, Document, Section, Table, to_html, to_markdown
from .text.terminal import status_glyph
from .text.units import probability_text, rank_ranges, sure_text
from .triage import rank_groups
from .triage.types import RankRow

MOST_CAUSES = 5
STATUS = {"ok": "✓ ok", "warn": "! warn", "fail": "✗ fail", "unknown": "? unknown", "skip": "– skipped"}


def report_as_markdown(session: Session, public: bool = False, knowledge: Knowledge | None = None) -> str:
    """Return the session as Markdown. ``public`` renames hosts, addresses, users and paths.

    Secrets are removed in any case.
    """
    return to_markdown(build_document(session, public, knowledge))


def report_as_html(session: Session, public: bool = False, knowledge: Knowledge | None = None) -> str:
    """Return the session as one self-contained HTML page without scripts; ``public`` as for Markdown."""
    return to_html(build_document(session, public, knowledge))


def save_report(session: Session, knowledge: Knowledge) -> Path:
    """Write the session as an HTML page next to its file and return its path.

    Raises:
        UserError: The state directory cannot be written.
    """
    return write_new_file(f"{session.id}.html", report_as_html(session, False, knowledge), session.path.parent, 0o600)


def build_document(session: Session, public: bool, knowledge: Knowledge | None) -> Document:
    """Build the document of both formats, with the causes ranked again from the session's evidence."""
    shown = Session(session.path, [SessionEvent(e.at, e.kind, redact.redact_record(e.data)) for e in session.events])
    if public:
        aliases = Anonymizer()
        aliases.learn([event.data for event in shown.events])
        shown = Session(shown.path, [SessionEvent(e.at, e.kind, _renamed(aliases, e.data)) for e in shown.events])
    known = knowledge or read_knowledge()
    diagnosis = Case(known, shown).diagnosis()
    sections = [
        Section("Answers and notes", _answers(shown, known)),
        Section("The job", _job(shown)),
        Section("Most likely", _ranking(diagnosis)),
        Section("Fixes and proofs", _fixes(shown)),
        Section("Machine", _machine(shown)),
        Section("All observations", _evidence(diagnosis)),
        Section("About this report", _about(shown, known, public)),
    ]
    return Document("ddpwizard report", _lead(shown, diagnosis), [s for s in sections if s.blocks])


def _renamed(aliases: Anonymizer, data: dict[str, Any]) -> dict[str, Any]:
    renamed = aliases.data(data)
    assert isinstance(renamed, dict)
    return renamed


def _lead(session: Session, diagnosis: Diagnosis) -> list[str]:
    """Return the answer before its proof."""
    lines = [job["verdict"]["why"] for job in _jobs(session)[:1] if job["verdict"]["why"]]
    if diagnosis.causes and diagnosis.causes[0].because:
        best = diagnosis.causes[0]
        lines.append(f"{best_cause_text(best)}.")
    else:
        lines.append("The observations do not point at one cause.")
    proof = session.last("proof")
    if proof:
        lines.append(f"{proof_outcome(proof).capitalize()}: {proof.data.get('what', '')}.")
    return lines


def _answers(session: Session, knowledge: Knowledge) -> list[Block]:
    given: dict[str, str] = {}
    for event in session.events:
        if event.kind == "answer":
            given.pop(event.data["question"], None)
            if event.data["answer"] is not None:
                given[event.data["question"]] = event.data["answer"]
    rows: list[list[str]] = []
    for question, answer in given.items():
        spec = knowledge.questions.get(question)
        text = spec.answers.get(answer, answer) if spec else answer
        rows.append([spec.ask if spec else question, text])
    notes = [event.data.get("text", "") for event in session.events if event.kind == "note"]
    blocks: list[Block] = [Table(["Question", "Answer"], rows)] if rows else []
    return [*blocks, *(Code(note) for note in notes if note)]


def _job(session: Session) -> list[Block]:
    blocks: list[Block] = []
    for job in _jobs(session):
        verdict = job["verdict"]
        blocks.append(f"{job['launcher']}, {job['world_size']} ranks: {verdict['state']}.")
        lines = [(verdict["why"], sure_text(verdict["confidence"]))]
        if verdict["culprits"]:
            lines.append((f"Culprits: {rank_ranges(verdict['culprits'])}", verdict.get("where") or ""))
        if verdict.get("branch"):
            lines.append(("The condition that led there", verdict["branch"]))
        blocks.append(Bullets([line for line in lines if line[0]]))
        groups = rank_groups.group_rows(msgspec.convert(job["ranks"], list[RankRow]), verdict["culprits"])
        header, rows = rank_groups.rank_table(groups)
        blocks.append(Table([name.capitalize() for name in header], rows))
    newest = session.last("triage")
    return [*blocks, *(Code(part) for part in newest.data.get("source", []))] if newest else blocks


def _jobs(session: Session) -> list[dict[str, Any]]:
    """Return the jobs of the newest triage, worst first."""
    event = session.last("triage")
    return [job for job in event.data.get("jobs", []) if "verdict" in job] if event else []


def _ranking(diagnosis: Diagnosis) -> list[Block]:
    blocks: list[Block] = []
    causes = diagnosis.named(MOST_CAUSES)
    if causes:
        rows = [[probability_text(cause.confidence), cause.title, cause.id] for cause in causes]
        blocks.append(
            Table(["Share", "Cause", "Id"], [*rows, [probability_text(diagnosis.rest(causes)), "something else", ""]])
        )
    for cause in causes:
        blocks.append(f"{cause.title}, because:")
        blocks.append(Bullets([_reason(line) for line in (*cause.because, *cause.against)]))
    return blocks


def _reason(line: ReasonLine) -> tuple[str, str]:
    where = f"{line.where}, " if line.where else ""
    return line.what, f"{line.source}, {where}{line.strength}"


def _fixes(session: Session) -> list[Block]:
    blocks: list[Block] = []
    for event in session.events:
        data = event.data
        if event.kind == "fix":
            files = f": {', '.join(data['paths'])}" if data.get("paths") else ""
            title = data.get("title") or data["id"]
            blocks.append(f"{_clock(event)} {data['action']}: {title} (for {data['cause']}){files}.")
            if data.get("diff"):
                blocks.append(Code(data["diff"], "diff"))
        elif event.kind == "proof":
            outcome = proof_outcome(event)
            sign = status_glyph(OUTCOME_STATUS[outcome], ascii_only=False)
            blocks.append(f"{_clock(event)} {sign} {outcome}: {data.get('what', '')}.")
            if data.get("before"):
                blocks.append(f"Before: {data['before']}. After: {data.get('after', '')}.")
            if data.get("detail"):
                blocks.append(Code(data["detail"]))
            if data.get("diff"):
                blocks += ["The change that was proved (applied to a copy):", Code(data["diff"], "diff")]
    return blocks


def _machine(session: Session) -> list[Block]:
    from .probes.run_probes import judge_snapshot, merge_snapshots

    snapshots = [snapshot_from_plain(event.data) for event in session.events if event.kind == "snapshot"]
    if not snapshots:
        return []
    snapshot = snapshots[0]
    for newer in snapshots[1:]:
        snapshot = merge_snapshots(snapshot, newer)
    checks = judge_snapshot(snapshot)
    rows = [
        [fact.name, fact.text, _status_text(fact.status, fact.problem)]
        for fact in summary.machine_summary(snapshot, checks)
    ]
    bad = [check for check in checks if check.status in summary.STATUS_SEVERITY]
    blocks: list[Block] = [f"{snapshot.host}, inspected {_date(snapshot.taken_at)}.", Table(["", "", ""], rows)]
    if bad:
        blocks.append(Bullets([_check(check) for check in bad]))
    good = sum(check.status == "ok" for check in checks)
    return [*blocks, f"{good} more checks passed."] if good else blocks


def _status_text(status: str, problem: str) -> str:
    return f"{STATUS[status]}: {problem}" if status else ""


def _check(check: Check) -> tuple[str, str]:
    what = ". ".join(part.rstrip(".") for part in (check.title, check.detail) if part)
    return f"{STATUS[check.status]}: {what}." + (f" → {check.fix}" if check.fix else ""), check.where


def _evidence(diagnosis: Diagnosis) -> list[Block]:
    rows: list[list[str]] = []
    for item in diagnosis.evidence:
        place = ", ".join(
            part
            for part in (item.where, item.host, f"rank {item.rank}" if item.rank is not None else "")
            + ((f"pid {item.pid}",) if item.pid else ())
            if part
        )
        rows.append([item.source, item.what, place, item.id])
    return [Table(["From", "What", "Where", "Id"], rows)] if rows else []


def _about(session: Session, knowledge: Knowledge, public: bool) -> list[Block]:
    opened = next((event for event in session.events if event.kind == "opened"), None)
    lines: list[str] = [f"Session {session.id}"]
    if opened:
        command = " ".join(["ddpwizard", *map(str, opened.data.get("argv", []))])
        lines[0] += f", begun {_date(opened.at)} with ddpwizard {opened.data.get('version', '')}"
        lines.append(f"Started as: {command}" + (f", in {opened.data['cwd']}" if opened.data.get("cwd") else ""))
    lines.append(f"Knowledge {knowledge.version}")
    lines.append("Secrets in environments and command lines are taken out.")
    if public:
        lines.append("Hosts, addresses, user names and paths are renamed: the same alias is the same thing.")
    return [Bullets(lines)]


def _clock(event: SessionEvent) -> str:
    return time.strftime("%H:%M:%S", time.localtime(event.at))


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
