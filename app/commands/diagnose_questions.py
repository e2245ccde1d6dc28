"""The question before a guess: where only words support a cause, ``diagnose`` asks what distinguishes most."""

import shlex
import sys
from collections.abc import Callable, Sequence

import click

from ...knowledge.schema import Question
from ..diagnosis.case import SKIPPED, Case
from ..diagnosis.dialogue import best_cause_text, question_before_guess
from ..evidence import Diagnosis
from ..text.terminal import Verbatim, print_line
from ..text.units import probability_text

MOST_ASKED = 3
STDIN, LOG = "-", "LOG"  # LOG: a file, in a line to type, as standard input is read only once
LOG_OF_STDIN = "LOG is a file with the output: it is not read from standard input again."


def ask_before_guess(case: Case, diagnose: Callable[[], Diagnosis]) -> Diagnosis:
    """Ask up to three questions on the terminal and return the diagnosis with their answers. Enter skips one."""
    diagnosis = diagnose()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return diagnosis
    for _ in range(MOST_ASKED):
        question = question_before_guess(case, diagnosis)
        if not question:
            break
        case.answer(question, _ask(case.knowledge.questions[question]))
        diagnosis = diagnose()
    return diagnosis


def _ask(question: Question) -> str:
    """Return the answer that the person chooses by its number, or ``skipped``."""
    print_line(f"{question.ask}   ({question.why})")
    answers = list(question.answers)
    for number, answer in enumerate(answers, 1):
        print_line(f"  {number}  {question.answers[answer]}")
    given = click.prompt("number, Enter to skip", default="", show_default=False).strip()
    return answers[int(given) - 1] if given.isdigit() and 0 < int(given) <= len(answers) else SKIPPED


def print_question(case: Case, diagnosis: Diagnosis, command_line: Sequence[str]) -> bool:
    """Print the question whose answer shows more than the words, with its answers; return whether there is one."""
    question = question_before_guess(case, diagnosis)
    if not question:
        return False
    spec = case.knowledge.questions[question]
    cause = diagnosis.cause_to_fix
    known = best_cause_text(cause) if cause else "No cause is likely enough to show its fix"
    print_line(f"{known}. An answer would narrow it down: {spec.ask}")
    print_line(Verbatim(f"  {shlex.join([*command_line, '--answer', f'{question}={next(iter(spec.answers))}'])}"))
    if LOG in command_line:
        print_line(f"  {LOG_OF_STDIN}")
    print_line("  with one of these answers:")
    for answer, text in spec.answers.items():
        print_line(f"    {question}={answer}   {text}")
    print_line("")
    return True


def line_to_repeat(words: Sequence[str]) -> list[str]:
    """Return the words of a command line as it can be run again: with a file in place of standard input."""
    return [LOG if word == STDIN else word for word in words]


def print_what_to_give(diagnosis: Diagnosis, command_line: Sequence[str], *, has_script: bool) -> None:
    """Print what else shows the cause, where none is likely enough to show its fix."""
    print_line("")
    for cause in diagnosis.named(1):
        print_line(f"No fix is shown: {cause.id} has a share of {probability_text(cause.confidence)}.")
        print_line(f"  its fixes: ddpwizard explain {cause.id}")
    print_line("What shows more:")
    print_line("  the whole log, of all ranks: ddpwizard diagnose LOG")
    if not has_script:
        print_line(Verbatim(f"  the script: {shlex.join([*command_line, '--script'])} SCRIPT"))
    print_line("  a job that still runs: ddpwizard triage")
    print_line("  the next run of the job: ddpwizard run -- COMMAND")
    script = "" if has_script else "SCRIPT the training script, "
    print_line(f"  LOG is a file with the output, {script}COMMAND the line that starts the job.")
