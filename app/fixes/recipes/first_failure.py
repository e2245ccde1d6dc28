"""``first-failure``: the first error of the first failing rank, and where it was raised."""

from ...text.units import rank_ranges
from ...triage.phrases import DEATH_TEXT
from ..facts import CaseFacts
from ..log_facts import is_late
from .types import RecipeResult

LATE_ERROR = "Kernels fail after the line that starts them, so an earlier line may be the cause"


def first_failure(facts: CaseFacts) -> RecipeResult:
    """Return the error to fix, with its line; of a running job, the rank that the others wait for."""
    track, event = facts.first_error
    if event:
        who = f"Rank {track.rank}" if track and track.rank is not None else "The job"
        place = facts.error_place
        at = f" at {place.shown}" if place else ""
        error = event.text.partition("   at ")[0].rstrip(".")
        advice = LATE_ERROR if is_late(error) else "Fix this line"
        text = f"{who} failed first{at}: {error}. {advice}; the errors of the other ranks are consequences."
        if "log.all-ranks-failed-alike" in facts.holds:
            text = f"All ranks failed{at}: {error}. {advice}."
        return RecipeResult(text=text, places=[place] if place else [])
    report = facts.context.report
    if report is None:
        return RecipeResult()
    death = next((each for each in report.observed.deaths), None)
    if death:
        who = f"Rank {death.rank}" if death.rank is not None else f"Process {death.pid}"
        text = f"{who} was {DEATH_TEXT[death.how]}: {death.what.rstrip('.')} ({death.where}). Fix that first."
        return RecipeResult(text=text, places=facts.places(report.verdict.cause or ""))
    if report.verdict.culprits:
        text = f"The others wait for rank {rank_ranges(report.verdict.culprits)}: {report.verdict.why}"
        return RecipeResult(text=text, places=facts.places(report.verdict.cause or ""))
    return RecipeResult()
