"""The two ways of ranks that part: the condition, what one does then, and what the other does."""

from collections.abc import Iterator

from ..training_script.model.divergence import Divergence
from ..training_script.model.keys import LOCAL
from ..training_script.model.sequences import Site
from .types import RelatedPlace


def related_places(found: Divergence) -> list[RelatedPlace]:
    """Return where the ranks part and what each does then, in the order of the program."""
    one, other = ranks_of(found)
    places = list(_places(found, one, other))
    return [RelatedPlace(path=site.path, line=site.line, message=message) for site, message in places]


def ranks_of(found: Divergence) -> tuple[str, str]:
    """Return names for a rank that makes the first call of a divergence, and for one that does not."""
    if found.by & LOCAL or found.rounds:
        return "one rank", "another rank"
    one, other = found.ranks
    return f"rank {one}", f"rank {other}"


def _places(found: Divergence, one: str, other: str) -> Iterator[tuple[Site, str]]:
    kind = found.first.kind
    if found.rounds == "count":
        yield found.decided, f"{one} runs this loop more often than {other}"
    elif found.rounds:
        yield found.decided, f"{other} leaves the loop here, {one} goes on"
    else:
        yield found.decided, f"{one} and {other} part here"
    if found.leaves and found.leaves != found.decided:
        yield found.leaves, f"{other} leaves here, before {kind}"
    for site in found.calls:
        yield site, f"{one} calls the function that leads to {kind}"
    yield found.first.site, f"{one} waits in {kind}"
    if found.second is not None:
        yield found.second.site, f"{other} waits in {found.second.kind}"
    elif not (found.rounds or found.leaves):
        yield found.decided, f"{other} goes on here without {kind}"
