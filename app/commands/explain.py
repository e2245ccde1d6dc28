"""``ddpwizard explain ID``: everything known about one cause."""

import click

from ...knowledge.schema import Cause, Clue, Knowledge
from ..errors import UserError
from ..options import Options, knowledge_for
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line
from .common import common_options


@click.command(name="explain")
@click.argument("id_", metavar="ID")
@common_options
def command(id_: str, options: Options) -> int:
    """Everything known about one cause: what happens, how it shows, how to mend it, and where that is from."""
    knowledge = knowledge_for(options)
    cause = knowledge.causes.get(id_)
    if cause is None:
        raise UserError(f"no cause {id_!r}" + _near(id_, knowledge), "ddpwizard kb list shows all")
    if options.json:
        print_json(public_document("cause", knowledge, cause))
    else:
        for line in cause_lines(cause, knowledge):
            print_line(line)
    return 0


def _near(id_: str, knowledge: Knowledge) -> str:
    import difflib

    near = difflib.get_close_matches(id_, knowledge.causes, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def clue_text(clue: Clue) -> str:
    """The terms of a clue as people read them: ``“two nodes”, “hang” or “stuck”``."""
    return ", ".join(" or ".join(f"“{part.strip()}”" for part in term.split("|")) for term in clue.all)


def cause_lines(cause: Cause, knowledge: Knowledge) -> list[str]:
    """An entry as plain lines, headings in capitals; the browser of the TUI shows the same."""
    findings = knowledge.findings()
    lines = [cause.title, f"{cause.family} / {cause.id}", "", cause.summary, ""]
    lines += ["HOW IT SHOWS", *(f"  - {symptom}" for symptom in cause.symptoms), ""]
    lines += ["WHAT HAPPENS", *("  " + line for line in cause.explain.strip().splitlines()), ""]
    lines.append("WHAT MENDS IT")
    for fix in cause.fixes:
        safety = f"  ({fix.safety}: {fix.why_unsafe})" if fix.why_unsafe else ""
        lines.append(f"  - {fix.title}{safety}")
        lines += ["      " + line for line in fix.text.strip().splitlines()]
    lines += ["", "WHAT SPEAKS FOR OR AGAINST IT"]
    lines += [f"  {weight:<9} {findings[id_]}" for id_, weight in cause.findings.items()]
    for question, answers in cause.questions.items():
        spec = knowledge.questions[question]
        lines += [f"  {weight:<9} {spec.ask} {spec.answers[answer]}" for answer, weight in answers.items()]
    lines += [f"  {signature.weight:<9} log line: {signature.pattern}" for signature in cause.signatures]
    lines += [f"  {clue.weight:<9} words: {clue_text(clue)}" for clue in cause.clues]
    if cause.tells_apart:
        lines += ["", "HOW TO TELL IT FROM ITS NEIGHBOURS"]
        lines += [f"  {other}: {text}" for other, text in cause.tells_apart.items()]
    if cause.changed:
        lines += ["", "WHAT OLDER ADVICE SAYS OTHERWISE"]
        lines += [f"  since {change.since}: {change.what}" for change in cause.changed]
    holds = ", ".join(f"{name} {versions}" for name, versions in cause.holds_for.items())
    lines += ["", f"HOLDS FOR  {holds}", "SOURCES"]
    lines += [f"  {source.title} (checked: {source.checked})  {source.url}" for source in cause.sources]
    if cause.see_also:
        lines += ["SEE ALSO  " + ", ".join(cause.see_also)]
    return lines
