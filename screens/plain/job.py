"""The plain wizard's work on a job: the ranks, the fixes with their proof, and the demo without a question."""

import asyncio
from typing import TYPE_CHECKING

from ...app.diagnosis.job_evidence import add_review, add_triage, review_job_script
from ...app.errors import UserError
from ...app.exit_codes import ExitCode
from ...app.fixes.types import Fix, safety_text
from ...app.text.units import percent_text
from ...app.triage import phrases
from ...app.triage.types import JobReport
from ..shell.state import WizardState
from .prompt import Prompt, Quit
from .ranks import show_job

if TYPE_CHECKING:
    from ...app.fixes.flow import FixFlow
    from ...app.fixes.proof import ProofResult

DEMO_LIMIT_S = 60.0
SAFETY_NOTE = {"safe": "", "unsafe": "  (read it first)", "display": "  (by hand)"}


def show_triage(state: WizardState, prompt: Prompt) -> None:
    """Show the jobs of this machine, and take the verdict into the case."""
    reports = state.reports or []
    for report in reports:
        show_job(prompt, report)
    record_triage(state, reports)


def record_triage(state: WizardState, reports: list[JobReport]) -> None:
    """Take a triage, and the review of the script of its first job, into the case."""
    state.record_navigation("triage")
    add_triage(state.case, reports)
    for report in reports[:1]:
        add_review(state.case, review_job_script(report, state.knowledge))


def offer_fixes(state: WizardState, prompt: Prompt, cause_id: str) -> None:
    """Show the fixes of a cause until the user goes back; apply and prove on request."""
    state.record_navigation("fix", cause_id)
    flow = state.fix_flow(cause_id)
    fixes = flow.build()
    while True:
        prompt.write("", f"Fixes: {flow.cause.title}")
        titles = [fix.title + SAFETY_NOTE[fix.safety] for fix in fixes]
        given = prompt.choose(titles, {"b": "back", "h": "home", "q": "quit"}, "Which one? ")
        if given == "b":
            return
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        _offer_fix(state, prompt, flow, fixes[int(given) - 1])


def _offer_fix(state: WizardState, prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    prompt.write("", *fix_lines(fix))
    prompt.show_patch(fix.diff())
    prompt.write()
    paths = flow.target_paths(fix)
    options: dict[str, str] = {}
    if paths:
        options["apply"] = f"write it to {', '.join(paths)}"
    if proof := flow.proof_text(fix):
        options["prove"] = f"prove it: {proof}"
    given = prompt.choose(list(options.values()), {"b": "back", "h": "home", "q": "quit"}, "What next? ")
    if given in ("h", "q"):
        raise Quit(home=given == "h")
    if given == "b":
        return
    if list(options)[int(given) - 1] == "prove":
        _prove(state, prompt, flow, fix)
    elif prompt.confirm(f"Write {', '.join(paths)}? It can be undone."):
        _apply(prompt, flow, fix)


def _apply(prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    try:
        applied = flow.apply(fix)
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")
        return
    prompt.write(f"  {prompt.status_sign('ok')} written: {', '.join(applied.paths)}")
    prompt.write(f"  undo with: ddpwizard undo {applied.id}")


def _prove(state: WizardState, prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    progress = prompt.show_progress
    try:
        proof = asyncio.run(flow.prove(fix, state.context(progress), state.granted, progress=progress))
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('unknown')} {error}")
        return
    _show_proof(prompt, proof, "  ")


def _show_proof(prompt: Prompt, proof: "ProofResult", label: str) -> None:
    prompt.write(f"{label}{prompt.status_sign('ok' if proof.passed else 'fail')} {proof.summary}")
    prompt.write(*(f"{'':<{len(label)}}{line}" for line in proof.detail.splitlines()))


def fix_lines(fix: Fix) -> list[str]:
    """Return a fix without its patches as lines: title, safety, text, commands, new files."""
    lines = [fix.title, f"  {safety_text(fix)[1]}", *fix.text.strip().splitlines()]
    lines += [f"  $ {command}" for command in fix.commands]
    for name, content in fix.files.items():
        lines += ["", f"new file {name}", *(f"  {line}" for line in content.splitlines())]
    return lines


def run_demo(state: WizardState, prompt: Prompt) -> int:
    """Start a real job that hangs, find the cause, fix a copy and prove it, without a question.

    Return 0 if the fix was proved, else 1.
    """
    return asyncio.run(_demo(state, prompt))


async def _demo(state: WizardState, prompt: Prompt) -> int:
    from ...app.options import target_python
    from ...app.watchdog.demo_job import DemoJob

    prompt.write("1 start     a real four-process gloo training job on this machine, which will hang")
    state.begin().answer("symptom", "hangs")
    async with DemoJob(target_python(state.options)) as job:
        prompt.write(f"            {job.script}, launcher pid {job.pid}")
        report = await _until_hung(state, prompt, job.pid)
        verdict = report.verdict
        state.reports = [report]
        prompt.write(f"2 hang      {report.world_size} ranks: {verdict.state}, sampled {_samples(report)} times")
        if verdict.state != "hung" or not verdict.where:
            failed = prompt.status_sign("fail")
            prompt.write(f"            {failed} the demo needs a job that hangs; this one: {verdict.why}")
            return ExitCode.FOUND
        culprits = phrases.ranks_phrase(verdict.culprits)
        prompt.write(f"3 verdict   {culprits} at {verdict.where}, sent there by {verdict.branch}")
        show_job(prompt, report)
        record_triage(state, [report])
        diagnosis = state.diagnosis()
        best = diagnosis.causes[0]
        prompt.write(f"  cause     {best.title} ({percent_text(best.confidence)})")
        state.record_diagnosis(diagnosis, [best])
        flow = state.fix_flow(best.id, report)
        fix = next((each for each in flow.build() if each.patches), None)
        if fix is None:
            prompt.write(f"4 patch     {prompt.status_sign('fail')} none could be built")
            return ExitCode.FOUND
        prompt.write("", f"4 patch     {fix.title}", "", *(f"  {line}".rstrip() for line in fix_lines(fix)[1:]))
        prompt.show_patch(fix.diff())
        prompt.write()
        prompt.write("5 apply     to a copy of the job's files; the originals stay as they are")
        prompt.write("6 relaunch  the same command line on the copy, on a free port")
        flow.record(fix, "applied to a copy")
        proof = await flow.prove(
            fix, state.context(), state.granted, limit_s=DEMO_LIMIT_S, progress=prompt.show_progress
        )
    _show_proof(prompt, proof, "7 proof     ")
    state.close()
    session = state.case.session
    assert session is not None
    prompt.write("", f"To save this as a page: ddpwizard sessions export {session.id}")
    return ExitCode.OK if proof.passed else ExitCode.FOUND


def _samples(report: JobReport) -> int:
    return max(len(seen.samples) for seen in report.observed.seen)


async def _until_hung(state: WizardState, prompt: Prompt, pid: int) -> JobReport:
    """Triage the job until it hangs or has ended, or the limit is over; return the last report."""
    from ...app.triage.triage import triage_jobs

    loop = asyncio.get_running_loop()
    until = loop.time() + DEMO_LIMIT_S
    while True:
        report = (await triage_jobs(pid=pid, allow=state.options.allow or "reads"))[0]
        if report.verdict.state in ("hung", "dead") or loop.time() > until:
            return report
        prompt.show_progress(f"the job is {report.verdict.state}")
