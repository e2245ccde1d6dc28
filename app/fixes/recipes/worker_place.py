"""``worker-place``: the line of the data set at which a loader's worker waits."""

from ...text.units import rank_ranges
from ..facts import CaseFacts
from ..job_facts import stuck_workers
from .limited_request import limited_request
from .types import RecipeResult


def worker_place(facts: CaseFacts) -> RecipeResult:
    """Return the innermost line of the user's code in each worker that does not come back."""
    report = facts.context.report
    workers = list(stuck_workers(report))
    found = [
        facts.place(f"{each.frame.path}:{each.frame.line}", f"worker {each.pid} of rank {each.rank}")
        for each in workers
    ]  # fmt: skip
    places = [place for place in found if place]
    if not places or report is None:
        return RecipeResult()
    text = (
        f"A worker of rank {rank_ranges(report.verdict.culprits)} does not come back from {places[0].shown} "
        f"`{places[0].text}`: give the call there a time-out, or leave out the sample that it reads."
    )
    lines = {place.path: place.line for place in reversed(places)}
    files = [(file, line) for path, line in lines.items() if (file := facts.file_as_started(path))]
    patches = [patch for file, line in files if (patch := limited_request(file, line))]
    return RecipeResult(text=text, patches=patches, places=places)
