"""The plain wizard's work on a job: which rank waits where, the fix as a diff, and its proof; the demo in one go."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.errors import UserError
from ...app.fixes.types import Fix
from ...app.review.types import ReviewFinding
from ...app.text.units import percent_text
from ...app.triage import phrases
from ...app.triage.types import JobReport
from ..shell.state import UNWEIGHED, WizardState
from .prompt import Prompt, Quit
from .ranks import show_job

if TYPE_CHECKING:
    from ...app.fixes.build import FixContext
    from ...app.fixes.proof import ProofResult

DEMO_LIMIT_S = 60.0


def show_triage(desk: WizardState, talk: Prompt) -> None:
    """Show the jobs of this box, and take what they say into the case."""
    for report in desk.reports or []:
        show_job(talk, report)
    record_triage(desk, desk.reports or [])


def offer_fix(desk: WizardState, talk: Prompt, cause_id: str) -> None:
    """What mends a cause: shown whole, done only when asked, proved by the check that failed."""
    from ...app.fixes.build import build_fixes

    cause = desk.knowledge.causes[cause_id]
    desk.note_step("fix", cause_id)
    fixes = build_fixes(cause, fix_context(desk, cause_id), desk.knowledge)
    while True:
        talk.say("", f"What mends it: {cause.title}")
        given = talk.choose([_titled(each) for each in fixes], {"b": "back", "h": "home", "q": "quit"}, "Which one? ")
        if given == "b":
            return
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        _one_fix(desk, talk, fixes[int(given) - 1])


def fix_context(desk: WizardState, cause_id: str) -> "FixContext":
    """What is known for making a fix: the box, the job, its script and what review finds in it."""
    from ...app.fixes.build import FixContext

    report = next((each for each in desk.reports or [] if each.verdict.cause == cause_id), None)
    script = _script(report)
    findings = _review(desk, script)
    return FixContext(snapshot=desk.snapshot, script=str(script) if script else None, report=report, findings=findings)


def _one_fix(desk: WizardState, talk: Prompt, made: Fix) -> None:
    talk.say("", *fix_lines(made))
    talk.show_patch(made.diff())
    talk.say()
    report = next((each for each in desk.reports or [] if each.verdict.cause == made.cause), None)
    processes = report.job.processes if report else []
    directory = Path(processes[0].cwd) if processes and processes[0].cwd else Path.cwd()
    ways: list[str] = []
    if made.patches or made.files:
        ways.append(f"write it to {', '.join([patch.path for patch in made.patches] + list(made.files))}")
    if report and made.patches:
        ways.append("prove it: the job's own command line on a patched copy")
    elif (probe := desk.knowledge.causes[made.cause].verify.probe) not in UNWEIGHED:
        ways.append(f"look again at {desk.knowledge.probes[probe].title}, when it is done")
    given = talk.choose(ways, {"b": "back", "h": "home", "q": "quit"}, "What next? ")
    if given in ("h", "q"):
        raise Quit(home=given == "h")
    if given == "b":
        return
    if not ways[int(given) - 1].startswith("write"):
        _prove(desk, talk, made, report)
    elif talk.confirm(f"Write {'these changes' if made.patches else f'to {directory}'}? It can be undone."):
        _apply(desk, talk, made, directory)


def _apply(desk: WizardState, talk: Prompt, made: Fix, directory: Path) -> None:
    from ...app.fixes.apply import apply_fix

    try:
        applied = apply_fix(made, directory)
    except UserError as error:
        talk.say(f"  {talk.mark('fail')} {error}")
        return
    paths = [str(path) for path in applied.paths]
    _note_fix(desk, made, "applied", paths, applied.id)
    talk.say(f"  {talk.mark('ok')} written: {', '.join(paths)}", f"  undo with: ddpwizard undo {applied.id}")


def _prove(desk: WizardState, talk: Prompt, made: Fix, report: JobReport | None) -> None:
    from ...app.fixes.proof import prove_job, prove_probe

    cause = desk.knowledge.causes[made.cause]
    try:
        if report and made.patches:
            proof = asyncio.run(prove_job(report, made, progress=talk.tell))
        else:
            proof = asyncio.run(prove_probe(cause, desk.context(talk.tell), desk.knowledge, desk.granted))
    except UserError as error:
        talk.say(f"  {talk.mark('unknown')} {error}")
        return
    _note_proof(desk, talk, proof, "  ")


def fix_lines(made: Fix) -> list[str]:
    """Return a fix without its patches as lines: why it is not safe, commands, new files."""
    lines = [made.title + (f"  ({made.safety}: {made.why_unsafe})" if made.why_unsafe else "")]
    lines += made.text.strip().splitlines()
    lines += [f"  $ {command}" for command in made.commands]
    for name, content in made.files.items():
        lines += ["", f"new file {name}", *(f"  {line}" for line in content.splitlines())]
    return lines


def run_demo(desk: WizardState, talk: Prompt) -> int:
    """Start a real job that hangs, find out why, mend a copy and prove it, step by step without a question.

    0 when the fix was proved, 1 when not.
    """
    return asyncio.run(_demo(desk, talk))


async def _demo(desk: WizardState, talk: Prompt) -> int:
    from ...app.fixes.build import build_fixes
    from ...app.fixes.proof import prove_job
    from ...app.options import target_python
    from ...app.watchdog.demo_job import DemoJob

    talk.say("1 start     a real four-process gloo training job on this machine, which will hang")
    desk.begin().answer("symptom", "hangs")
    async with DemoJob(target_python(desk.options)) as job:
        talk.say(f"            {job.script}, launcher pid {job.pid}")
        report = await _until_hung(desk, talk, job.pid)
        verdict = report.verdict
        desk.reports = [report]
        talk.say(f"2 hang      {report.world_size} ranks: {verdict.state}, looked at {_looks(report)} times")
        if verdict.state != "hung" or not verdict.where:
            talk.say(f"            {talk.mark('fail')} the demo needs a job that hangs; this one: {verdict.why}")
            return 1
        talk.say(
            f"3 verdict   {phrases.ranks_phrase(verdict.culprits)} at {verdict.where}, sent there by {verdict.branch}"
        )
        show_job(talk, report)
        record_triage(desk, [report])
        best = desk.diagnosis().causes[0]
        talk.say(f"  cause     {best.title} ({percent_text(best.confidence)})")
        desk.note("diagnosis", causes=[[best.id, best.confidence]], other=desk.diagnosis().other)
        made = build_fixes(desk.knowledge.causes[best.id], fix_context(desk, best.id), desk.knowledge)
        patch = next((each for each in made if each.patches), None)
        if patch is None:
            talk.say(f"4 patch     {talk.mark('fail')} none could be made")
            return 1
        talk.say("", f"4 patch     {patch.title}", "", *(f"  {line}".rstrip() for line in fix_lines(patch)[1:]))
        talk.show_patch(patch.diff())
        talk.say()
        talk.say("5 apply     to a copy of the job's files; the originals stay as they are")
        talk.say("6 relaunch  the same command line on the copy, on a free port")
        proof = await prove_job(report, patch, limit_s=DEMO_LIMIT_S, progress=talk.tell)
    _note_fix(desk, patch, "applied to a copy", [], "")
    _note_proof(desk, talk, proof, "7 proof     ")
    desk.close()
    session = desk.case.session
    assert session is not None
    talk.say("", f"As a page to read or hand on: ddpwizard sessions export {session.id}")
    return 0 if proof.passed else 1


def _looks(report: JobReport) -> int:
    return max(len(seen.samples) for seen in report.observed.seen)


async def _until_hung(desk: WizardState, talk: Prompt, pid: int) -> JobReport:
    """Triage the job until it stands still; what it is after the limit otherwise."""
    from ...app.triage.triage import triage_jobs as look

    loop = asyncio.get_running_loop()
    until = loop.time() + DEMO_LIMIT_S
    while True:
        report = (await look(pid=pid, allow=desk.options.allow or "reads"))[0]
        if report.verdict.state in ("hung", "dead") or loop.time() > until:
            return report
        talk.tell(f"the job is {report.verdict.state}")


def record_triage(desk: WizardState, reports: Sequence[JobReport]) -> None:
    """What a triage saw, and what review says of the script, into the session and the case."""
    from ...app.report import triage_event_data
    from ...app.review.review import evidence_of_findings as evidence_of_review
    from ...app.triage.triage import evidence_of_report

    desk.note_step("triage")
    desk.case.take_triage(**triage_event_data(reports))
    for report in reports[:1]:
        desk.case.add(evidence_of_report(report))
        desk.case.add(evidence_of_review(_review(desk, _script(report))))
    desk.case.mark_probed("job")


def _script(report: JobReport | None) -> Path | None:
    path = (report.verdict.where or "").rpartition(":")[0] if report else ""
    return Path(path) if path else None


def _review(desk: WizardState, script: Path | None) -> list[ReviewFinding]:
    """What review finds in a script; nothing where it cannot be read as Python."""
    from ...app.review.review import review_file

    try:
        return review_file(script, desk.knowledge) if script else []
    except UserError:
        return []


def _note_fix(desk: WizardState, made: Fix, action: str, paths: list[str], backup: str) -> None:
    desk.note(
        "fix",
        id=made.id,
        cause=made.cause,
        title=made.title,
        action=action,
        paths=paths,
        backup=backup,
        diff=made.diff(),
    )


def _note_proof(desk: WizardState, talk: Prompt, proof: "ProofResult", label: str) -> None:
    desk.note("proof", passed=proof.passed, what=proof.what, detail=proof.detail)
    desk.proved = desk.proved or proof.passed
    word = f"{talk.mark('ok')} proved" if proof.passed else f"{talk.mark('fail')} not proved"
    talk.say(f"{label}{word}: {proof.what} ({proof.elapsed_s:.1f} s)")
    talk.say(*(f"{'':<{len(label)}}{line}" for line in proof.detail.splitlines()))


def _titled(made: Fix) -> str:
    return made.title + {"safe": "", "unsafe": "  (read it first)", "display": "  (by hand)"}[made.safety]
