"""The planner of the plain wizard: four questions, then the strategies as a table, with the same answers, formulas,
comparison and files as on the screen."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...app.errors import UserError
from ...app.options import target_python
from ...app.plan import form_fields, job_directory, summary
from ...app.plan.job_files.own_script import plan_job_files
from ...app.plan.job_files.package_versions import read_package_versions
from ...app.plan.job_files.write import write_job_files
from ...app.plan.request import PlanRequest
from ...app.plan.strategies.search import planning_assumptions
from ...app.plan.strategies.table import render_table
from ...app.plan.timing.communication import Links
from ...app.plan.types import PlanRow
from ...app.text.numbers import parse_count
from ..planner.breakdown import strategy_details
from ..planner.compare import side_by_side
from ..planner.write_files import NEXT_STEP
from ..shell.state import WizardState
from .prompt import Prompt, Quit

T = TypeVar("T")
WIDTH = 100
LETTERS = {
    "c": "compare two",
    "g": "other number of GPUs",
    "w": "write files",
    "a": "ask again",
    "h": "home",
    "q": "quit",
}
ASKED = {
    "model": "Model: a name, the path of a config.json, or numbers such as 7b 32 4096 32000",
    "seq_len": "Tokens of a sequence",
    "gpus": "Total number of GPUs",
    "gpu": "GPU",
}


def plan_run(state: WizardState, prompt: Prompt) -> None:
    """Ask for the training run, show which strategies fit and how fast they are, and answer questions on them."""
    machine = form_fields.form_machine(state.snapshot)
    checks: dict[str, Callable[[str], object]] = {
        "model": form_fields.check_model,
        "seq_len": lambda value: form_fields.parse_field_number("seq_len", value),
        "gpus": lambda value: form_fields.parse_field_number("gpus", value),
        "gpu": lambda value: form_fields.check_gpu(value, machine),
    }
    while True:
        values = form_fields.initial_values(machine, Path.cwd()) | state.plan_form
        prompt.write("", "Describe the training run. Enter accepts the value in brackets; h home · q quit.")
        for name, check in checks.items():
            usual = values[name] or _default(values, machine, name)
            answer = _asked(prompt, ASKED[name], usual, check)
            values[name] = answer if values[name] or answer != usual else ""
        if not machine.gpus or values["gpus"] != str(machine.gpus * machine.nodes):
            values["nodes"] = ""
        state.plan_form = values
        try:
            request = form_fields.request_from_form(values, machine)
        except UserError as error:
            _refuse(prompt, error)
            continue
        if _answered(state, prompt, request):
            return


def _default(values: dict[str, str], machine: form_fields.FormMachine, name: str) -> str:
    """Return the value of an empty field, or "" if the other fields give no plan."""
    try:
        return form_fields.placeholders(form_fields.request_from_form(values, machine))[name]
    except UserError:
        return ""


def _answered(state: WizardState, prompt: Prompt, request: PlanRequest) -> bool:
    """Show the plan and answer questions on it; return whether the user is done with planning."""
    train = request.setting.train
    per_gpu = f"{train.micro_batch} sequence{'s' * (train.micro_batch != 1)} per GPU"
    prompt.write("", f"In {train.dtype} with {train.optimizer}, {per_gpu}; `ddpwizard plan --help` lists all options.")
    found = summary.add_scaling(summary.make_summary(request))
    found = found._replace(rows=summary.explain_rows(found))
    assumed = [*request.assumed, *planning_assumptions(found.rows, request.links, request.host_bytes)]
    prompt.write("", *render_table(request.setting, [row.candidate for row in found.rows], assumed))
    _say_three(prompt, found)
    names = [summary.strategy_label(row) for row in found.rows]
    prompt.write("", *(f"  {number:>2}  {name}" for number, name in enumerate(names, 1)))
    while True:
        given = _choice(prompt, len(names))
        if given == "q":
            raise Quit
        if given in ("a", "h"):
            return given == "h"
        if given.isdecimal():
            row = found.rows[int(given) - 1]
            prompt.write("", names[int(given) - 1], *strategy_details(row, WIDTH, prompt.ascii_only).plain.split("\n"))
        elif given == "c":
            pair = [_row(prompt, found.rows, which) for which in ("First", "Second")]
            prompt.write("", *side_by_side(*pair, WIDTH, prompt.ascii_only).plain.split("\n"))
        elif given == "g":
            more = _asked(
                prompt,
                "How many more",
                str(request.more_gpus),
                lambda value: form_fields.parse_field_number("more_gpus", value),
            )
            scaled = request._replace(more_gpus=form_fields.parse_field_number("more_gpus", more))
            found = summary.add_scaling(found._replace(request=scaled, more=None))
            _say_three(prompt, found)
        else:
            _write(state, prompt, _row(prompt, found.rows, "Of which"), found.request.links)


def _choice(prompt: Prompt, count: int) -> str:
    """Return the number of a row, or one of the letters."""
    prompt.write("", "   " + " · ".join(f"{letter} {what}" for letter, what in LETTERS.items()))
    while True:
        given = prompt.ask("A number shows the formulas of that strategy; or a letter: ").strip().lower()
        if given in LETTERS or 1 <= (parse_count(given) or 0) <= count:
            return given
        prompt.write(f"  Please give a number from 1 to {count} or one of {', '.join(LETTERS)}.")


def _say_three(prompt: Prompt, found: summary.PlanSummary) -> None:
    uncounted = summary.missing_memory(found.request.setting.model)
    prompt.write("", *(str(line) for line in summary.summary_lines(found)), *([uncounted] if uncounted else []))


def _row(prompt: Prompt, rows: list[PlanRow], which: str) -> PlanRow:
    def numbered(value: str) -> int:
        number = parse_count(value) or 0
        if not 0 < number <= len(rows):
            raise UserError(f"{value}: no such row", f"a number from 1 to {len(rows)}")
        return number

    return rows[int(_asked(prompt, f"{which} (number)", "1", numbered)) - 1]


def _write(state: WizardState, prompt: Prompt, row: PlanRow, links: Links | None) -> None:
    """Show the files of a strategy, and write them after a confirmation."""
    if problem := job_directory.out_of_memory_error(row):
        _refuse(prompt, problem)
        return
    script = _asked(prompt, "Script", job_directory.script_of_running_job(state.reports or [], Path.cwd()), str)
    where = Path(_asked(prompt, "Into", job_directory.free_directory(Path.cwd()), str))
    try:
        versions = read_package_versions(target_python(state.options))
        made, notes = plan_job_files(row.setting, where, script, None, versions, links)
        prompt.write("", *(f"  {name:<16} {len(content.splitlines()):>4} lines" for name, content in made.items()))
        if prompt.confirm(f"Write these into {where}?"):
            job_directory.ensure_new_files(where, list(made), NEXT_STEP)
            write_job_files(where, made, NEXT_STEP)
            prompt.write(f"Wrote {len(made)} files into {where}.", *notes)
    except UserError as error:
        _refuse(prompt, error)


def _refuse(prompt: Prompt, error: UserError) -> None:
    prompt.write(f"  {error.message} → {error.next_step}" if error.next_step else f"  {error.message}")


def _asked(prompt: Prompt, question: str, usual: str, check: Callable[[str], T]) -> str:
    """Ask until the answer passes the check, and return it; ``h`` and ``q`` leave, as everywhere."""
    while True:
        given = prompt.ask(f"{question} [{usual}]: ").strip() or usual
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        try:
            check(given)
        except UserError as error:
            _refuse(prompt, error)
        else:
            return given
