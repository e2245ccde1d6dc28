"""The plain wizard's work on a job: which rank waits where, the fix as a diff, and its proof; the demo in one go."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.errors import UserError
from ...app.fixes.types import Fix
from ...app.probes.summary import share_text
from ...app.review.types import ReviewFinding
from ...app.triage import phrases
from ...app.triage.types import JobReport
from ..shell.state import PROBES_WITH_OWN_SCREEN, WizardState
from .prompt import Prompt, Quit
from .ranks import show_job

if TYPE_CHECKING:
    from ...app.fixes.build import FixContext
    from ...app.fixes.proof import ProofResult

DEMO_LIMIT_S = 60.0


def show_triage(state: WizardState, prompt: Prompt) -> None:
    """Show the jobs of this box, and take what they say into the case."""
    for report in state.reports or []:
        show_job(prompt, report)
    record_triage(state, state.reports or [])


def offer_fix(state: WizardState, prompt: Prompt, cause_id: str) -> None:
    """What mends a cause: shown whole, done only when asked, proved by the check that failed."""
    from ...app.fixes.build import build_fixes

    cause = state.knowledge.causes[cause_id]
    state.record_navigation("fix", cause_id)
    fixes = build_fixes(cause, fix_context(state, cause_id), state.knowledge)
    while True:
        prompt.write("", f"What mends it: {cause.title}")
        given = prompt.choose([_titled(each) for each in fixes], {"b": "back", "h": "home", "q": "quit"}, "Which one? ")
        if given == "b":
            return
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        _one_fix(state, prompt, fixes[int(given) - 1])


def fix_context(state: WizardState, cause_id: str) -> "FixContext":
    """What is known for making a fix: the box, the job, its script and what review finds in it."""
    from ...app.fixes.build import FixContext

    report = next((each for each in state.reports or [] if each.verdict.cause == cause_id), None)
    script = _script(report)
    findings = _review(state, script)
    return FixContext(snapshot=state.snapshot, script=str(script) if script else None, report=report, findings=findings)


def _one_fix(state: WizardState, prompt: Prompt, made: Fix) -> None:
    prompt.write("", *fix_lines(made))
    prompt.show_patch(made.diff())
    prompt.write()
    report = next((each for each in state.reports or [] if each.verdict.cause == made.cause), None)
    processes = report.job.processes if report else []
    directory = Path(processes[0].cwd) if processes and processes[0].cwd else Path.cwd()
    ways: list[str] = []
    if made.patches or made.files:
        ways.append(f"write it to {', '.join([patch.path for patch in made.patches] + list(made.files))}")
    if report and made.patches:
        ways.append("prove it: the job's own command line on a patched copy")
    elif (probe := state.knowledge.causes[made.cause].verify.probe) not in PROBES_WITH_OWN_SCREEN:
        ways.append(f"look again at {state.knowledge.probes[probe].title}, when it is done")
    given = prompt.choose(ways, {"b": "back", "h": "home", "q": "quit"}, "What next? ")
    if given in ("h", "q"):
        raise Quit(home=given == "h")
    if given == "b":
        return
    if not ways[int(given) - 1].startswith("write"):
        _prove(state, prompt, made, report)
    elif prompt.confirm(f"Write {'these changes' if made.patches else f'to {directory}'}? It can be undone."):
        _apply(state, prompt, made, directory)


def _apply(state: WizardState, prompt: Prompt, made: Fix, directory: Path) -> None:
    from ...app.fixes.apply import apply_fix

    try:
        applied = apply_fix(made, directory)
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")
        return
    paths = [str(path) for path in applied.paths]
    _note_fix(state, made, "applied", paths, applied.id)
    prompt.write(
        f"  {prompt.status_sign('ok')} written: {', '.join(paths)}", f"  undo with: ddpwizard undo {applied.id}"
    )


def _prove(state: WizardState, prompt: Prompt, made: Fix, report: JobReport | None) -> None:
    from ...app.fixes.proof import prove_job, prove_probe

    cause = state.knowledge.causes[made.cause]
    try:
        if report and made.patches:
            proof = asyncio.run(prove_job(report, made, progress=prompt.show_progress))
        else:
            proof = asyncio.run(prove_probe(cause, state.context(prompt.show_progress), state.knowledge, state.granted))
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('unknown')} {error}")
        return
    _note_proof(state, prompt, proof, "  ")


def fix_lines(made: Fix) -> list[str]:
    """Return a fix without its patches as lines: why it is not safe, commands, new files."""
    lines = [made.title + (f"  ({made.safety}: {made.why_unsafe})" if made.why_unsafe else "")]
    lines += made.text.strip().splitlines()
    lines += [f"  $ {command}" for command in made.commands]
    for name, content in made.files.items():
        lines += ["", f"new file {name}", *(f"  {line}" for line in content.splitlines())]
    return lines


def run_demo(state: WizardState, prompt: Prompt) -> int:
    """Start a real job that hangs, find out why, mend a copy and prove it, step by step without a question.

    0 when the fix was proved, 1 when not.
    """
    return asyncio.run(_demo(state, prompt))


async def _demo(state: WizardState, prompt: Prompt) -> int:
    from ...app.fixes.build import build_fixes
    from ...app.fixes.proof import prove_job
    from ...app.options import target_python
    from ...app.watchdog.demo_job import DemoJob

    prompt.write("1 start     a real four-process gloo training job on this machine, which will hang")
    state.begin().answer("symptom", "hangs")
    async with DemoJob(target_python(state.options)) as job:
        prompt.write(f"            {job.script}, launcher pid {job.pid}")
        report = await _until_hung(state, prompt, job.pid)
        verdict = report.verdict
        state.reports = [report]
        prompt.write(f"2 hang      {report.world_size} ranks: {verdict.state}, looked at {_looks(report)} times")
        if verdict.state != "hung" or not verdict.where:
            prompt.write(
                f"            {prompt.status_sign('fail')} the demo needs a job that hangs; this one: {verdict.why}"
            )
            return 1
        prompt.write(
            f"3 verdict   {phrases.ranks_phrase(verdict.culprits)} at {verdict.where}, sent there by {verdict.branch}"
        )
        show_job(prompt, report)
        record_triage(state, [report])
        best = state.diagnosis().causes[0]
        prompt.write(f"  cause     {best.title} ({share_text(best.confidence)})")
        state.record_event("diagnosis", causes=[[best.id, best.confidence]], other=state.diagnosis().other)
        made = build_fixes(state.knowledge.causes[best.id], fix_context(state, best.id), state.knowledge)
        patch = next((each for each in made if each.patches), None)
        if patch is None:
            prompt.write(f"4 patch     {prompt.status_sign('fail')} none could be made")
            return 1
        prompt.write("", f"4 patch     {patch.title}", "", *(f"  {line}".rstrip() for line in fix_lines(patch)[1:]))
        prompt.show_patch(patch.diff())
        prompt.write()
        prompt.write("5 apply     to a copy of the job's files; the originals stay as they are")
        prompt.write("6 relaunch  the same command line on the copy, on a free port")
        proof = await prove_job(report, patch, limit_s=DEMO_LIMIT_S, progress=prompt.show_progress)
    _note_fix(state, patch, "applied to a copy", [], "")
    _note_proof(state, prompt, proof, "7 proof     ")
    state.close()
    session = state.case.session
    assert session is not None
    prompt.write("", f"As a page to read or hand on: ddpwizard sessions export {session.id}")
    return 0 if proof.passed else 1


def _looks(report: JobReport) -> int:
    return max(len(seen.samples) for seen in report.observed.seen)


async def _until_hung(state: WizardState, prompt: Prompt, pid: int) -> JobReport:
    """Triage the job until it stands still; what it is after the limit otherwise."""
    from ...app.triage.triage import triage_jobs as look

    loop = asyncio.get_running_loop()
    until = loop.time() + DEMO_LIMIT_S
    while True:
        report = (await look(pid=pid, allow=state.options.allow or "reads"))[0]
        if report.verdict.state in ("hung", "dead") or loop.time() > until:
            return report
        prompt.show_progress(f"the job is {report.verdict.state}")


def record_triage(state: WizardState, reports: Sequence[JobReport]) -> None:
    """What a triage saw, and what review says of the script, into the session and the case."""
    from ...app.report import triage_event_data
    from ...app.review.review import evidence_of_findings as evidence_of_review
    from ...app.triage.triage import evidence_of_report

    state.record_navigation("triage")
    state.case.take_triage(**triage_event_data(reports))
    for report in reports[:1]:
        state.case.add(evidence_of_report(report))
        state.case.add(evidence_of_review(_review(state, _script(report))))
    state.case.mark_probed("job")


def _script(report: JobReport | None) -> Path | None:
    path = (report.verdict.where or "").rpartition(":")[0] if report else ""
    return Path(path) if path else None


def _review(state: WizardState, script: Path | None) -> list[ReviewFinding]:
    """What review finds in a script; nothing where it cannot be read as Python."""
    from ...app.review.review import review_file

    try:
        return review_file(script, state.knowledge) if script else []
    except UserError:
        return []


def _note_fix(state: WizardState, made: Fix, action: str, paths: list[str], backup: str) -> None:
    state.record_event(
        "fix",
        id=made.id,
        cause=made.cause,
        title=made.title,
        action=action,
        paths=paths,
        backup=backup,
        diff=made.diff(),
    )


def _note_proof(state: WizardState, prompt: Prompt, proof: "ProofResult", label: str) -> None:
    state.record_event("proof", passed=proof.passed, what=proof.what, detail=proof.detail)
    state.proved = state.proved or proof.passed
    word = f"{prompt.status_sign('ok')} proved" if proof.passed else f"{prompt.status_sign('fail')} not proved"
    prompt.write(f"{label}{word}: {proof.what} ({proof.elapsed_s:.1f} s)")
    prompt.write(*(f"{'':<{len(label)}}{line}" for line in proof.detail.splitlines()))


def _titled(made: Fix) -> str:
    return made.title + {"safe": "", "unsafe": "  (read it first)", "display": "  (by hand)"}[made.safety]
