"""The question before a guess: where only words support a cause, ``diagnose`` asks what distinguishes most."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

import click
import msgspec

from ...knowledge.schema import Question
from ..diagnosis.case import SKIPPED, Case
from ..diagnosis.dialogue import best_cause_text, question_before_guess
from ..evidence import AnswerOption, Diagnosis, NextStep
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
        case.answer(question, _ask(case.knowledge.questions[question], case.answers_to_offer(question)))
        diagnosis = diagnose()
    return diagnosis


def _ask(question: Question, offered: Mapping[str, str]) -> str:
    """Return the answer that the person chooses by its number, or ``skipped``."""
    print_line(f"{question.ask}   ({question.why})")
    answers = list(offered)
    for number, text in enumerate(offered.values(), 1):
        print_line(f"  {number}  {text}")
    given = click.prompt("number, Enter to skip", default="", show_default=False).strip()
    return answers[int(given) - 1] if given.isdigit() and 0 < int(given) <= len(answers) else SKIPPED


def print_question(case: Case, diagnosis: Diagnosis, command_line: Sequence[str]) -> bool:
    """Print the question whose answer shows more than the words, with its answers; return whether there is one."""
    question = question_before_guess(case, diagnosis)
    if not question:
        return False
    step = next(step for step in diagnosis.next if step.id == question)
    cause = diagnosis.cause_to_fix
    known = best_cause_text(cause) if cause else "No cause is likely enough to show its fix"
    print_line(f"{known}. An answer would narrow it down: {step.text}")
    print_answers(step, command_line)
    print_line("")
    return True


def print_answers(step: NextStep, command_line: Sequence[str]) -> None:
    """Print how a question is answered: the command line with one answer, and all answers."""
    print_line(Verbatim(f"  {_answering(command_line, step, step.answers[0])}"))
    if LOG in command_line:
        print_line(f"  {LOG_OF_STDIN}")
    print_line("  with one of these answers:")
    for answer in step.answers:
        print_line(f"    {step.id}={answer.id}   {answer.text}")


def with_commands(diagnosis: Diagnosis, command_line: Sequence[str]) -> Diagnosis:
    """Return the diagnosis with the command lines that run its next probes and answer its next questions."""
    steps = [
        msgspec.structs.replace(step, command=shlex.join([*command_line, "--probe"]))
        if step.kind == "probe"
        else msgspec.structs.replace(
            step,
            answers=[
                msgspec.structs.replace(answer, command=_answering(command_line, step, answer))
                for answer in step.answers
            ],
        )
        for step in diagnosis.next
    ]
    return msgspec.structs.replace(diagnosis, next=steps)


def _answering(command_line: Sequence[str], step: NextStep, answer: AnswerOption) -> str:
    return shlex.join([*command_line, "--answer", f"{step.id}={answer.id}"])


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
