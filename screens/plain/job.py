"""Jobs in the plain wizard: the ranks, and the demo without a question."""

import asyncio
from typing import TYPE_CHECKING

from ...app.diagnosis.dialogue import best_cause_text
from ...app.diagnosis.job_evidence import add_review, add_triage, review_job_script
from ...app.exit_codes import ExitCode
from ...app.text.terminal import indented
from ...app.triage import phrases
from ...app.triage.types import JobReport
from ..shell.state import WizardState
from .fix import Changes, fix_lines, show_proof
from .prompt import Prompt
from .ranks import choose_job, show_job

if TYPE_CHECKING:
    pass

DEMO_LIMIT_S = 60.0


def show_triage(state: WizardState, prompt: Prompt) -> None:
    """Show the jobs of this machine, and take the verdict on the one that the case is about into it."""
    from ...app.diagnosis.reviewed_job import explain_by_review

    state.reports = [explain_by_review(each, state.knowledge) for each in state.reports or []]
    reports = state.reports
    for report in reports:
        show_job(prompt, report)
    if reports:
        chosen = choose_job(state, prompt, reports)
        record_triage(state, [chosen, *(each for each in reports if each is not chosen)])


def record_triage(state: WizardState, reports: list[JobReport]) -> None:
    """Take a triage, and the review of the script of its first job, into the case."""
    state.record_navigation("triage")
    add_triage(state.case, reports)
    for report in reports[:1]:
        add_review(state.case, review_job_script(report, state.knowledge))


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
        prompt.write(f"  cause     {best_cause_text(best)}")
        state.record_diagnosis(diagnosis, [best])
        flow = state.fix_flow(best.id, report)
        fix = next((each for each in flow.build() if each.patches), None)
        if fix is None:
            prompt.write(f"4 patch     {prompt.status_sign('fail')} none could be built")
            return ExitCode.FOUND
        prompt.write("", f"4 patch     {fix.title}", "", *map(indented, fix_lines(fix)[1:]))
        prompt.show_patch(fix.diff())
        prompt.write()
        prompt.write("5 apply     to a private copy; your files do not change")
        prompt.write("6 relaunch  the same command line with the fix, on a free port")
        flow.record(fix, "applied to a copy")
        plan = await flow.plan_proof(fix)
        proof = await flow.prove(
            fix, state.context(), state.granted, plan=plan, limit_s=DEMO_LIMIT_S, progress=Changes(prompt.show_progress)
        )
    show_proof(prompt, proof, "7 proof     ")
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
