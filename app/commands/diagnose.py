"""``ddpwizard diagnose``: rank causes from logs, an error or a description."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...knowledge.schema import Knowledge
from ..diagnosis.case import Case
from ..diagnosis.dialogue import is_clear, no_cause_text
from ..diagnosis.given_text import is_python_script, is_text
from ..diagnosis.intake import IntakeResult, add_to_case
from ..diagnosis.next_step import LEAST_GAIN_BITS
from ..errors import UserError
from ..evidence import Diagnosis, Evidence, ReasonLine
from ..exit_codes import ExitCode
from ..logs import timeline_chart
from ..logs.read import LogInput, find_sources, source_of_text
from ..logs.types import Timeline
from ..options import Options, knowledge_for, target_python
from ..text.json_output import print_json, public_document
from ..text.progress import ProgressLine
from ..text.terminal import Verbatim, print_line, print_progress
from ..text.units import bytes_text, probability_text
from .common import ScreenRequested, common_options
from .diagnose_questions import (
    LOG,
    LOG_OF_STDIN,
    ask_before_guess,
    line_to_repeat,
    print_answers,
    print_question,
    print_what_to_give,
    with_commands,
)

if TYPE_CHECKING:
    from ..diagnosis.job_of_case import CaseFiles
    from ..fixes.types import Fix
    from ..snapshot import Snapshot

SHOWN_CAUSES = 3
SHOWN_LINES = 4
SHOWN_CHARACTERS = 160
TEXT_ORIGIN = "<text>"  # of a text given as an argument


@click.command(name="diagnose")
@click.argument("paths", nargs=-1, metavar="[PATH|TEXT…|-]")
@click.option("--script", metavar="FILE", help="Training script, reviewed as part of the case.")
@click.option("--probe/--no-probe", default=False, help="Also check this machine, if the log is from here.")
@click.option(
    "--answer", "answers", metavar="ID=VALUE", multiple=True, help="Answer a question of the wizard. Repeatable."
)
@common_options
def command(paths: Sequence[str], script: str | None, probe: bool, answers: Sequence[str], options: Options) -> int:
    """Rank causes from logs, an error or a description. All arguments are one case; - is standard input.

    \b
    Examples:
      ddpwizard diagnose train.log
      ddpwizard diagnose "RuntimeError: Address already in use"
      torchrun --nproc-per-node=4 train.py 2>&1 | ddpwizard diagnose -
      ddpwizard diagnose logs/ --script train.py --json
    """
    if not paths and not answers and not script:
        if sys.stdin.isatty() and not options.json:
            raise ScreenRequested("paste", options)
        paths = ["-"]
    knowledge = knowledge_for(options)
    case = Case(knowledge)
    texts = [given for given in paths if is_text(given)]
    files = [given for given in paths if given not in texts]
    scripts = [path for path in files if path != "-" and is_python_script(Path(path))]
    for path in scripts:
        print_progress(f"{path} is a Python script: reviewed, not read as a log")
    if script and script not in scripts:
        scripts = [script, *scripts]
    logs = [path for path in files if path not in scripts]
    is_about_training, timeline, logs = _read_into(case, logs, texts, scripts)
    for answer in answers:
        case.answer(*_parse_answer(answer, knowledge))
    snapshot = None
    if probe:
        from ..diagnosis.job_of_case import CaseFiles

        found, snapshot = _inspect(knowledge, CaseFiles(logs, scripts, timeline), options)
        case.add(found)
    if timeline and not scripts:
        _review_named_script(case, timeline)
    scope = is_about_training or any(map(case.answer_to, case.answers)) or probe

    def diagnose() -> Diagnosis:
        return case.diagnosis(in_scope=scope, may_probe=[] if probe else _readable_probes(knowledge))

    diagnosis = diagnose() if options.json else ask_before_guess(case, diagnose)
    if is_clear(diagnosis):
        diagnosis = msgspec.structs.replace(diagnosis, next=[])
    cause = diagnosis.cause_to_fix
    fixes = _fixes(knowledge, cause.id, case, timeline, scripts, snapshot) if cause else []
    line = ["ddpwizard", "diagnose", *paths, *(["--script", script] if script else [])]
    line += [word for answer in answers for word in ("--answer", answer)] + ["--probe"] * probe
    line = line_to_repeat(line)
    if options.json:
        body = msgspec.to_builtins(with_commands(diagnosis, line)) | {"fix": _document(fixes)}
        print_json(public_document("diagnosis", knowledge, body))
    else:
        if timeline and (chart := timeline_chart.chart_lines(timeline)):
            for row in [*chart, ""]:
                print_line(row)
        asked = print_question(case, diagnosis, line)
        print_diagnosis(diagnosis, knowledge, line, asked)
        print_fixes(fixes)
        if diagnosis.in_scope and not fixes:
            print_what_to_give(diagnosis, line, has_script=bool(scripts))
    return ExitCode.FOUND if diagnosis.named(1) else ExitCode.OK


def _fixes(
    knowledge: Knowledge,
    cause: str,
    case: Case,
    timeline: Timeline | None,
    scripts: Sequence[str],
    snapshot: "Snapshot | None",
) -> "list[Fix]":
    from ..fixes.build import build_fixes
    from ..fixes.facts import FixContext

    context = FixContext(snapshot=snapshot, evidence=case.evidence, timeline=timeline, script=next(iter(scripts), None))
    return build_fixes(knowledge.causes[cause], context, knowledge)


def _document(fixes: "Sequence[Fix]") -> Any:
    from ..fixes.fix_text import fix_document

    return fix_document(fixes[0]) if fixes else None


def _read_into(
    case: Case, logs: Sequence[str], texts: Sequence[str], scripts: Sequence[str]
) -> tuple[bool, Timeline | None, list[str]]:
    """Add all logs, texts and scripts. Return whether any of it is about distributed training, the timeline, and the
    files."""
    in_scope, timeline, files = False, None, list[str]()
    sources = [*find_sources(logs), *(source_of_text(text, TEXT_ORIGIN) for text in texts)]
    if sources:
        found = _read_with_progress(case, sources)
        in_scope, timeline, files = found.in_scope, found.timeline, found.logs
    for script in scripts:
        from ..review.file_review import review_file
        from ..review.review import evidence_of_findings

        case.add(evidence_of_findings(review_file(Path(script), case.knowledge)))
        in_scope = True
    return in_scope, timeline, files


def _review_named_script(case: Case, timeline: Timeline) -> None:
    """Review the script that the log names, if it is here, for collectives that its ranks do not reach alike."""
    from ..fixes.facts import CaseFacts, FixContext

    named = CaseFacts(FixContext(timeline=timeline)).target[:1]
    if named and Path(named[0]).is_file():
        from ..diagnosis.script_evidence import add_divergences

        add_divergences(case, Path(named[0]))


def _read_with_progress(case: Case, sources: Sequence[LogInput]) -> IntakeResult:
    """Read the logs into the case, with a line of progress where it takes longer than a second."""
    total_bytes = 0

    def text(done_bytes: int) -> str:
        of = f" of {bytes_text(total_bytes)}  {done_bytes / total_bytes:4.0%}" if total_bytes else ""
        return f"read {bytes_text(done_bytes)}{of}"

    def show(done_bytes: int, all_bytes: int) -> None:
        nonlocal total_bytes
        total_bytes = all_bytes
        progress.draw(done_bytes)

    progress = ProgressLine(text, logged=True)
    try:
        return add_to_case(case, sources, show)
    finally:
        progress.clear()


def _parse_answer(given: str, knowledge: Knowledge) -> tuple[str, str]:
    question, _, answer = given.partition("=")
    spec = knowledge.questions.get(question)
    if spec is None:
        raise UserError(f"--answer {given}: no question {question!r}", "questions: " + ", ".join(knowledge.questions))
    if answer not in spec.answers:
        raise UserError(f"--answer {given}: {question} has no answer {answer!r}", "answers: " + ", ".join(spec.answers))
    return question, answer


def _readable_probes(knowledge: Knowledge) -> list[str]:
    return [id_ for id_, spec in knowledge.probes.items() if spec.intrusiveness == "reads" and spec.findings]


def _inspect(knowledge: Knowledge, files: "CaseFiles", options: Options) -> tuple[list[Evidence], "Snapshot"]:
    """Return what this machine and the job of the logs and scripts show; other jobs are only mentioned."""
    import asyncio

    from ..diagnosis.job_of_case import jobs_of_case
    from ..diagnosis.reviewed_job import explain_by_review
    from ..probes.context import ProbeContext
    from ..probes.run_probes import judge_snapshot, permitted_probes, run_probes
    from ..triage.job_text import other_jobs_note
    from ..triage.triage import evidence_of_report, triage_jobs

    granted = options.allow or "reads"
    context = ProbeContext(python=target_python(options), progress=print_progress)

    async def inspect() -> tuple[list[Evidence], "Snapshot"]:
        reports = await triage_jobs(allow=granted, progress=print_progress)
        of_case = jobs_of_case(reports, files)[:1]
        if note := other_jobs_note([report for report in reports if report not in of_case]):
            print_progress(note)
        snapshot = await run_probes(permitted_probes(knowledge, granted), context, knowledge, granted=granted)
        seen = [item for check in judge_snapshot(snapshot) if (item := check.evidence())]
        explained = [explain_by_review(report, knowledge) for report in of_case]
        seen += [item for report in explained for item in evidence_of_report(report, knowledge.findings())]
        return seen, snapshot

    return asyncio.run(inspect())


def _reason(line: ReasonLine) -> str:
    """Render one reason: how strong it is, its source, the observation, and its place."""
    what = line.what if len(line.what) <= SHOWN_CHARACTERS else line.what[: SHOWN_CHARACTERS - 1] + "…"
    return f"   {line.strength:<8}  {line.source:<11} {what}" + (f"   [{line.where}]" if line.where else "")


def print_fixes(fixes: "Sequence[Fix]") -> None:
    """Print the first fix of a cause, and where the others are."""
    if not fixes:
        return
    from ..fixes.fix_text import short_fix_lines

    for line in ["", *short_fix_lines(fixes[0])]:
        print_line(line)
    others = len(fixes) - 1
    more = f"{others} other {'fix' if others == 1 else 'fixes'}: " if others else ""
    print_line(f"  {more}ddpwizard explain {fixes[0].cause}")


def print_diagnosis(
    diagnosis: Diagnosis, knowledge: Knowledge, command_line: Sequence[str] = (), asked: bool = False
) -> None:
    """Print the ranking: the best causes with their reasons, other observations, and the next step.

    ``command_line`` is that of this run, to which the next step is added. ``asked``: a question is printed already.
    """
    named = diagnosis.named(SHOWN_CAUSES)
    if not named:
        print_line(no_cause_text(diagnosis))
        if not diagnosis.in_scope:
            return
    for place, cause in enumerate(named, 1):
        bar = "█" * max(1, round(cause.confidence * 20))
        print_line(f"{place}  {cause.title}   {probability_text(cause.confidence)}  {bar}")
        for line in cause.because[:SHOWN_LINES]:
            print_line(_reason(line))
        for line in cause.against[:2]:
            print_line(_reason(line))
        if place == 1:
            print_line(f"     {knowledge.causes[cause.id].summary}")
    if named:
        print_line(f"–  something else   {probability_text(diagnosis.rest(named))}")
    for item in diagnosis.evidence:
        kind, _, id_ = item.id.partition(":")
        if kind == "message" and id_ in knowledge.messages:
            message = knowledge.messages[id_]
            what = "not about several ranks" if message.kind == "unrelated" else "not the cause, ignore"
            print_line(f"   {what}: {message.says}   [{item.where}]")
    probe = next((step for step in diagnosis.next if step.kind == "probe"), None)
    question = next((step for step in diagnosis.next if step.kind == "question"), None)
    if question and question.expected_gain <= LEAST_GAIN_BITS:
        question = None
    again = shlex.join(command_line)
    if probe:
        print_line(f"next: check {probe.text}")
        print_line(Verbatim(f"  {again} --probe"))
    if question and not asked:
        print_line(f"next: {question.text}")
        print_answers(question, command_line)
    elif LOG in command_line and not asked and probe:
        print_line(f"  {LOG_OF_STDIN}")
