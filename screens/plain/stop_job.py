"""Stop a job in the plain wizard, or stop it and start it again, after a question whose default is No."""

from ...app.errors import UserError
from ...app.jobs import control
from ...app.triage.job_text import job_line, job_name, restart_text, stopped_text
from ..shell.state import WizardState
from .prompt import Prompt
from .ranks import choose_job


def can_stop(state: WizardState) -> bool:
    """Return whether a job of the case still runs here."""
    return any(control.is_running(report.job) for report in state.reports or [])


def stop_job(state: WizardState, prompt: Prompt) -> None:
    """Ask what to do with a running job, and do it once it is confirmed."""
    report = choose_job(state, prompt, [each for each in state.reports or [] if control.is_running(each.job)])
    start: control.JobStart | None = None
    rows = ["No, let it run", f"Stop it: {job_line(report)}"]
    try:
        start = control.plan_start(report.job)
        rows.append(restart_text(start).replace("\n", "\n      "))
    except UserError as error:
        prompt.write(f"  It cannot be started again from here: {error.message}.")
    prompt.write("", f"Stop {job_name(report)}?")
    given = prompt.choose(rows, {}, "What next? ")
    if given == "1" or not prompt.confirm("It ends all its ranks. Stop it?", default=False):
        return
    prompt.show_progress("stopping the job")
    try:
        ended = control.stop_job(report.job)
        again = start if given == "3" else None
        prompt.write(f"  {stopped_text(ended, again, control.start_job(again) if again else 0)}")
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")
