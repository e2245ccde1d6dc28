"""``ddpwizard triage``: inspect the jobs running here: which rank, which line, why."""

import asyncio
import gzip
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from ...knowledge.schema import Knowledge
from ..diagnosis.case import Case
from ..diagnosis.reviewed_job import explain_by_review, place_of_divergence
from ..errors import InspectionError, UserError
from ..exit_codes import ExitCode
from ..jobs import other_processes
from ..options import Options, knowledge_for
from ..review.file_review import review_file
from ..system import procfs
from ..system.files import check_result_file, write_result
from ..text.json_output import print_json, public_document
from ..text.redact import redact_text
from ..text.terminal import Verbatim, align_columns, print_line, print_progress, terminal_width, wrap_line
from ..text.units import sure_text
from ..triage import other_hosts, phrases, rank_groups
from ..triage.process_json import process_rows
from ..triage.sampling import flight_recorder_dumps
from ..triage.triage import evidence_of_report, sort_by_severity, triage_jobs
from ..triage.types import JobReport
from ..triage.verdict import judge_job
from .common import common_options, force_option

TIED = 0.5  # with less confidence the culprits are a guess
TROUBLE = ("hung", "dead")
INTERNAL = ("observed",)


@click.command(name="triage")
@click.option("--pid", type=int, metavar="PID", help="The job of this launcher, rank or child of a rank.")
@click.option(
    "--flight-recorder",
    "recorder",
    metavar="PATH…",
    multiple=True,
    help="Analyse Flight Recorder dumps.",
)
@click.option("--logs", metavar="PATH…", multiple=True, help="Analyse logs; with --pid, together with the job.")
@click.option("--save", metavar="FILE", help="Save the snapshot for --merge; - is stdout.")
@force_option("--save")
@click.option("--merge", metavar="FILE…", multiple=True, help="Analyse saved snapshots of one or more hosts.")
@click.argument("more", nargs=-1, metavar="")
@common_options
def command(
    pid: int | None,
    recorder: tuple[str, ...],
    logs: tuple[str, ...],
    save: str | None,
    force: bool,
    merge: tuple[str, ...],
    more: tuple[str, ...],
    options: Options,
) -> int:
    """Inspect the distributed jobs running here: where each rank is, whether it makes progress, and why not.

    Nothing is paused or changed. The exit code is 1 if a job is hung or dead, or if one rank slows it down.

    \b
    Examples:
      ddpwizard triage
      ddpwizard triage --pid 4711 --json
      ddpwizard triage --flight-recorder /tmp/nccl_trace
      ddpwizard triage --save node-1.json        (on each host, then)
      ddpwizard triage --merge node-*.json
    """
    given = {"--flight-recorder": recorder, "--logs": logs, "--merge": merge}
    used = [name for name, values in given.items() if values]
    if more and not used:
        raise UserError(f"unexpected argument: {more[0]}", "pass files with --flight-recorder, --logs or --merge")
    if len(used) > 1 or (used and pid is not None and used != ["--logs"]):
        names = " and ".join([*used, *(["--pid"] if pid is not None else [])])
        raise UserError(f"{names} cannot be combined", "use one of them")
    if save and save != "-":
        check_result_file(Path(save), "--save", force=force)
    knowledge = knowledge_for(options)
    paths = [Path(path) for values in given.values() for path in values] + [Path(path) for path in more]
    reports = _reports(used[0] if used else "", paths, pid, options)
    if save:
        _save(reports, save, force)
    if save == "-":
        return _exit_code(reports)
    if pid is not None and all(row.state == "unreadable" for report in reports for row in report.ranks):
        raise InspectionError(f"pid {pid}: {reports[0].verdict.why}", "pass a Python process that you may read")
    reports = [explain_by_review(report, knowledge) for report in reports]
    hints = other_processes.jobs_of_other_users(procfs.all_processes()) if pid is None and not used else []
    if options.json:
        body = {"jobs": [report_as_json(report, knowledge) for report in reports], "hints": hints}
        print_json(public_document("triage", knowledge, body))
        return _exit_code(reports)
    width = terminal_width(sys.stdout)
    for index, report in enumerate(reports):
        text = redact_text("\n".join(([""] if index else []) + report_lines(report, knowledge, width)))
        for line in text.split("\n"):
            print_line(Verbatim(line))  # its sentences are wrapped, its table and source are not
    if not reports:
        print_line("No distributed job of yours runs on this machine.")
    for line in hints:
        print_progress(line)
    return _exit_code(reports)


def _reports(source: str, paths: list[Path], pid: int | None, options: Options) -> list[JobReport]:
    """Return the jobs, worst first: from saved snapshots, dumps or logs, or by sampling (with logs, if given)."""
    if source == "--merge":
        from ..triage import saved

        return sort_by_severity(
            [judge_job(observed) for observed in saved.merge_bundles([saved.read_bundle(path) for path in paths])]
        )
    if source == "--flight-recorder":
        from ..triage.flight_recorder import loader, report

        return [report.report_from_records(loader.load_records(paths))]
    if source == "--logs" and pid is None:
        from ..triage.job_logs import read

        return [read.report_from_logs(paths)]
    return asyncio.run(triage_jobs(pid=pid, logs=paths, allow=options.allow or "reads", progress=print_progress))


