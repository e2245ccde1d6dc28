"""The planner of the plain wizard: five questions that end in files and in the command that starts them, with the same
answers, formulas, comparison and files as on the screen."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...app.errors import UserError
from ...app.options import target_python
from ...app.plan import form_fields, interview, plan_answer, summary
from ...app.plan.job_files import write
from ...app.plan.job_files.manifest import read_package_versions
from ...app.plan.job_files.own_script import plan_job_files
from ...app.plan.model_source import SCRIPT
from ...app.plan.request import PlanRequest
from ...app.plan.strategies.table import render_table
from ...app.plan.timing.communication import Links
from ...app.plan.types import PlanRow
from ...app.text.numbers import parse_count
from ..planner.breakdown import strategy_details
from ..planner.compare import side_by_side
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


def plan_run(state: WizardState, prompt: Prompt) -> None:
    """Ask for the training run, show which strategies fit and how fast they are, and answer questions on them."""
    machine = form_fields.form_machine(state.snapshot)
    while True:
        values = form_fields.initial_values(machine, Path.cwd()) | state.plan_form
        prompt.write("", "Five questions. Enter accepts the value in brackets; h home · q quit.")
        usual = values["model"] or _default(values, machine, "model")
        values["model"] = _asked(prompt, interview.QUESTIONS["model"], usual, form_fields.check_model)
        fields = partial(interview.parse_gpus, values=values, machine=machine)
        values |= _asked(prompt, interview.QUESTIONS["gpus"], interview.gpus_text(values), fields)
        for name, usual_at in (("trained", 0), ("length", interview.USUAL_LENGTH)):
            answers = interview.answers(name, values, machine)
            values |= _chosen(prompt, interview.QUESTIONS[name], answers, usual_at)
        state.plan_form = values
        try:
            request = form_fields.request_from_form(values, machine)
        except UserError as error:
            _refuse(prompt, error)
            continue
        if _answered(state, prompt, request):
            return


def _chosen(prompt: Prompt, question: str, answers: list[interview.Choice], usual: int) -> dict[str, str]:
    """Ask for one of several answers, or for a number of tokens, and return the fields that it sets."""
    prompt.write("", question, *(f"  {number:>2}  {answer}" for number, answer in enumerate(answers, 1)))
    sets_length = "seq_len" in answers[0].fields

    def fields(value: str) -> dict[str, str]:
        if sets_length and not 1 <= (parse_count(value) or 0) <= len(answers):
            return {"seq_len": str(form_fields.parse_field_number("seq_len", value))}
        return dict(answers[_place(value, len(answers))].fields)

    hint = "Number, or tokens" if sets_length else "Number"
    return _asked(prompt, hint, str(usual + 1), fields)


def _place(value: str, count: int, what: str = "answer") -> int:
    """Return the place in a list that a number from 1 names."""
    number = parse_count(value) or 0
    if not 1 <= number <= count:
        raise UserError(f"{value}: no such {what}", f"a number from 1 to {count}")
    return number - 1


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
    found = plan_answer.add_scaling(plan_answer.make_answer(request))
    found = found._replace(rows=plan_answer.explain_rows(found))
    assumed = plan_answer.assumptions(found)
    prompt.write("", *render_table(request.setting, [row.candidate for row in found.rows], assumed, has_reasons=False))
    _show_summary(prompt, found)
    _choose_strategy(state, prompt, found.rows, found.request.links)
    names = [row.candidate.full_name for row in found.rows]
    prompt.write("", *(f"  {number:>2}  {name}" for number, name in enumerate(names, 1)))
    while True:
        given = _choice(prompt, len(names))
        if given == "q":
            raise Quit
        if given in ("a", "h"):
            return given == "h"
        if given.isdecimal():
            row = found.rows[int(given) - 1]
            best = found.rows[0] if row is not found.rows[0] else None
            details = strategy_details(row, WIDTH, prompt.ascii_only, best=best)
            prompt.write("", names[int(given) - 1], *details.plain.split("\n"))
        elif given == "c":
            pair = [_row(prompt, found.rows, which) for which in ("First", "Second")]
            prompt.write("", *side_by_side(*pair, WIDTH, prompt.ascii_only).plain.split("\n"))
        elif given == "g":
            parse = partial(form_fields.parse_field_number, "more_gpus")
            more = _asked(prompt, "How many more", str(request.more_gpus), parse)
            scaled = request._replace(more_gpus=more)
            found = plan_answer.add_scaling(found._replace(request=scaled, more=None))
            _show_summary(prompt, found)
        else:
            _write(state, prompt, _row(prompt, found.rows, "Of which"), found.request.links)


def _choose_strategy(state: WizardState, prompt: Prompt, rows: list[PlanRow], links: Links) -> None:
    """Ask for one of the strategies worth choosing, and write its files."""
    answers = interview.strategy_answers(rows)
    prompt.write(
        "", interview.QUESTIONS["strategy"], *(f"  {number:>2}  {text}" for number, (_, text) in enumerate(answers, 1))
    )
    row = rows[answers[_asked(prompt, "Number", "1", partial(_place, count=len(answers)))][0]]
    _write_into(state, prompt, row, SCRIPT, Path(write.free_directory(Path.cwd())), links)


def _choice(prompt: Prompt, count: int) -> str:
    """Return the number of a row, or one of the letters."""
    prompt.write("", "   " + " · ".join(f"{letter} {what}" for letter, what in LETTERS.items()))
    while True:
        given = prompt.ask("A number shows the formulas of that strategy; or a letter: ").strip().lower()
        if given in LETTERS or 1 <= (parse_count(given) or 0) <= count:
            return given
        prompt.write(f"  Please give a number from 1 to {count} or one of {', '.join(LETTERS)}.")


def _show_summary(prompt: Prompt, found: plan_answer.PlanAnswer) -> None:
    uncounted = summary.missing_memory(found.request.setting.model)
    prompt.write("", *(str(line) for line in summary.summary_lines(found)), *([uncounted] if uncounted else []))


def _row(prompt: Prompt, rows: list[PlanRow], which: str) -> PlanRow:
    place = partial(_place, count=len(rows), what="row")
    return rows[_asked(prompt, f"{which} (number)", "1", place)]


def _write(state: WizardState, prompt: Prompt, row: PlanRow, links: Links) -> None:
    """Show the files of a strategy, and write them after a confirmation."""
    try:
        write.check_writable(row)
    except UserError as problem:
        _refuse(prompt, problem)
        return
    script = _asked(prompt, "Script", SCRIPT, str)
    directory = _asked(prompt, "Into", write.free_directory(Path.cwd()), Path)
    _write_into(state, prompt, row, script, directory, links)


def _write_into(state: WizardState, prompt: Prompt, row: PlanRow, script: str, where: Path, links: Links) -> None:
    """Write the files of a strategy after a confirmation, and show the commands that start them and plan them again."""
    try:
        write.check_writable(row)
        versions = read_package_versions(target_python(state.options))
        made, notes = plan_job_files(row.setting, where, script, None, versions, links)
        prompt.write("", *(f"  {name:<16} {len(content.splitlines()):>4} lines" for name, content in made.items()))
        if prompt.confirm(f"Write these into {where}?"):
            write.write_job_files(where, made)
            prompt.write(
                f"Wrote {len(made)} files into {where}.",
                *notes,
                f"  Start: {write.start_command(row, str(where))}",
                f"  The same plan again: {interview.plan_command(state.plan_form, row, str(where))}",
            )
    except UserError as error:
        _refuse(prompt, error)


def _refuse(prompt: Prompt, error: UserError) -> None:
    prompt.write(f"  {error.message} → {error.next_step}" if error.next_step else f"  {error.message}")


def _asked(prompt: Prompt, question: str, usual: str, parse: Callable[[str], T]) -> T:
    """Ask until the answer can be parsed, and return its value; ``h`` and ``q`` leave, as everywhere."""
    while True:
        given = prompt.ask(f"{question} [{usual}]: ").strip() or usual
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        try:
            return parse(given)
        except UserError as error:
            _refuse(prompt, error)
