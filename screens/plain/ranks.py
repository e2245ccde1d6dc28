"""The ranks of a job in the plain wizard: the verdict, the table of places, and all that is known of one rank."""

from collections.abc import Sequence

from ...app.text.numbers import parse_count
from ...app.text.terminal import Verbatim, align_columns, indented
from ...app.text.units import sure_text
from ...app.triage import phrases, rank_details, rank_groups
from ...app.triage.other_hosts import other_hosts_lines
from ...app.triage.phrases import ENDED_STATE, JOB_STATE_TEXT
from ...app.triage.time_shares import extend_history, share_lines
from ...app.triage.types import JobReport
from ..shell.state import WizardState
from .prompt import Prompt, Quit

SHOWN_PLACES = 40  # of a job; the rest are counted


def show_job(prompt: Prompt, report: JobReport) -> None:
    """Show the verdict, the ranks and the source."""
    verdict = report.verdict
    prompt.write("", f"{rank_groups.job_title(report)}: {verdict.state}")
    sure = "" if verdict.cause else f" ({sure_text(verdict.confidence)})"  # the ranking has that of a cause
    prompt.write(f"  {verdict.why}{sure}", "")
    prompt.write(*(f"  {prompt.status_sign('warn')} {line}" for line in dict.fromkeys(report.observed.problems)))
    groups = rank_groups.rank_groups(report)
    prompt.write(*(f"  {line}".rstrip() for line in rank_table(groups[:SHOWN_PLACES])))
    prompt.write(*(f"  {note}" for note in rank_groups.long_notes(groups[:SHOWN_PLACES])))
    if len(groups) > SHOWN_PLACES:
        prompt.write(f"  … {len(groups) - SHOWN_PLACES} more places")
    if verdict.state == "progressing" and (shares := share_lines(extend_history({}, report))):
        prompt.write("", *(f"  {line}" for line in shares))
    prompt.write("", *map(indented, source_lines(report)), "")
    if further := other_hosts_lines(report):
        prompt.write(*(f"  {line}" for line in further), "")


def rank_table(groups: Sequence[rank_groups.RankGroup]) -> list[str]:
    """Render the groups as a table; a column that is empty for all is left out."""
    header, rows = rank_groups.rank_table(groups, resources=True)
    return align_columns([header, *rows])


def show_rank(state: WizardState, prompt: Prompt) -> None:
    """Ask for a rank, by its place or its number, and show everything known of it."""
    report = choose_job(state, prompt, state.reports or [])
    groups = rank_groups.rank_groups(report)[:SHOWN_PLACES]
    letters = {"n": "a rank by its number", "b": "back", "h": "home", "q": "quit"}
    _, *rows = rank_table(groups)
    given = prompt.choose(rows, letters, "Which one? ")
    if given in ("h", "q"):
        raise Quit(home=given == "h")
    if given == "b":
        return
    members = groups[int(given) - 1].members if given != "n" else tuple(row.rank for row in report.ranks)
    rank = members[0] if len(members) == 1 else _which_rank(prompt, members)
    prompt.write("", *rank_lines(report, rank))


def choose_job(state: WizardState, prompt: Prompt, reports: Sequence[JobReport]) -> JobReport:
    """Return the only job, or the one that the user chooses."""
    if len(reports) == 1:
        return reports[0]
    return reports[int(prompt.choose(_job_rows(state, reports), {}, "Which job? ")) - 1]


def choose_job_or_none(state: WizardState, prompt: Prompt, reports: Sequence[JobReport]) -> JobReport | None:
    """Return the only job, or the one that the user chooses; None if it is none of them."""
    if len(reports) <= 1:
        return next(iter(reports), None)
    rows = [*_job_rows(state, reports), "None of these jobs"]
    chosen = int(prompt.choose(rows, {}, "Which job is the fix for? "))
    return reports[chosen - 1] if chosen <= len(reports) else None


def _job_rows(state: WizardState, reports: Sequence[JobReport]) -> list[str]:
    """Return the jobs, each with its state."""
    states = [ENDED_STATE if state.has_ended(each) else JOB_STATE_TEXT[each.verdict.state] for each in reports]
    return [f"{rank_groups.job_title(each)}: {text}" for each, (_, text) in zip(reports, states, strict=True)]


def rank_lines(report: JobReport, rank: int) -> list[str]:
    """Return everything known of a rank as lines."""
    row = rank_details.find_row(report, rank)
    if row is None:
        return [f"Nothing is known of rank {rank}."]
    lines = [f"Rank {rank}", *(f"  {name:<12}{value}" for name, value in rank_details.rank_facts(report, row))]
    if around := rank_details.source_around_rank(report, row):
        lines += ["", f"Source: {row.where}", *_code(around)]
    for part in rank_details.detail_sections(report, row):
        lines += ["", part.title, *(f"  {line.text:<28}{line.annotation}".rstrip() for line in part.lines)]
    return lines


def _which_rank(prompt: Prompt, ranks: Sequence[int]) -> int:
    while True:
        rank = parse_count(prompt.ask(f"Which of {rank_groups.ranks_label(ranks, 60)}? "))
        if rank is not None and rank in ranks:
            return rank
        prompt.write(f"  Please give the number of a rank: {phrases.mid_sentence(phrases.ranks_phrase(ranks))}.")


def source_lines(report: JobReport) -> list[str]:
    """Return the lines of the verdict, each with the ranks at it, or [] if the source is not readable."""
    return _code(rank_groups.source_excerpt(report))


def _code(lines: Sequence[rank_groups.CodeLine]) -> list[str]:
    width = max((len(line.text) for line in lines if line.mark), default=0)
    rows: list[str] = []
    for line in lines:
        if line.number is None:
            rows.append(Verbatim(f"    {line.text or '…'}"))
        else:
            mark = f"{line.text:<{width}}   ← {line.mark}" if line.mark else line.text
            rows.append(Verbatim(f"{'>' if line.mark else ' '} {line.number:>4}  {mark}".rstrip()))
    return rows