def _save(reports: list[JobReport], target: str, force: bool) -> None:
    from ..triage import saved

    content = saved.encode_bundle([report.observed for report in reports])
    if target == "-":
        sys.stdout.buffer.write(content + b"\n")
        return
    write_result(Path(target), gzip.compress(content) if target.endswith(".gz") else content, "--save", force=force)
    print_progress(f"saved to {target}")


def _exit_code(reports: list[JobReport]) -> ExitCode:
    found = any(report.verdict.is_failure or report.verdict.culprits for report in reports)
    return ExitCode.FOUND if found else ExitCode.OK


def report_as_json(report: JobReport, knowledge: Knowledge) -> dict[str, Any]:
    """Return a job of the triage document: its public report and its diagnosis."""
    case = Case(knowledge)
    case.add(evidence_of_report(report, case.knowledge.findings()))
    body: dict[str, Any] = msgspec.to_builtins(report)
    public = {name: value for name, value in body.items() if name not in INTERNAL}
    diagnosis = msgspec.to_builtins(case.diagnosis())
    return {"id": report.job.id, **public, "processes": process_rows(report), "diagnosis": diagnosis}


def report_lines(report: JobReport, knowledge: Knowledge, width: int = 0) -> list[str]:
    """Return a job as text: the verdict, then the ranks, then the source.

    Sentences are wrapped to a width, if one is given; the table and the source are not.
    """

    def wrapped(texts: Iterable[str]) -> list[str]:
        return [line for text in texts for line in wrap_line(f"  {text}", width)]

    verdict = report.verdict
    lines = [rank_groups.job_title(report), *wrapped([verdict.why, _verdict_line(report, knowledge)])]
    groups = rank_groups.rank_groups(report)
    if groups:
        lines += ["", *_table(groups)]
    lines += wrapped([*rank_groups.long_notes(groups), *rank_groups.blocking_children(report)])
    code = rank_groups.source_excerpt(report)
    if code:
        lines += ["", *(_code_line(line) for line in code)]
    if further := other_hosts.other_hosts_lines(report):
        lines += ["", *(f"  {line}" for line in further)]
    if verdict.state in TROUBLE and verdict.cause is None and not report.observed.records and report.job.processes:
        lines += ["", *wrapped([f"Not inspected: {flight_recorder_dumps.how_to_enable(report.job)}."])]
    lines += wrapped(f"Not inspected: {problem}" for problem in report.observed.problems)
    if verdict.cause and verdict.cause in knowledge.causes:
        lines += ["", f"  ddpwizard explain {verdict.cause} shows more."]
        if script := _patched(report, knowledge):
            lines.append(f"  ddpwizard review {shlex.quote(script)} --diff shows a patch.")
        elif report.job.processes:
            lines.append("  ddpwizard shows the fixes for this job: choose it, then press f.")
    return lines


def _verdict_line(report: JobReport, knowledge: Knowledge) -> str:
    """Return the state of a job, how sure it is, and the cause."""
    verdict = report.verdict
    state = phrases.JOB_STATE_TEXT[verdict.state][1].capitalize()
    sure = sure_text(verdict.confidence)
    cause = knowledge.causes.get(verdict.cause or "")
    name = _lower(cause.title) if cause else verdict.cause
    if verdict.cause and verdict.state == "hung" and verdict.confidence < TIED:
        return f"{state}. Most likely: {name}. Which of these ranks is at fault is {sure}."
    if verdict.cause:
        by = f" (line {verdict.branch.rpartition(':')[2]})" if verdict.branch else ""
        return f"{state}. Cause, {sure} by what the ranks show: {name}{by}."
    if verdict.state == "hung" and verdict.culprits:
        return f"{state}. Which ranks are at fault is {sure}."
    return f"{state}, {sure}." if verdict.state in ("hung", "progressing") else f"{state}."


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _patched(report: JobReport, knowledge: Knowledge) -> str:
    """Return the path of the culprit's script if review has a patch for the cause, or ""."""
    path = (report.verdict.where or "").rpartition(":")[0]
    try:
        found = review_file(Path(path), knowledge) if path else []
    except UserError:
        return ""
    wanted = report.verdict
    of_verdict = [each for each in found if each.cause == wanted.cause or place_of_divergence(each) == wanted.branch]
    return path if any(each.fix and each.fix.diff for each in of_verdict) else ""


def _table(groups: list[rank_groups.RankGroup]) -> list[str]:
    header, rows = rank_groups.rank_table(groups)
    marks = ["▸" if group.culprit else "" for group in groups]
    marked = [["", *header], *([mark, *row] for mark, row in zip(marks, rows, strict=True))]
    return [f"  {line}" for line in align_columns(marked)]


def _code_line(line: rank_groups.CodeLine) -> str:
    if line.number is None:
        return f"  {line.text or '     …'}"
    mark = f"  ◀ {line.mark}" if line.mark else ""
    return f"  {'▸' if line.culprit else ' '} {line.number:>4}  {line.text.rstrip()}{mark}"
