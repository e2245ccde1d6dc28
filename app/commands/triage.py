"""``ddpwizard triage``: the jobs running here: which rank, which line, why."""

import asyncio
import gzip
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from ...knowledge.schema import Knowledge
from ..errors import CouldNotLook, UserError
from ..files import check_writable, write_whole
from ..job import elsewhere, view
from ..job.find import leftovers, procfs
from ..job.look import dumps
from ..job.processes import processes
from ..job.triage import evidence_of, in_order, triage
from ..job.types import JobReport
from ..job.verdict import judge
from ..review.review import review_file
from ..wizard import Case
from .common import Options, common_options, document, knowledge_for, print_json, say, tell

NOTE_WIDTH = 48
TIED = 0.5  # below it the ranks to blame are a guess
TROUBLE = ("hung", "dead")
INTERNAL = ("observed",)


@click.command(name="triage")
@click.option("--pid", type=int, metavar="PID", help="The job of this launcher, rank or child of a rank.")
@click.option(
    "--flight-recorder",
    "recorder",
    metavar="PATH…",
    multiple=True,
    help="Judge Flight Recorder dumps.",
)
@click.option("--logs", metavar="PATH…", multiple=True, help="Judge logs; with --pid, along with the job.")
@click.option("--save", metavar="FILE", help="Save what was seen, to be judged or merged elsewhere; - is stdout.")
@click.option("--merge", metavar="FILE…", multiple=True, help="Judge saved looks, of one host or many.")
@click.argument("more", nargs=-1, metavar="")
@common_options
def command(
    pid: int | None,
    recorder: tuple[str, ...],
    logs: tuple[str, ...],
    save: str | None,
    merge: tuple[str, ...],
    more: tuple[str, ...],
    options: Options,
) -> int:
    """Look at the distributed jobs that run here: where each rank stands, whether they move, and why not.

    Nothing is paused or changed. The exit code is 1 when a job is hung or dead, or one rank paces it.

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
        raise UserError(f"triage takes no bare file: {more[0]}", "put --flight-recorder, --logs or --merge before it")
    if len(used) > 1 or (used and pid is not None and used != ["--logs"]):
        names = " and ".join([*used, *(["--pid"] if pid is not None else [])])
        raise UserError(f"{names} do not go together", "give one of them")
    if save and save != "-":
        check_writable(Path(save), "--save")
    knowledge = knowledge_for(options)
    paths = [Path(path) for values in given.values() for path in values] + [Path(path) for path in more]
    reports = _reports(used[0] if used else "", paths, pid, options)
    if save:
        _save(reports, save)
    if save == "-":
        return _code(reports)
    if pid is not None and all(row.state == "unreadable" for report in reports for row in report.ranks):
        raise CouldNotLook(f"pid {pid}: {reports[0].verdict.why}", "give a Python process, or the rights to read it")
    if options.json:
        print_json(document("triage", knowledge, {"jobs": [as_json(report, knowledge) for report in reports]}))
        return _code(reports)
    for index, report in enumerate(reports):
        for line in ([""] if index else []) + render(report, knowledge):
            say(line)
    if not reports:
        say("No distributed job of yours runs on this machine.")
    if pid is None and not used:
        for line in leftovers.others(procfs.all_processes()):
            tell(line)
    return _code(reports)


def _reports(what: str, paths: list[Path], pid: int | None, options: Options) -> list[JobReport]:
    """The jobs, worst first: from saved looks, from dumps, or alive (with logs, where given)."""
    if what == "--merge":
        from ..job import bundle

        return in_order([judge(observed) for observed in bundle.merge([bundle.read(path) for path in paths])])
    if what == "--flight-recorder":
        from ..job.recorder import read, report

        return [report.report(read.read_paths(paths))]
    if what == "--logs" and pid is None:
        from ..job.log import joblog

        return [joblog.report(paths)]
    return asyncio.run(triage(pid=pid, logs=paths, allow=options.allow or "reads", progress=tell))


def _save(reports: list[JobReport], target: str) -> None:
    from ..job import bundle

    content = bundle.encode([report.observed for report in reports])
    if target == "-":
        sys.stdout.buffer.write(content + b"\n")
        return
    write_whole(Path(target), gzip.compress(content) if target.endswith(".gz") else content, "--save")
    tell(f"saved to {target}")


def _code(reports: list[JobReport]) -> int:
    return 1 if any(report.verdict.state in TROUBLE or report.verdict.culprits for report in reports) else 0


def as_json(report: JobReport, knowledge: Knowledge) -> dict[str, Any]:
    """A job as it stands in the triage document: its report without what is only of use here, and its diagnosis."""
    case = Case(knowledge)
    case.add(evidence_of(report))
    body: dict[str, Any] = msgspec.to_builtins(report)
    public = {name: value for name, value in body.items() if name not in INTERNAL}
    diagnosis = msgspec.to_builtins(case.diagnosis())
    return {"id": report.job.id, **public, "processes": processes(report), "diagnosis": diagnosis}


def render(report: JobReport, knowledge: Knowledge) -> list[str]:
    """A job as lines for people: the verdict, then the ranks, then the code."""
    verdict = report.verdict
    lines = [view.title(report), f"  {verdict.why}"]
    sure = f"{verdict.confidence:.0%} sure"
    if verdict.cause and verdict.state == "hung" and verdict.confidence < TIED:
        name = _lower(knowledge.causes[verdict.cause].title if verdict.cause in knowledge.causes else verdict.cause)
        lines.append(f"  {verdict.state}. Most likely: {name}. Which of the ranks is to blame: {sure}.")
    elif verdict.cause:
        cause = knowledge.causes.get(verdict.cause)
        name = _lower(cause.title) if cause else verdict.cause
        by = f" (line {verdict.branch.rpartition(':')[2]})" if verdict.branch else ""
        lines.append(f"  {verdict.state}, {sure}. Cause: {name}{by}.")
    elif verdict.state == "hung" and verdict.culprits:
        lines.append(f"  {verdict.state}. Which ranks are to blame: {sure}.")
    else:
        lines.append(f"  {verdict.state}" + (f", {sure}." if verdict.state in ("hung", "progressing") else "."))
    groups = view.rank_groups(report)
    if groups:
        lines += ["", *_table(groups)]
    lines += [f"  {note}" for note in dict.fromkeys(group.note for group in groups) if _short(note) != note]
    lines += [f"  {line}" for line in view.held_up(report)]
    code = view.excerpt(report)
    if code:
        lines += ["", *(_code_line(line) for line in code)]
    if further := elsewhere.command_lines(report):
        lines += [
            "",
            "  Ranks on other hosts were not looked at. To see them too:",
            *(f"    {line}" for line in further),
        ]
    if verdict.state in TROUBLE and verdict.cause is None and not report.observed.records and report.job.processes:
        lines += ["", f"  Not looked at: {dumps.way(report.job)}."]
    lines += [f"  Not looked at: {problem}" for problem in report.observed.problems]
    if verdict.cause and verdict.cause in knowledge.causes:
        lines += ["", f"  ddpwizard explain {verdict.cause} tells more."]
        if script := _patched(report, knowledge):
            lines.append(f"  ddpwizard review {script} --diff shows a patch.")
    return lines


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _patched(report: JobReport, knowledge: Knowledge) -> str:
    """The culprit's script, where review has a patch for what was found; or empty text."""
    path = (report.verdict.where or "").rpartition(":")[0]
    try:
        found = review_file(Path(path), knowledge) if path else []
    except UserError:
        return ""
    return path if any(each.fix and each.fix.diff and each.cause == report.verdict.cause for each in found) else ""


def _table(groups: list[view.RankGroup]) -> list[str]:
    rows = [("", "rank", "state", "where", "in", "last moved")]
    for group in groups:
        where = f"{group.where}  {group.function}" if group.where else _short(group.note)
        doing = group.doing or ""
        if group.note and group.where:
            doing = f"{doing} ({group.note})" if doing else group.note
        rows.append(("▸" if group.culprit else "", group.ranks, group.state, where, doing, group.since))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in rows
    ]


def _short(note: str) -> str:
    """The beginning of a note: the whole of it stands once below the table."""
    return note if len(note) <= NOTE_WIDTH else note[:NOTE_WIDTH].rpartition(" ")[0] + " …"


def _code_line(line: view.CodeLine) -> str:
    if line.number is None:
        return f"  {line.text or '     …'}"
    mark = f"  ◀ {line.mark}" if line.mark else ""
    return f"  {'▸' if line.culprit else ' '} {line.number:>4}  {line.text.rstrip()}{mark}"
