"""The machine in the plain wizard: its summary, its jobs, and all its checks."""

import asyncio

from ...app.errors import UserError
from ...app.probes import summary
from ...app.triage.job_text import job_line
from ...app.triage.phrases import JOB_STATE_TEXT
from ...app.triage.types import JobReport
from ..shell.state import WizardState
from .prompt import Prompt


def inspect_machine(state: WizardState, prompt: Prompt) -> None:
    """Run the probes that only read, and sample the jobs."""
    prompt.show_progress("inspecting this machine")

    async def inspect() -> None:
        found, reports = await asyncio.gather(
            state.run_probes(state.may_probe("reads"), state.context(), "reads"), _sample_jobs(state, prompt)
        )
        state.merge_snapshot(found)
        state.reports = reports

    asyncio.run(inspect())


async def _sample_jobs(state: WizardState, prompt: Prompt) -> list[JobReport]:
    try:
        return await state.triage(None)
    except UserError as error:
        prompt.show_progress(f"jobs: {error}")
        return []


def show_machine(state: WizardState, prompt: Prompt) -> None:
    """Show the machine at a glance, with its jobs."""
    snapshot = state.snapshot
    assert snapshot is not None
    prompt.write("", f"This machine: {snapshot.host}")
    for fact in summary.machine_summary(snapshot, state.checks):
        problem = f"   {prompt.status_sign(fact.status)} {fact.problem}" if fact.status else ""
        prompt.write(f"  {fact.name:<8} {fact.text}{problem}")
    if not state.reports:
        prompt.write("  job      none of yours runs here", *(f"           {line}" for line in state.other_jobs))
    for report in state.reports or []:
        status, text = JOB_STATE_TEXT[report.verdict.state]
        prompt.write(f"  job      {job_line(report)}   {prompt.status_sign(status)} {text}")


def show_checks(state: WizardState, prompt: Prompt) -> None:
    """Show all checks, the most severe first."""
    good = [check for check in state.checks if check.status not in summary.STATUS_SEVERITY]
    prompt.write("")
    for status in summary.STATUS_SEVERITY:
        for check in (check for check in state.checks if check.status == status):
            where = f" [{check.where}]" if check.where else ""
            prompt.write(f"  {prompt.status_sign(status)} {check.title}{where}")
            prompt.write(*(f"      {text}" for text in (check.detail, check.fix and f"→ {check.fix}") if text))
    sign = prompt.status_sign("ok")
    prompt.write(f"  {sign} {summary.counts_text(good)}", *(f"      {check.title}" for check in good))
